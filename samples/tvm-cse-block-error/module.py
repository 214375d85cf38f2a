# from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def b(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    # with T.sblock("root"):
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(4, i)
            T.reads(A[(v * 2 + 3) % 8])
            T.writes(B[(v * 2 + 3) % 8])
            B[(v * 2 + 3) % 8] = A[(v * 2 + 3) % 8] + A[(v * 2 + 3) % 8]
