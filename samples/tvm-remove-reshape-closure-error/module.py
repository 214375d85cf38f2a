# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main() -> R.Tensor((1, 1, 1, 1), dtype="float32"):

        @R.function
        def f0() -> R.Tuple(R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32")):
            gv5: R.Tensor((1, 1, 1, 1), dtype="float32") = R.full(R.shape([1, 1, 1, 1]), R.const(0.0, "float32"), dtype="float32")
            gv6: R.Tuple(R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32")) = R.const([0.0], 'float32'), gv5
            return gv6

        gv7: R.Tensor((1, 1, 1, 1), dtype="float32") = R.full(R.shape([1, 1, 1, 1]), R.const(0.0, "float32"), dtype="float32")
        return gv7
