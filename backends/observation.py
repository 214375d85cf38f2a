"""The result of one run of one program on one target."""

from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal[
    # It ran to its end and gave outputs
    "ok",
    # The compiler reports an invalid program.
    "rejected",
    # The compiler reports a missing operator, kernel, type or feature.
    "unsupported",
    # The run was impossible: an opset newer than the release, a missing package.
    "environment",
    # Any other exception
    "error",
    # The process died
    "crash",
    # The time limit passed
    "hang",
    # The memory limit was reached
    "out-of-memory",
]
Stage = Literal["import", "compile", "run"]
# Exceptions of observations that a user's oracle made: it objects to the outputs, or it was not heard.
OBJECTION, UNHEARD = "opsieve.OracleObjection", "opsieve.OracleUnheard"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack, innermost last as in a Python traceback.

    A Python frame has `file`, `line` and `function` (its qualified name where the interpreter knows it); a
    native frame has `module` (its file's name), `offset` into the module and `build_id`, and a `function`
    only where there is a symbol.
    """

    language: Literal["python", "native"]
    function: str = ""
    file: str = ""
    line: int = 0
    module: str = ""
    offset: int = 0
    build_id: str = ""


@dataclass(frozen=True, slots=True)
class Hazard:
    """A place where ONNX leaves the result of a program open for the values it met (an integer division by
    zero, say).
    """

    rule: str
    node: str
    operator: str
    # Graph outputs that depend on it
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """The outcome of a program on a target, with the facts to judge and to explain it.

    `outputs` maps output names to values (see `opsieve.backends.workers.inside.wire`); None unless the
    outcome is `ok`. `exception` is the qualified name of the exception's class. `signal` is the number of the
    signal that killed the process, 0 otherwise. `seconds` is wall time by stage, `cpu_seconds` the CPU time
    of all threads and finished child processes in one run (the median of several), 0 if none ended;
    `peak_memory` the worker's resident peak in bytes. `log` is the printed text, bounded. `reached` holds the
    numbers of the probes that this run was the first of its campaign to reach, None where none were planted.
    `notes` say what was altered to be able to ask (an IR version lowered, say). `knobs` are the determinism
    settings in force.
    """

    target: str
    version: str
    outcome: Outcome
    stage: Stage = "run"
    outputs: dict[str, Any] | None = None
    exception: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    traceback: str = ""
    signal: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    log: str = ""
    notes: tuple[str, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    knobs: dict[str, str] = field(default_factory=dict)
    reached: tuple[int, ...] | None = None

    @property
    def total_seconds(self) -> float:
        """Wall time over all stages."""
        return sum(self.seconds.values())
