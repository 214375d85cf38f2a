# from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def a(A: T.Buffer((T.int64(4),), "float32"), B: T.Buffer((T.int64(4),), "float32")):
    # with T.sblock("root"):
    for i in range(T.int64(4)):
        with T.sblock("b"):
            v = T.axis.spatial(T.int64(4), i)
            T.reads(A[v])
            T.writes(B[v])
            B[v] = A[v] + T.float32(1.0)
