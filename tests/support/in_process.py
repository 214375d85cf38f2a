"""Labs for tests of the judge: one that runs backends in this process, one that answers from a table."""

from collections.abc import Callable
from typing import Any

from opsieve.backends.compilers import checker, ort
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.protocol import Request
from opsieve.backends.reference import reference
from opsieve.backends.registry import ResolvedTarget
from opsieve.gen.model.program import Program

BACKENDS = {"onnxruntime": ort.BACKEND, "reference": reference.BACKEND, "checker": checker.BACKEND}


class InProcessLab:
    """Runs onnxruntime and the reference without isolation; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        self.asked.append(str(target) + (" fresh" if fresh else ""))
        backend = BACKENDS[target.name]
        stages = ["import"]
        request = Request(program.model, target.options, inputs, stages.append)
        outcome: Any = "ok"
        outputs, exception, message = None, "", ""
        try:
            run = backend.prepare(request)
            stages.append("run")
            outputs = run(inputs)
        except Exception as error:  # noqa: BLE001  what a compiler raises is what is observed
            exception, message = f"{type(error).__module__}.{type(error).__qualname__}", str(error)
            outcome = backend.classify(stages[-1], exception, message)
        hazards = tuple(
            Hazard(h["rule"], h["node"], h["operator"], tuple(h["outputs"])) for h in request.hazards
        )
        return Observation(
            str(target), "0", outcome, stages[-1], outputs, exception, message,
            notes=tuple(request.notes), hazards=hazards,
        )  # fmt: skip


class TableLab:
    """Answers from a table: target -> observation, or a function of (turn, program, inputs) that makes
    one.
    """

    def __init__(self, answers: dict[str, Observation | Callable[[int], Observation]]) -> None:
        self.answers, self.asked = answers, list[str]()

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        turn = sum(name.removesuffix(" fresh") == str(target) for name in self.asked)
        self.asked.append(str(target) + (" fresh" if fresh else ""))
        answer = self.answers.get(str(target), Observation(str(target), "0", "unsupported"))
        return answer(turn) if callable(answer) else answer
