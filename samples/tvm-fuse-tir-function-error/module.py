# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main() -> R.Tensor((1,), dtype="float32"):

        @R.function
        def f0(q0: R.Callable((R.Tensor((1,), dtype="float32"),), R.Tensor((1,), dtype="float32"), True), q1: R.Tensor((1,), dtype="float32")) -> R.Tensor((1,), dtype="float32"):
            gv0: R.Tensor((1,), dtype="float32") = q0(q1)
            return gv0

        @R.function
        def f1(q2: R.Tensor((1,), dtype="float32")) -> R.Tensor((1,), dtype="float32"):
            return R.const([1.0], 'float32')

        gv17: R.Tensor((1,), dtype="float32") = f0(f1, R.const([1.0], 'float32'))
        return gv17
