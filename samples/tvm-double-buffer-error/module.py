# from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def e(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        C = T.alloc_local((2,))
        with T.attr(C, "double_buffer_scope", 1):
            for j in range(2):
                C[j] = A[i]
        B[i] = C[0]
