"""PyTorch programs (gen/irs/torch) in a worker: as torch modules, evaluated by eager torch, and what eager
torch tells of them.

Imported in workers alone. A program's constants are buffers, which torch.compile takes as inputs.
"""

from __future__ import annotations

import contextlib
import json
import operator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from opsieve.backends.compilers.torch.values import DTYPES, Unsupported, to_tensor, to_value
from opsieve.gen.irs.torch.graph import (
    Branch,
    MalformedProgram,
    Ref,
    TorchCall,
    TorchGraph,
    Word,
    decode_graph,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# What floats are computed in for the float64 reference
_WIDE = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128"}
# The bytes of intermediate values that are given
_MOST_BYTES = 64 << 20
_TYPES = "types"


class Rejected(Exception):
    """Bytes that are no program."""


def read_graph(model: bytes) -> TorchGraph:
    """Return the graph in a request; raise Rejected."""
    try:
        return decode_graph(model)
    except MalformedProgram as error:
        raise Rejected(str(error)) from error


def find_operator(name: str) -> Any:
    """Return the overload by its name; raise Unsupported where this release has none."""
    found = torch.ops
    for word in name.split("."):
        try:
            found = getattr(found, word)
        except AttributeError:
            raise Unsupported("this release of torch has no operator %s" % name) from None
    return found


class ProgramModule(torch.nn.Module):  # type: ignore[misc]  # torch is not there when types are checked
    """A program as a torch module, with the interface of `table.Lowered`.

    With `wide`, floats are float64 wherever the program has shorter ones.
    """

    def __init__(self, program: TorchGraph, wide: bool = False) -> None:
        super().__init__()
        self.program, self.wide = program, wide
        self.names = list(program.inputs)
        self.fed: dict[str, Any] = {}
        # Constants lie on a module of their own, because GraphModule copies the attributes that its graph
        # names.
        root = torch.nn.Module()
        for name, array in program.constants.items():
            root.register_buffer(name, self.make_tensor(array))
        self.body = torch.fx.GraphModule(root, self.make_graph(root))

    def make_tensor(self, array: Any) -> Any:
        """Return a tensor of a value, in the type that is computed in."""
        made = to_tensor(array)
        dtype = _WIDE.get(array.dtype.name) if self.wide else None
        return made.to(DTYPES[dtype]) if dtype else made

    def make_graph(self, root: Any) -> Any:
        """Return the program as a graph of torch.fx; branches become modules of `root`."""
        made = torch.fx.Graph()
        env = {name: made.placeholder(name) for name in self.program.inputs}
        env.update((name, made.get_attr(name)) for name in self.program.constants)
        for call in self.program.calls:
            args, kwargs = self.read_arguments(call, env)
            for place, item in enumerate(args):
                if isinstance(item, torch.nn.Module):
                    name = "%s_branch_%d" % (call.key, place)
                    root.add_module(name, item)
                    args = (*args[:place], made.get_attr(name), *args[place + 1 :])
            node = made.call_function(find_operator(call.operator), args, kwargs)
            for place, name in enumerate(call.results):
                if name:
                    env[name] = made.call_function(operator.getitem, (node, place)) if call.many else node
        made.output(tuple(env[name] for name in self.program.outputs))
        return made

    def read_arguments(
        self, call: TorchCall, env: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call as torch takes them."""

        def convert(item: Any) -> Any:
            if isinstance(item, tuple):
                return [convert(each) for each in item]
            if isinstance(item, Ref):
                return env[item.name]
            if isinstance(item, Branch):
                return ProgramModule(item.graph, self.wide).body
            return self.find_word(item) if isinstance(item, Word) else item

        return tuple(map(convert, call.args)), {name: convert(item) for name, item in call.kwargs}

    def find_word(self, item: Word) -> Any:
        """Return one of torch's own words."""
        if item.kind == "device":
            # Where everything is computed
            return torch.get_default_device()
        return getattr(torch, _WIDE.get(item.text, item.text) if self.wide else item.text)

    def forward(self, *values: Any) -> Any:
        """Compute the outputs for the inputs `names`."""
        return self.body(*values)

    def to_tensors(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of forward, from values by name; constants get their values again."""
        # Dropout and the like draw the same numbers in each run and each build.
        torch.manual_seed(0)
        # A call in place may have written to them in an earlier run.
        if any(call.mutates for call in self.program.calls):
            for name, array in self.program.constants.items():
                getattr(self.body, name).copy_(self.make_tensor(array))
        self.fed = {
            name: self.with_strides(name, self.make_tensor(np.asarray(values[name]))) for name in self.names
        }
        return list(self.fed.values())

    def with_strides(self, name: str, tensor: Any) -> Any:
        """Return an input with the strides that the program declares."""
        strides = self.program.strides.get(name)
        if strides is None:
            return tensor
        # A plain copy would be contiguous, and many faults of inductor need a layout.
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(
            tensor
        )

    def to_values(self, made: Iterable[Any]) -> dict[str, Any]:
        """Return values by name, from the result of forward: the outputs, their layouts, the inputs after
        it.
        """
        found = {}
        storages = [fed.untyped_storage().data_ptr() for fed in self.fed.values()]
        for place, item in enumerate(made):
            if not isinstance(item, torch.Tensor):
                found["output_%d" % place] = np.asarray(item)
                storages.append(-1)
                continue
            found["output_%d" % place] = to_value(item)
            found["output_%d.layout" % place] = read_layout(item, storages)
            storages.append(item.untyped_storage().data_ptr())
        # What a program writes to its inputs is a result as well, and so is what the compiler writes.
        found.update((name + ".after", to_value(fed)) for name, fed in self.fed.items())
        return found

    def record(self, *values: Any) -> list[str]:
        """Run once: what eager torch does not run is not for a compiler. No value was decided by inputs."""
        # The run may write to the values.
        self(*[value.clone() for value in values])
        return []


def read_layout(tensor: Any, storages: Sequence[int]) -> Any:
    """Return the strides of a tensor, and the place among the inputs and earlier outputs of the one that it
    shares memory with, else -1. A stride of a dimension with one element says nothing and is 0.
    """
    if not tensor.numel():
        return np.array([0] * tensor.dim() + [-1], np.int64)
    steps = [step if size > 1 else 0 for step, size in zip(tensor.stride(), tensor.shape)]
    start = tensor.untyped_storage().data_ptr()
    return np.array([*steps, storages.index(start) if start in storages else -1], np.int64)


def run_eagerly(graph: TorchGraph, values: Mapping[str, Any], wide: bool = False) -> dict[str, Any]:
    """Run a program with eager torch and return its outputs."""
    # Factory functions without a dtype follow it, so that float64 has to be set, and set back.
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wide else torch.float32)
    try:
        module = ProgramModule(graph, wide)
        with torch.no_grad():
            return module.to_values(module(*module.to_tensors(values)))
    finally:
        torch.set_default_dtype(default)


def evaluate_program(request: Request) -> Run:
    """Evaluate a program by eager torch, for the reference. In float64 the layouts are those of the program's
    own types, because a conversion between types may copy.
    """
    request.stage("import")
    graph = read_graph(request.model)
    # Sums in a fixed order: results of two runs can be compared bit by bit.
    torch.set_num_threads(1)
    request.stage("compile")
    wide = request.options.get("precision") == "float64"
    drawn = [
        call.operator
        for call in graph.calls
        if torch.Tag.nondeterministic_seeded in getattr(find_operator(call.operator), "tags", ())
    ]
    if wide and drawn:
        raise NotImplementedError("%s draws other numbers in float64" % drawn[0])

    def run(values: dict[str, Any]) -> dict[str, Any]:
        plain = run_eagerly(graph, values)
        if not wide:
            return plain
        exact = run_eagerly(graph, values, True)
        return {name: plain[name] if name.endswith(".layout") else value for name, value in exact.items()}

    return run


def run_altered(
    graph: TorchGraph, values: Mapping[str, Any], alter: Callable[[str, Any], Any]
) -> dict[str, Any]:
    """Return what eager torch makes of a program in which `alter` may change each result, an array."""
    module = ProgramModule(graph)
    env = _first_values(module, module.to_tensors(values))
    with torch.no_grad():
        for name, value in _walk_calls(module, env):
            before = to_value(value) if isinstance(value, torch.Tensor) else value
            after = alter(name, before)
            if after is not before:
                env[name] = to_tensor(after)
        return module.to_values(env[name] for name in graph.outputs)


# `fake` plants faults by the shape of ONNX nodes; this gives it the same view of a PyTorch program.
def as_nodes(graph: TorchGraph) -> Any:
    """Return a program as the nodes in which `fake` looks for a pattern."""
    nodes = [
        SimpleNamespace(
            op_type=call.operator.rpartition(".")[0],
            name="",
            input=list(call.reads()),
            output=[call.key],
            attribute=[],
        )
        for call in graph.calls
    ]
    return SimpleNamespace(node=nodes, input=[SimpleNamespace(name=name) for name in graph.inputs])


def tell_values(request: Request) -> Run:
    """Return the values that eager torch makes on the way, as far as there is room for them, and as `types`
    the types of all of them.
    """
    graph = read_graph(request.model)

    def run(values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        types: dict[str, Any] = {}
        module = ProgramModule(graph)
        env = _first_values(module, module.to_tensors(values))
        # What follows a call that torch refuses has no value.
        with torch.no_grad(), contextlib.suppress(Exception):
            for name, value in _walk_calls(module, env):
                if not isinstance(value, torch.Tensor):
                    continue
                types[name] = [str(value.dtype).partition(".")[2], list(value.shape)]
                if sum(map(np.size, found.values())) * 8 + value.nbytes < _MOST_BYTES:
                    found["value." + name] = to_value(value).copy()
        return {**found, _TYPES: np.frombuffer(json.dumps(types).encode(), np.uint8)}

    return run


def _first_values(module: ProgramModule, tensors: Iterable[Any]) -> dict[str, Any]:
    """Return the values that are there before the first call."""
    env = dict(zip(module.names, tensors))
    env.update((name, getattr(module.body, name)) for name in module.program.constants)
    return env


def _walk_calls(module: ProgramModule, env: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each value as it is made; whoever takes it may put another one into `env`."""
    for call in module.program.calls:
        args, kwargs = module.read_arguments(call, env)
        made = find_operator(call.operator)(*args, **kwargs)
        for name, value in zip(call.results, made if call.many else [made]):
            if name:
                env[name] = value
                yield name, value
