# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import tirx as T
# from tvm.tirx.layout import Axis
# from tvm.script import relax as R

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def kernel0(A: T.Buffer((1, 4, 1, 4), "float32"), B: T.Buffer((1, 4, 1, 4), "float32"), C: T.Buffer((1, 4, 1, 4), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3 in T.grid(1, 4, 1, 4):
            with T.sblock("cell"):
                v0, v1, v2, v3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(A[v0, v1, v2, v3], B[v0, v1, v2, v3])
                T.writes(C[v0, v1, v2, v3])
                C[v0, v1, v2, v3] = A[v0, v1, v2, v3] - B[v0, v1, v2, v3]

    @R.function
    def main() -> R.Tensor((1, 4, 4, 4), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv7: R.Tuple(R.Tensor((1, 4, 1, 1), dtype="float32"), R.Tensor((5, 4, 1, 1), dtype="float32")) = R.split(R.const([[[[1.0]], [[1.0]], [[1.0]], [[1.0]]], [[[1.0]], [[1.0]], [[1.0]], [[1.0]]], [[[1.0]], [[1.0]], [[1.0]], [[1.0]]], [[[1.0]], [[1.0]], [[1.0]], [[1.0]]], [[[1.0]], [[1.0]], [[1.0]], [[1.0]]], [[[1.0]], [[1.0]], [[1.0]], [[1.0]]]], 'float32'), indices_or_sections=[1], axis=0)
            lv8: R.Tensor((1, 4, 1, 1), dtype="float32") = lv7[0]
            lv13: R.Tensor((1, 4, 1, 4), dtype="float32") = R.matmul(lv8, R.const([[[[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]]]], 'float32'), out_dtype=None)
            lv20 = R.call_tir(cls.kernel0, (lv13, R.const([[[[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]]]], 'float32')), out_ty=R.Tensor((1, 4, 1, 4), dtype="float32"))
            lv27: R.Tensor((1, 4, 4, 4), dtype="float32") = R.concat((R.const([[[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]], 'float32'), lv20, R.const([[[[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0]]]], 'float32')), axis=2)
            lv28: R.Tensor((1, 4, 4, 4), dtype="float32") = R.clip(lv27, T.float64(-50.0), T.float64(50.0))
            lv30: R.Tensor((1, 4, 4, 4), dtype="float32") = R.floor_divide(lv28, R.const([[[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]]], 'float32'))
            gv0: R.Tensor((1, 4, 4, 4), dtype="float32") = lv30
            R.output(gv0)
        return gv0
