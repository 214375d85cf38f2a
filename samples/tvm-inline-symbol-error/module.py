# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from typing import TypeVar
# from tvm.script import ir as I
# from tvm.script import relax as R

k0 = TypeVar("k0")
@I.ir_module
class Module:
    @R.function(private=True)
    def sub1(p3: R.Tensor((k0,), dtype="float32")) -> R.Tensor((k0,), dtype="float32"):
        gv2: R.Tensor((k0,), dtype="float32") = R.ones(R.shape([k0]), dtype="float32")
        gv3: R.Tensor(dtype="float32", ndim=1) = R.match_cast(gv2, R.Tensor(dtype="float32", ndim=1))
        gv4: R.Tensor((k0,), dtype="float32") = R.match_cast(gv3, R.Tensor((k0,), dtype="float32"))
        return p3

    @R.function
    def main() -> R.Tensor((1,), dtype="float32"):
        cls = Module
        gv5_0: R.Tensor((1,), dtype="float32") = cls.sub1(R.const([1.0], 'float32'))
        return gv5_0
