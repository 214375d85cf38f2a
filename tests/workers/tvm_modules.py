"""Modules that TVM's own parser reads, one of each construct of Relax and a kernel of TIR."""

# ruff: noqa: F841 - the names are TVMScript's

from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class M:
    @T.prim_func(s_tir=True)
    def exp1(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2, 3), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(2, 3):
            with T.sblock("e"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.exp(A[vi, vj])

    @R.function(private=True)
    def rec(x: R.Tensor((2, 3), "float32"), n: R.Tensor((), "int64")) -> R.Tensor((2, 3), "float32"):
        cls = M
        c: R.Tensor((), "bool") = R.greater(n, R.const(0, "int64"))
        if c:
            m = R.subtract(n, R.const(1, "int64"))
            r = cls.rec(x, m)
        else:
            r = x
        return r

    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"), y: R.Tensor(ndim=2, dtype="float32"), s: R.Shape(["n"])
    ) -> R.Object:
        R.func_attr({"num_input": 4})
        n = T.int64()
        m = T.int64()
        k = T.int64()
        cls = M
        z = R.match_cast(y, R.Tensor((m, k), "float32"))

        @R.function
        def inner(q: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            w = R.add(q, x)
            return w

        with R.dataflow():
            a = R.call_tir(cls.exp1, (x,), out_ty=R.Tensor((2, 3), "float32"))
            b = R.call_dps_packed("my_func", (x,), out_ty=R.Tensor((2, 3), "float32"))
            d = R.astype(a, "float16")
            lv = (a, b)
            R.output(a, b, lv)
        g = lv[0]
        e = inner(g)
        f = cls.rec(e, R.const(3, "int64"))
        st = R.str("hello")
        sh = R.shape([m, k + 1])
        pv = R.prim_value(n)
        return (f, z, sh)


MODULES = [M]
