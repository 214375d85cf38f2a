# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import tirx as T
# from tvm.tirx.layout import Axis

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((6, 6), "float32"), B: T.Buffer((6, 6), "float32"), T_concat: T.Buffer((6, 12), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for ax1 in range(12):
            with T.sblock("T_concat"):
                v_ax0 = T.axis.spatial(6, 0)
                v_ax1 = T.axis.spatial(12, ax1)
                T.reads(B[v_ax0, v_ax1 - 6], A[v_ax0, v_ax1])
                T.writes(T_concat[v_ax0, v_ax1])
                T_concat[v_ax0, v_ax1] = T.if_then_else(6 <= v_ax1, B[v_ax0, v_ax1 - 6], A[v_ax0, v_ax1])
