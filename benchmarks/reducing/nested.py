"""Generated failures in two of Scan, Loop, If and functions, one inside the other: does `reduce` bring the
trigger out?

The trigger is a chain of two operators over float[2, 3] or float[3]; every level has operators of its own
around it. The known minimum is the trigger's two nodes in the main graph.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.problem.order import count_nodes
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure

KINDS = ("If", "Loop", "Scan", "function")
_TRIGGERS = ("Tanh", "Exp", "Sin", "Cos", "Softsign")
_PLAIN = ("Neg", "Sigmoid", "Identity", "Softplus", "HardSigmoid")
_FAULTS = ("crash", "error", "wrong")
_ROWS = 2


@dataclass(frozen=True, slots=True)
class NestedResult:
    """One model: where its trigger lay, outermost first, and what is left of it."""

    seed: int
    kinds: str
    fault: str
    operators: tuple[str, ...]
    is_minimum: bool
    checks: int
    said: str = ""


def reduce_all(most: int, seed: int, workers: Workers) -> Iterator[NestedResult]:
    """So many models, one for each seed from `seed` on whose fault shows at the outputs."""
    done = 0
    while done < most:
        found = _one(seed, workers)
        seed += 1
        if found is not None:
            done += 1
            yield found


def _one(seed: int, workers: Workers) -> NestedResult | None:
    draw = random.Random(seed)
    kinds = (draw.choice(KINDS), draw.choice(KINDS))
    trigger, fault = draw.sample(_TRIGGERS, 2), draw.choice(_FAULTS)
    case = nested_case(draw, kinds, trigger)
    try:
        premise = find(case, [resolve(f"fake:{fault}@{'>'.join(trigger)}")], None, workers)
    except NoFailure:  # a wrong value can be lost on its way, and a body that is not run fails nowhere
        return None
    form = OnnxReduction()
    result = reduce_failure(
        form, form.subject(case), premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    operators = tuple(result.best.program.operators())
    minimum = operators == tuple(trigger) and count_nodes(result.best.model) == (2, 0) and result.same
    said = "" if result.minimal else "not minimal, it says"
    return NestedResult(seed, " > ".join(kinds), fault, operators, minimum, result.checks, said)


def nested_case(draw: random.Random, kinds: Sequence[str], trigger: Sequence[str]) -> Case:
    """A model whose trigger lies in bodies of these kinds, the outermost first."""
    made = _Maker(draw)
    nodes, last = made.around(
        lambda value, shape: made.body(list(kinds), value, shape, trigger), "x", (_ROWS, 3)
    )
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ROWS, 3]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "nested", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=made.functions)
    onnx.checker.check_model(model)
    x = np.linspace(-1, 1, _ROWS * 3, dtype=np.float32).reshape(_ROWS, 3)
    return Case(OnnxProgram(model.SerializeToString()), {"x": x})


Nodes = list[onnx.NodeProto]


class _Maker:
    """Names, functions, and the bodies of each kind."""

    def __init__(self, draw: random.Random):
        self.draw = draw
        self.functions: list[onnx.FunctionProto] = []
        self._count = 0

    def name(self) -> str:
        """One that nothing has yet."""
        self._count += 1
        return f"t{self._count}"

    def around(self, inside, value: str, shape: tuple[int, ...]) -> tuple[Nodes, str]:  # type: ignore[no-untyped-def]
        """Plain operators, what `inside` makes, and plain operators behind it."""
        before, at = self.plain(value)
        middle, at = inside(at, shape)
        after, at = self.plain(at)
        return [*before, *middle, *after], at

    def plain(self, value: str) -> tuple[Nodes, str]:
        """Up to three unary operators one behind the other."""
        nodes: Nodes = []
        for _ in range(self.draw.randint(1, 3)):
            nodes.append(helper.make_node(self.draw.choice(_PLAIN), [value], [value := self.name()]))
        return nodes, value

    def body(
        self, kinds: list[str], value: str, shape: tuple[int, ...], trigger: Sequence[str]
    ) -> tuple[Nodes, str]:
        """A node of the first kind with all the others in it; without kinds the trigger."""
        if not kinds:
            nodes: Nodes = []
            for operator in trigger:
                nodes.append(helper.make_node(operator, [value], [value := self.name()]))
            return nodes, value
        kind, *rest = kinds
        if kind == "Scan" and len(shape) < 2:  # there is nothing left to scan
            kind = "Loop"
        make = {"If": self._branch, "Loop": self._loop, "Scan": self._scan, "function": self._function}[kind]
        return make(lambda at, inner: self.body(rest, at, inner, trigger), value, shape)

    def _branch(self, inside, value: str, shape: tuple[int, ...]) -> tuple[Nodes, str]:  # type: ignore[no-untyped-def]
        flag, result = self.name(), self.name()
        taken, end = self.around(inside, value, shape)
        other, otherwise = self.plain(value)
        graphs = [
            helper.make_graph(
                nodes, "branch", [], [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)]
            )
            for nodes, last in ((taken, end), (other, otherwise))
        ]
        constant = helper.make_node("Constant", [], [flag], value=numpy_helper.from_array(np.array(True)))
        return [
            constant,
            helper.make_node("If", [flag], [result], then_branch=graphs[0], else_branch=graphs[1]),
        ], result

    def _loop(self, inside, value: str, shape: tuple[int, ...]) -> tuple[Nodes, str]:  # type: ignore[no-untyped-def]
        turn, go, goes, state = (self.name() for _ in range(4))
        nodes, end = self.around(inside, state, shape)
        nodes = [helper.make_node("Identity", [go], [goes]), *nodes]
        ins = [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(go, TensorProto.BOOL, []),
            helper.make_tensor_value_info(state, TensorProto.FLOAT, shape),
        ]
        outs = [
            helper.make_tensor_value_info(goes, TensorProto.BOOL, []),
            helper.make_tensor_value_info(end, TensorProto.FLOAT, shape),
        ]
        count, begin, result = self.name(), self.name(), self.name()
        turns = numpy_helper.from_array(np.array(self.draw.randint(1, 3), np.int64))
        body = helper.make_graph(nodes, "loop", ins, outs)
        loop = helper.make_node("Loop", [count, begin, value], [result], body=body)
        # With a condition: without one onnx's evaluator, which `fake` runs, is wrong by itself, and that is
        # another bug.
        flag = helper.make_node("Constant", [], [begin], value=numpy_helper.from_array(np.array(True)))
        return [helper.make_node("Constant", [], [count], value=turns), flag, loop], result

    def _scan(self, inside, value: str, shape: tuple[int, ...]) -> tuple[Nodes, str]:  # type: ignore[no-untyped-def]
        row, result = self.name(), self.name()
        nodes, end = self.around(inside, row, shape[1:])
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape[1:]) for name in (row, end)]
        body = helper.make_graph(nodes, "scan", infos[:1], infos[1:])
        return [helper.make_node("Scan", [value], [result], body=body, num_scan_inputs=1)], result

    def _function(self, inside, value: str, shape: tuple[int, ...]) -> tuple[Nodes, str]:  # type: ignore[no-untyped-def]
        given = self.name()
        nodes, end = self.around(inside, given, shape)
        name, result = f"f{len(self.functions)}", self.name()
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
        self.functions.append(helper.make_function("local", name, [given], [end], nodes, opsets))
        return [helper.make_node(name, [value], [result], domain="local")], result
