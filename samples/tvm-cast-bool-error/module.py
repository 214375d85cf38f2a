# TVM's printing of module.json, for people; opsieve reads module.json alone and never runs this file.
# from tvm.script import ir as I
# from tvm.script import tirx as T
# from tvm.tirx.layout import Axis

@I.ir_module
class Module:
    @T.prim_func
    def main(T_reverse_sequence: T.Buffer((6, 6), "float32", layout=None)):
        T.evaluate(T.Cast("bool", T.uint8(4)))
