"""What the instances of operators are drawn with, and the model of one of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class Instance:
    """One node: `constants` are the places of inputs that a kernel wants as initializers."""

    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    constants: tuple[int, ...] = ()
    compared: tuple[int, ...] | None = None  # the places of outputs that are defined, all if None


def model_of(operator: str, instance: Instance, domain: str = DOMAIN) -> tuple[ModelProto, dict[str, Array]]:
    """A model of one node, and what is fed to it."""
    names = ["" if value is None else f"x{at}" for at, value in enumerate(instance.inputs)]
    outputs = [f"y{at}" for at in range(instance.outputs)]
    node = helper.make_node(operator, names, outputs, domain=domain, **instance.attributes)
    given = {
        name: (at, np.asarray(value))
        for at, (name, value) in enumerate(zip(names, instance.inputs, strict=True))
        if name
    }
    fed = {name: value for name, (at, value) in given.items() if at not in instance.constants}
    held = [numpy_helper.from_array(value, name) for name, (at, value) in given.items() if name not in fed]
    shown = [f"y{at}" for at in (range(instance.outputs) if instance.compared is None else instance.compared)]
    graph = helper.make_graph(
        [node],
        operator,
        [helper.make_tensor_value_info(name, _kind(value), value.shape) for name, value in fed.items()],
        [helper.make_empty_tensor_value_info(name) for name in shown],
        held,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), fed


def _kind(value: Array) -> int:
    return TensorProto.STRING if value.dtype == object else helper.np_dtype_to_tensor_dtype(value.dtype)


def some(rng: Rng, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def positive(rng: Rng, *shape: int) -> Array:
    return rng.uniform(0.2, 2, shape).astype(np.float32)


def byte(rng: Rng, dtype: Any, *shape: int) -> Array:
    # of 7 bits: kernels without VNNI saturate pairs of 8
    limits = np.iinfo(dtype)
    return rng.integers(max(limits.min, -64), min(limits.max, 127) + 1, shape).astype(dtype)


def scale(rng: Rng, *shape: int) -> Array:
    return rng.uniform(0.01, 0.2, shape).astype(np.float32)


def bytes_of(rng: Rng) -> Any:
    return np.uint8 if rng.random() < 0.5 else np.int8


def side(rng: Rng, low: int = 1, high: int = 6) -> int:
    return int(rng.integers(low, high))


def shape(rng: Rng, low: int = 1, high: int = 4) -> tuple[int, ...]:
    return tuple(side(rng) for _ in range(side(rng, low, high + 1)))


def maybe(rng: Rng, value: Any, share: float = 0.5) -> Any:
    return value if rng.random() < share else None


def trimmed(*inputs: Any) -> list[Any]:
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def convolution(rng: Rng, rank: int = 2) -> tuple[list[int], list[int], dict[str, Any]]:
    kernel = [side(rng, 1, 4) for _ in range(rank)]
    group, out = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    channels = int(rng.integers(1, 3))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "group": group}
    if rng.random() < 0.5:
        attributes["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
    if rng.random() < 0.5:
        attributes["strides"] = [side(rng, 1, 3) for _ in range(rank)]
    x = [side(rng, 1, 3), group * channels, *(side(rng, 4, 9) for _ in range(rank))]
    return x, [group * out, channels, *kernel], attributes


def pool(rng: Rng, rank: int = 2) -> tuple[list[int], dict[str, Any]]:
    kernel = [side(rng, 1, 4) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if rng.random() < 0.5:
        attributes["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
    if rng.random() < 0.5:
        attributes["strides"] = [side(rng, 1, 3) for _ in range(rank)]
    return [side(rng, 1, 3), side(rng), *(side(rng, 4, 9) for _ in range(rank))], attributes
