"""The lowest IR version and opset that say the same program, so that old releases can be asked about it.

A compiler refuses an IR version or an opset newer than it knows, whether or not the model uses anything new.
Lowering changes version numbers only: never a node, never upwards.
"""

from collections.abc import Iterable, Iterator

import onnx
from onnx import TensorProto, helper

from opsieve.gen.model.structure import all_nodes, copied

# What each IR version brought (the comments on `Version` in onnx.proto), beside what its operator sets ask
# for.
_DTYPE_IR = {
    "BFLOAT16": 4,
    **dict.fromkeys(("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"), 9),
    **dict.fromkeys(("UINT4", "INT4"), 10),
    "FLOAT4E2M1": 11,
    "FLOAT8E8M0": 12,
    **dict.fromkeys(("UINT2", "INT2"), 13),
    **dict.fromkeys(("FLOAT6E2M3", "FLOAT6E3M2"), 14),
}
_KNOWN = dict(TensorProto.DataType.items())
_TYPE_IR = {_KNOWN[name]: ir for name, ir in _DTYPE_IR.items() if name in _KNOWN}
_OPSET_IR = {
    ("" if domain == "ai.onnx" else domain, version): ir
    for (domain, version), ir in helper.OP_SET_ID_VERSION_MAP.items()
}
_PLAIN_LISTS = frozenset((onnx.AttributeProto.FLOATS, onnx.AttributeProto.INTS, onnx.AttributeProto.STRINGS))
# Every feature below asks for at least this IR version.
_FIRST_NEW = 4


def lower_ir(model: bytes) -> bytes:
    """Return the serialised model with the lowest IR version that it allows; the same bytes when that is the
    one it has.
    """
    proto = onnx.ModelProto.FromString(model)
    lowest = lowest_ir(proto)
    if lowest == proto.ir_version:
        return model
    proto.ir_version = lowest
    data: bytes = proto.SerializeToString()
    return data


def lowest_ir(model: onnx.ModelProto) -> int:
    """Return the lowest IR version that has the model's operator sets and every feature it uses; never above
    its own.
    """
    have = model.ir_version
    # IR version 3 introduced operator sets.
    floor = 3 if model.opset_import else 1
    imports = [
        *model.opset_import,
        *(entry for function in model.functions for entry in function.opset_import),
    ]
    for entry in imports:
        key = ("" if entry.domain == "ai.onnx" else entry.domain, entry.version)
        if key in _OPSET_IR:
            floor = max(floor, _OPSET_IR[key])
        elif key[0] == "":
            # This onnx does not know the operator set, so the model's own stays.
            return have
    return have if floor >= have else min(have, max(floor, _features(model, floor)))


def lower_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of the model that imports the lowest opset with exactly the same operator versions; IR
    version unchanged.
    """
    lowest = lowest_opset(model)
    lowered = copied(model)
    for owner in (lowered, *lowered.functions):
        for entry in owner.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = min(entry.version, lowest)
    return lowered


def lowest_opset(model: onnx.ModelProto) -> int:
    """Return the lowest opset of ONNX's own domain in which every used operator, also in bodies and
    functions, has the same version.

    That is the largest version at which one of them last changed; the model's own opset when an operator is
    unknown to this onnx, 1 when the model uses none of the domain.
    """
    have = _default_opset(model.opset_import)
    local = {(function.domain, function.name) for function in model.functions}
    lowest = 1
    scopes = [
        (have, model.graph.node),
        *((_default_opset(item.opset_import), item.node) for item in model.functions),
    ]
    for training in model.training_info:
        scopes += [(have, training.initialization.node), (have, training.algorithm.node)]
    for opset, nodes in scopes:
        used = {
            node.op_type
            for node in all_nodes(nodes)
            if node.domain in ("", "ai.onnx") and (node.domain, node.op_type) not in local
        }
        for operator in used:
            if not onnx.defs.has(operator, max_inclusive_version=opset, domain=""):
                return have
            lowest = max(lowest, onnx.defs.get_schema(operator, opset, "").since_version)
    return min(lowest, have) if have else lowest


def _default_opset(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    return max((entry.version for entry in imports if entry.domain in ("", "ai.onnx")), default=1)


def _features(model: onnx.ModelProto, floor: int) -> int:
    """Return the highest IR version that a feature of the model asks for. `floor` says which features need
    not be looked for.
    """
    needs = [1]
    if model.functions:
        needs.append(8)
        for function in model.functions:
            # IR version 8 brought functions, 9 their attributes with defaults.
            needs.append(9 if function.attribute_proto else 8)
            needs.append(10 if function.overload or function.metadata_props else 8)
            needs += (_type_ir(info.type) for info in function.value_info)
            needs += _node_features(function.node, floor)
    # IR version 11 brought configurations of devices, 7 training.
    if model.configuration:
        needs.append(11)
    if model.training_info:
        needs.append(7)
        for training in model.training_info:
            needs += _graph_features(training.initialization, floor, False)
            needs += _graph_features(training.algorithm, floor, False)
    needs += _graph_features(model.graph, floor, True)
    return max(needs)


def _graph_features(graph: onnx.GraphProto, floor: int, main: bool) -> Iterator[int]:
    # IR version 10 brought metadata of all messages, 5 annotations of quantisation, 6 sparse tensors.
    if graph.metadata_props:
        yield 10
    if graph.quantization_annotation:
        yield 5
    if graph.sparse_initializer:
        yield 6
        for sparse in graph.sparse_initializer:
            yield _tensor_ir(sparse.values)
    if floor < _FIRST_NEW and graph.initializer:
        inputs = {info.name for info in graph.input}
        if not main or any(tensor.name not in inputs for tensor in graph.initializer):
            yield _FIRST_NEW
    for tensor in graph.initializer:
        yield _tensor_ir(tensor)
    for infos in (graph.input, graph.output, graph.value_info):
        for info in infos:
            yield max(10 if info.metadata_props else 1, _type_ir(info.type))
    yield from _node_features(graph.node, floor)


def _node_features(nodes: Iterable[onnx.NodeProto], floor: int) -> Iterator[int]:
    for node in nodes:
        if node.overload or node.metadata_props:
            yield 10
        if node.device_configurations:
            yield 11
        for attribute in node.attribute:
            kind = attribute.type
            if 0 < kind <= onnx.AttributeProto.STRING or kind in _PLAIN_LISTS:
                # Numbers and strings hold no tensors, types or graphs.
                continue
            for tensor in (attribute.t, *attribute.tensors):
                yield _tensor_ir(tensor)
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                yield 6
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    yield _tensor_ir(sparse.values)
            for type_ in (attribute.tp, *attribute.type_protos):
                yield _type_ir(type_)
            if attribute.HasField("g"):
                yield from _graph_features(attribute.g, floor, False)
            for graph in attribute.graphs:
                yield from _graph_features(graph, floor, False)


def _tensor_ir(tensor: TensorProto) -> int:
    return max(_TYPE_IR.get(tensor.data_type, 1), 10 if tensor.metadata_props else 1)


def _type_ir(type_: onnx.TypeProto) -> int:
    kind = type_.WhichOneof("value")
    if kind == "tensor_type":
        return _TYPE_IR.get(type_.tensor_type.elem_type, 1)
    if kind == "sequence_type":
        return _type_ir(type_.sequence_type.elem_type)
    if kind == "optional_type":
        return max(8, _type_ir(type_.optional_type.elem_type))
    if kind == "sparse_tensor_type":
        return max(8, _TYPE_IR.get(type_.sparse_tensor_type.elem_type, 1))
    if kind == "map_type":
        return _type_ir(type_.map_type.value_type)
    return 1
