# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function(private=True)
    def sub1(p1: R.Tensor((1,), dtype="int8")) -> R.Tensor((1,), dtype="int8"):
        return p1

    @R.function
    def main() -> R.Tensor((1,), dtype="int8"):
        cls = Module
        lv1: R.Tensor((1,), dtype="int8") = cls.sub1(R.const([0], 'int8'))
        return lv1
