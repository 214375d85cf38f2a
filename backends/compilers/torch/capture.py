"""Capture a PyTorch program in a worker: a user's Python file, or an archive of torch's, becomes a graph.

The file is code and runs here. `torch.export` traces what it names, with its example inputs.
"""

from __future__ import annotations

import inspect
import io
import itertools
import json
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from opsieve.backends.compilers.torch.values import NAMES, to_value
from opsieve.gen.irs.torch.archive import contiguous_strides
from opsieve.gen.irs.torch.graph import (
    Argument,
    Branch,
    Ref,
    TorchCall,
    TorchGraph,
    Word,
    decode_graph,
    encode_graph,
)
from opsieve.gen.model.tensors import TensorType

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# Names by which a file may call its program and its example inputs
_PROGRAMS = ("model", "module", "mod", "program", "fn", "f", "forward", "func")
_INPUTS = ("inputs", "example_inputs", "args", "example_args")
_MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous_format", torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d", torch.preserve_format: "preserve_format",
}  # fmt: skip


class NotCaptured(Exception):
    """A file from which no program can be taken; the message says why."""


def tell_program(request: Request) -> Run:
    """Return the program in a file as `module`, its JSON, and the example inputs as `input.NAME`."""
    request.stage("import")
    choice = json.loads(bytes(request.inputs["choice"])) if "choice" in request.inputs else {}
    if request.model[:2] == b"PK":
        exported = torch.export.load(io.BytesIO(request.model))
        args, given = exported.example_inputs or ((), {})
    else:
        program, args = run_script(request.model, choice.get("module", ""))
        given = {}
        with torch.no_grad():
            exported = torch.export.export(program, tuple(args), strict=False)
    graph = to_graph(exported)
    leaves = [
        item for item in torch.utils._pytree.tree_leaves((args, given)) if isinstance(item, torch.Tensor)
    ]
    data = encode_graph(graph)
    # Whatever cannot be read back is no program.
    decode_graph(data)

    def run(values: dict[str, Any]) -> dict[str, Any]:
        found = {"module": np.frombuffer(data, np.uint8), "passes": np.frombuffer(b"[]", np.uint8)}
        if len(leaves) == len(graph.inputs):
            found.update(("input." + name, to_value(item)) for name, item in zip(graph.inputs, leaves))
        return found

    return run


def run_script(source: bytes, wanted: str) -> tuple[Any, Any]:
    """Run a file, and return the module or function in it and its example inputs."""
    scope: dict[str, Any] = {"__name__": "opsieve_script"}
    # What the file compiles is captured as it was written.
    compiler, torch.compile = torch.compile, lambda item=None, **_: item if item else lambda each: each
    torch.manual_seed(0)
    try:
        exec(compile(source, "<script>", "exec"), scope)  # noqa: S102 -- in a worker
    except Exception as error:  # noqa: BLE001
        # A script that shows a failure may end with it, when all that is needed is there.
        if not set(_INPUTS) & set(scope):
            raise NotCaptured("the file ends with %s: %s" % (type(error).__name__, error)) from error
    finally:
        torch.compile = compiler
    args = next((scope[name] for name in _INPUTS if name in scope), None)
    if args is None:
        raise NotCaptured("the file has no example inputs: call them `inputs`, a tuple of tensors")
    args = args() if callable(args) else args
    program = scope.get(wanted) if wanted else _find_program(scope)
    if program is None:
        raise NotCaptured(
            "the file has no %s: define `model`, a torch.nn.Module or a function" % (wanted or "program")
        )
    if inspect.isclass(program):
        program = program()
    if not isinstance(program, torch.nn.Module):
        program = _Function(program)
    return program, args if isinstance(args, (tuple, list)) else (args,)


def _find_program(scope: dict[str, Any]) -> Any:
    named = next((scope[name] for name in _PROGRAMS if callable(scope.get(name))), None)
    own = [
        item
        for item in scope.values()
        if getattr(item, "__module__", "") == scope["__name__"]
        and (inspect.isfunction(item) or (inspect.isclass(item) and issubclass(item, torch.nn.Module)))
    ]
    return named if named is not None else own[-1] if own else None


class _Function(torch.nn.Module):  # type: ignore[misc]  # torch is not there when types are checked
    def __init__(self, function: Any) -> None:
        super().__init__()
        # With its own signature, so that the inputs keep their names.
        self.forward = function


def to_graph(exported: Any) -> TorchGraph:
    """Return the graph of a torch.export.ExportedProgram."""
    signature = exported.graph_signature
    kinds = {item.arg.name: item.target for item in signature.input_specs}
    user = [item.kind.name == "USER_OUTPUT" for item in signature.output_specs]
    return _read_graph(exported.graph, kinds, {**exported.state_dict, **exported.constants}, user)


def _read_graph(graph: Any, kinds: Any, state: Any, user: Any) -> TorchGraph:
    """Return a graph of torch.fx: the names of stored values in `kinds`, the values in `state`, and which
    outputs are the user's.
    """
    names: dict[Any, str] = {}
    inputs, constants, calls = [], {}, []
    outputs: tuple[str, ...] = ()
    types: dict[str, TensorType] = {}
    strides: dict[str, tuple[int, ...]] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            name = names[node] = node.name
            target = kinds.get(node.name)
            if target is None:
                if not isinstance(node.meta.get("val"), torch.Tensor):
                    raise NotCaptured("the program takes an input that is no tensor: %s" % node.name)
                inputs.append(name)
                _declare_type(name, node.meta["val"], types, strides)
            else:
                constants[name] = np.array(to_value(state[target]), order="C")
        elif node.op == "call_function" and node.target is not operator.getitem:
            call = _make_call(node, names, types)
            if call.key or call.mutates:
                calls.append(call)
        elif node.op == "output":
            given = itertools.compress(node.args[0], user)
            outputs = tuple(names[item] for item in given if isinstance(item, torch.fx.Node))
    return TorchGraph(tuple(inputs), constants, tuple(calls), outputs, types, strides)


def _make_call(node: Any, names: dict[Any, str], types: dict[str, TensorType]) -> TorchCall:
    if not isinstance(node.target, torch._ops.OpOverload) and str(node.target) != "cond":
        raise NotCaptured("the program calls %s, which is no operator of aten's" % node.target)
    value = node.meta.get("val")
    many = isinstance(value, (tuple, list))
    fields = {user.args[1]: user for user in node.users} if many else {}
    results = []
    for place, item in enumerate(value if many else [value]):
        made = fields.get(place) if many else node
        # A result without a reader is left without a name, unless the call is there for it.
        if made is None or item is None:
            results.append("")
            continue
        results.append(made.name)
        names[made] = results[-1]
        if isinstance(item, torch.Tensor):
            _declare_type(results[-1], item, types, {})
    args = tuple(_make_argument(item, names) for item in node.args)
    kwargs = tuple((name, _make_argument(item, names)) for name, item in node.kwargs.items())
    prefix = "" if "." in str(node.target) else "higher_order."
    return TorchCall(prefix + str(node.target), args, kwargs, tuple(results), many)


def _declare_type(name: str, value: Any, types: dict[str, TensorType], strides: dict[str, Any]) -> None:
    sizes = [int(size) if str(size).isdigit() else None for size in value.shape]
    if None in sizes or value.dtype not in NAMES:
        return
    types[name] = TensorType(NAMES[value.dtype], tuple(int(size) for size in sizes if size is not None))
    if tuple(value.stride()) != contiguous_strides(sizes):
        strides[name] = tuple(map(int, value.stride()))


def _make_argument(item: Any, names: dict[Any, str]) -> Argument:
    if isinstance(item, torch.fx.Node) and item.op == "get_attr":
        # The other attributes are inputs of the graph.
        branch = getattr(item.graph.owning_module, item.target)
        return Branch(_read_graph(branch.graph, {}, {}, itertools.repeat(True)))
    if isinstance(item, torch.fx.Node):
        return Ref(names[item])
    if isinstance(item, (list, tuple)):
        return tuple(_make_argument(each, names) for each in item)
    if item is None or isinstance(item, (bool, int, float, complex, str)):
        return item
    if isinstance(item, torch.dtype):
        return Word("dtype", str(item).partition(".")[2])
    if isinstance(item, torch.device):
        return Word("device", item.type)
    if isinstance(item, torch.memory_format):
        return Word("memory_format", _MEMORY_FORMATS[item])
    if isinstance(item, torch.layout):
        return Word("layout", str(item).partition(".")[2])
    raise NotCaptured("an argument is a %s, which a graph does not hold" % type(item).__name__)
