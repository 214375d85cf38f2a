# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main() -> R.Tensor((1, 1, 1, 1), dtype="float32"):
        gv0: R.Tensor((), dtype="bool") = R.full(R.shape([]), R.const(False, "bool"), dtype="bool")
        if gv0:
            gv8: R.Tensor((), dtype="int32") = R.full_like(R.const(2, "int32"), R.const(2, "int32"), dtype=None)
            gv11: R.Tensor((), dtype="int32") = R.maximum(gv8, gv8)
            gv14: R.Tensor((), dtype="int32") = gv11
        else:
            gv14: R.Tensor((), dtype="int32") = R.const(1, "int32")
        gv15: R.Tensor((), dtype="int32") = R.bitwise_and(gv14, gv14)
        gv16: R.Tuple(R.Tensor((), dtype="int32"), R.Tensor((1,), dtype="float32"), R.Tensor((1, 1, 1, 1), dtype="float32")) = gv15, R.const([-1.5119999647140503], 'float32'), R.const([[[[1.0]]]], 'float32')
        gv17: R.Tensor((1, 1, 1, 1), dtype="float32") = gv16[2]
        return gv17
