import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from opsieve.gen.irs.tvm.nodes import (
    Array,
    Dtype,
    MalformedGraph,
    ObjectNode,
    Pairs,
    decode,
    encode,
    from_node,
    to_node,
)

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
values = st.recursive(
    plain | st.just(Dtype("float16")),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.lists(st.tuples(st.text(max_size=3), inner), max_size=3).map(lambda pairs: Pairs(tuple(pairs)))
    ),
    max_leaves=12,
)


def graph(*nodes: dict[str, Any], root: int = -1) -> str:
    return json.dumps({"root_index": len(nodes) - 1 if root < 0 else root, "nodes": nodes})


@given(values)
def test_values_come_back(value: Any) -> None:
    assert decode(encode(value)) == value


def test_a_node_that_is_read_twice_stays_one_node() -> None:
    variable = ObjectNode("ir.Var", {"span": None, "ty": None, "name": "x"})
    first, second = decode(encode((variable, variable)))  # type: ignore[misc]
    assert first is second
    assert first["name"] == "x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON graph"),
        (graph({"type": "None"}, root=3), "not a JSON graph"),
        (graph({"type": "ffi.Array", "data": [0]}), "does not stand before"),
        (graph({"type": "ffi.Array", "data": [-1]}), "does not stand before"),
        (graph({"type": "ffi.Array", "data": [True]}), "does not stand before"),
        (graph({"type": "int", "data": "7"}), "is no int"),
        (graph({"type": "relax.Unheard", "data": {}}), "is not known"),
        (graph({"type": "None"}, {"type": "ffi.Map", "data": [0]}), "has no value"),
        (graph({"type": "relax.attrs.SoftmaxAttrs", "data": {"axis": "x"}}), "is no int"),
        (graph({"type": "relax.attrs.SoftmaxAttrs", "data": {"axes": 1}}), "has no field"),
        (graph(*[{"type": "ffi.Array", "data": [n - 1] * (n > 0)} for n in range(1000)]), "deep"),
        (graph(*[{"type": "ffi.Array", "data": [n - 1] * 2 * (n > 0)} for n in range(64)]), "unfolds"),
    ],
)
def test_a_hostile_graph_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(MalformedGraph, match=said):
        decode(text)


@given(
    st.sampled_from(["bool", "int64", "uint8", "float16", "bfloat16", "float8_e5m2"]),
    st.lists(st.integers(0, 3)),
)
def test_constants_come_back(dtype: str, shape: list[int]) -> None:
    from math import prod

    from opsieve.gen.irs.tvm.nodes import width

    shape = shape[:4]
    array = Array(dtype, tuple(shape), b"\1" * (prod(shape) * width(dtype)))
    assert from_node(to_node(array)) == array


@pytest.mark.parametrize(
    "raw", ["", "!!", "AAAA", None, 3, "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAAAAAAIgAQAEAAAAAAAAAAAAgA=="]
)
def test_a_hostile_constant_is_refused_in_a_sentence(raw: Any) -> None:
    with pytest.raises(MalformedGraph, match="constant"):
        from_node(ObjectNode("ffi.Tensor", raw=raw))
