"""PyTorch programs as a form that `opsieve.reducer.sessions.reduction` reduces."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.torch.argument_edits import (
    argument_weight,
    drop_kwarg,
    set_argument,
    simpler_arguments,
    yield_value,
)
from opsieve.gen.irs.torch.edits import TorchEdits, TorchSubject
from opsieve.gen.irs.torch.program import TorchProgram
from opsieve.gen.model.tensors import TensorType
from opsieve.reducer.engine.census import Part
from opsieve.reducer.engine.edit import Edit, ListedPass, Pass
from opsieve.reducer.engine.engine import DIGITS
from opsieve.reducer.engine.form import Size, Validator
from opsieve.reducer.irs.registry import ReducibleForm
from opsieve.reducer.oracle.validator import WorkerValidator
from opsieve.reducer.passes.nodes import bypass_operations, drop_operations, drop_outputs, open_bodies
from opsieve.reducer.passes.values import freeze_inputs, shrink_dimensions, simplify_dtypes, simplify_values
from opsieve.reducer.problem.order import DTYPE_RANKS, value_complexity

TorchEdit = Edit[TorchSubject]
TorchPass = Pass[TorchSubject]
# Eager torch gives every intermediate value and type in one run.
_RECORDING = "torch:tell=values"
_EDITS = TorchEdits()


def yield_values(subject: TorchSubject) -> Iterator[TorchEdit]:
    """Return an earlier value alone, the earliest first: all behind it goes."""
    calls = subject.graph.calls
    for place, call in enumerate(calls):
        # The parts that this edit removes: the certificate counts it for each of them.
        gone = frozenset(each.key for each in calls[place + 1 :])
        for name in call.results if gone else ():
            # Returning what is returned already is no edit.
            if name and (name,) != subject.graph.outputs:
                change = partial(yield_value, name=name)
                yield Edit(f"return {name} alone", frozenset(["outputs"]), change, gone)


def simplify_arguments(subject: TorchSubject) -> Iterator[TorchEdit]:
    """Give plain arguments simpler values: none for one given by keyword, and 0 or 1 for a number."""
    for call in subject.graph.calls:
        # Keywords have defaults, so that dropping one keeps the call valid.
        for name, _ in call.kwargs:
            part = frozenset([f"{call.key}.{name}"])
            yield Edit(f"drop {name} of {call.key}", part, partial(drop_kwarg, key=call.key, name=name))
        for place, item in enumerate(call.args):
            part = frozenset([f"{call.key}.{place}"])
            for simple in simpler_arguments(item):
                change = partial(set_argument, key=call.key, place=place, old=item, new=simple)
                yield Edit(f"{simple!r} for argument {place} of {call.key}", part, change)


def torch_parts(subject: TorchSubject) -> Iterator[Part[TorchSubject]]:
    """Yield the calls, inputs, outputs and values of a program."""
    graph, view = subject.graph, _EDITS.view(subject)
    for operation in view.operations():
        # Without a call there is no program to compile.
        yield Part("calls", operation.key, "it is the only one" if len(graph.calls) == 1 else "")
    yield from (Part("inputs", name) for name in graph.inputs)
    for place in range(len(graph.outputs)):
        yield Part("outputs", f"{place}>", "it is the only one" if len(graph.outputs) == 1 else "")
    for tensor in view.tensors():
        yield Part("values", tensor.key + "=", "" if value_complexity(tensor.array) else "all is zero")


# In this order a round removes calls before it spends tests on their sizes and values.
_LISTED: dict[str, Callable[[TorchSubject], Iterator[TorchEdit]]] = {
    "results": yield_values,
    "outputs": partial(drop_outputs, _EDITS),
    "bodies": partial(open_bodies, _EDITS),
    "bypass": partial(bypass_operations, _EDITS),
    "nodes": partial(drop_operations, _EDITS),
    "inputs": partial(freeze_inputs, _EDITS),
    "dimensions": partial(shrink_dimensions, _EDITS),
    "dtypes": partial(simplify_dtypes, _EDITS),
    "arguments": simplify_arguments,
    "values": partial(simplify_values, _EDITS),
}


class TorchReduction(ReducibleForm[TorchSubject]):
    """Fewer calls first, then fewer inputs, outputs, elements, plainer types, arguments and values."""

    def subject(self, case: Case) -> TorchSubject:
        """Return the program with its inputs."""
        if not isinstance(case.program, TorchProgram):
            raise BadInput(f"this reduction takes PyTorch programs, not {case.program.kind}")
        return TorchSubject(case.program, {name: case.inputs[name] for name in case.program.inputs()})

    def simpler(self, candidate: TorchSubject, than: TorchSubject) -> bool:
        """Compare by the first part of the key that differs."""
        return _order_key(candidate) < _order_key(than)

    def size(self, subject: TorchSubject) -> Size:
        """Return the number of calls and the bytes of the JSON."""
        return Size(subject.program.size, 0, len(subject.program.data))

    def digest(self, subject: TorchSubject) -> str:
        """Return a digest of program and values."""
        return hashlib.sha256(subject.identity).hexdigest()[:DIGITS]

    def passes(self, worded: bool = False) -> list[TorchPass]:
        """Return every dimension, in the order of a round."""
        return [ListedPass(name, listed) for name, listed in _LISTED.items()]

    def validator(self, workers: Workers, start: TorchSubject) -> Validator[TorchSubject]:
        """Return eager torch as the validator."""
        return WorkerValidator(workers, start)

    def recorded(
        self, subject: TorchSubject, source: ResolvedTarget | None, workers: Workers
    ) -> TorchSubject:
        """Return the subject with the values and types that eager torch makes on the way."""
        seen = workers.observe(resolve(_RECORDING), subject.program, subject.inputs)
        # A failed recording costs only the edits that need values.
        if not seen.outputs:
            return subject
        listed = json.loads(seen.outputs["types"].tobytes())
        types = {name: TensorType(dtype, tuple(shape)) for name, (dtype, shape) in listed.items()}
        types = {**subject.graph.types, **types}
        values = {name[6:]: value for name, value in seen.outputs.items() if name.startswith("value.")}
        program = subject.program
        if types != subject.graph.types:
            program = TorchProgram.from_graph(replace(subject.graph, types=types), program.name)
        return TorchSubject(program, subject.inputs, values)

    def census(self, subject: TorchSubject) -> Iterator[Part[TorchSubject]]:
        """Yield every part."""
        return torch_parts(subject)


def _order_key(subject: TorchSubject) -> tuple[object, ...]:
    graph = subject.graph
    arrays = [np.asarray(value) for value in subject.inputs.values()]
    stored = [*arrays, *graph.constants.values()]
    arguments = [item for call in graph.calls for item in call.arguments]
    return (
        len(graph.calls),
        len(graph.inputs),
        len(graph.outputs),
        sum(array.size for array in stored),
        sum(DTYPE_RANKS.get(array.dtype.name, len(DTYPE_RANKS)) for array in stored),
        sum(map(argument_weight, arguments)),
        sum(map(value_complexity, stored)),
        # Last, so that two different programs are never equal in the order and every chain ends.
        subject.identity,
    )
