# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import tirx as T
# from tvm.tirx.layout import Axis
# from tvm.script import relax as R

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def kernel0(A: T.Buffer((1, 3, 12), "float32"), B: T.Buffer((1, 3, 12), "float32"), C: T.Buffer((1, 3, 12), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2 in T.grid(1, 3, 12):
            with T.sblock("cell"):
                v0, v1, v2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(A[v0, v1, v2], B[v0, v1, v2])
                T.writes(C[v0, v1, v2])
                C[v0, v1, v2] = A[v0, v1, v2] + B[v0, v1, v2]

    @R.function
    def main() -> R.Tensor((1, 3, 12), dtype="float32"):
        cls = Module
        gv12 = R.call_tir(cls.kernel0, (R.const([[[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]]], 'float32'), R.const([[[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]]], 'float32')), out_ty=R.Tensor((1, 3, 12), dtype="float32"))
        return gv12
