# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main() -> R.Tuple(R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32")):

        @R.function
        def f0(q1: R.Tuple(R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32"))) -> R.Tuple(R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32")):
            gv5: R.Tensor((1, 1, 1, 1), dtype="float32") = R.full(R.shape([1, 1, 1, 1]), R.const(3.0, "float32"), dtype="float32")
            gv6: R.Tuple(R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32")) = R.const([3.0], 'float32'), gv5
            return gv6

        gv7: R.Tensor((1, 1, 1, 1), dtype="float32") = R.full(R.shape([1, 1, 1, 1]), R.const(3.0, "float32"), dtype="float32")
        gv8: R.Tuple(R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32")) = f0((R.const([1.0], 'float32'), gv7))
        return gv8
