"""The question that a reduction asks again and again: does this subject still show the failure?"""

import math
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import onnx

from opsieve.backends.compare import Comparison, compare
from opsieve.backends.judge.judging_session import declared_dtypes
from opsieve.backends.observation import Observation
from opsieve.backends.target import Target
from opsieve.backends.verdict import KIND_OF_OUTCOME, Mismatch, Verdict
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.data.data_set import write_folder
from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.model.program import OnnxProgram, Program
from opsieve.gen.model.scratch import Scratch
from opsieve.gen.model.structure import all_nodes, check_structure
from opsieve.gen.model.tensors import Value, graph_inputs
from opsieve.reducer.onnx_edit.quant_scales import bad_scale
from opsieve.reducer.problem.graph import shell
from opsieve.reducer.problem.sameness import Failure, builds, differed, ended
from opsieve.reducer.problem.subject import Subject
from opsieve.triage.fingerprint.evidence import NOTHING
from opsieve.triage.fingerprint.fingerprint import fingerprint
from opsieve.triage.fingerprint.program_names import given_names
from opsieve.triage.fingerprint.sameness import Level

ResultKind = Literal["same", "slippage", "gone", "invalid"]
CHECKER = Target("checker")
_MOST_RUNS = 200
_HEAVY = 1 << 20  # bytes of a model that is not sent to the checker as it is
_LARGE = 64 << 10  # bytes of a tensor that is no shape


@dataclass(frozen=True)
class CheckResult:
    """What an interestingness test says of one subject.

    `same`: it shows the failure. `slippage`: it fails otherwise; `key` is then that failure's fingerprint. `gone`: it is well, or
    could not be run. `invalid`: it is no valid model and was not run. `why` is for the journal. `wrong` names the outputs
    that differ, where the failure is a mismatch.
    """

    kind: ResultKind
    why: str = ""
    key: str = ""
    wrong: tuple[str, ...] = ()


class InterestingnessTest(Protocol):
    """Tests subjects, in order."""

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        """A result for each subject; what is not consumed need not have been tested."""


@dataclass(frozen=True)
class TargetTest:
    """One run of the target for each subject, and of the arbiter where the target's answer needs it.

    `arbiter` says what the outputs should be, or that a program is to be accepted; None when nobody can be asked. At the level
    `cure`, `sick` and `well` are the other builds that failed on the whole model and those that did not. With
    `finite`, a mismatch counts only where the right outputs are finite: those of the whole model were.
    """

    workers: Workers
    target: Target
    failure: Failure
    arbiter: Target | None
    level: Level
    sick: tuple[Target, ...] = ()
    well: tuple[Target, ...] = ()
    finite: bool = False

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        tests = [Test(program(subject), subject.inputs) for subject in subjects]
        if self.failure.verdict.kind == "mismatch" and self.arbiter is not None:
            with ThreadPoolExecutor(1) as pool:
                # The arbiter computes beside the target, on a core of its own.
                right = pool.submit(lambda: list(self.workers.observe_many(self._arbiter, tests)))
                left = list(self.workers.observe_many(self.target, tests))
                pairs = zip(subjects, tests, left, right.result(), strict=True)
                for subject, test, got, wanted in pairs:
                    yield self._compared(subject, test, got, wanted)
            return
        for subject, test, got in zip(subjects, tests, self.workers.observe_many(self.target, tests), strict=True):
            yield self._ended(subject, test, got, None)

    def known(self, subject: Subject, got: Observation, wanted: Observation) -> CheckResult:
        """The answer for a subject that the target and the arbiter were already asked about."""
        test = Test(program(subject), subject.inputs)
        if self.failure.verdict.kind == "mismatch":
            return self._compared(subject, test, got, wanted)
        return self._ended(subject, test, got, wanted)

    @property
    def _arbiter(self) -> Target:
        assert self.arbiter is not None
        return self.arbiter

    def _ended(self, subject: Subject, test: Test, got: Observation, wanted: Observation | None) -> CheckResult:
        verdict = ended(got, self.failure.verdict)
        if verdict is None:
            return CheckResult("gone", got.outcome)
        if not self.failure.shown_by(verdict, got, operators(subject), self.level, given_names(subject.model)):
            return self._slippage(verdict, got, subject)
        if self.arbiter is not None and self.level != "loose":
            accepted = wanted or self.workers.observe(self.arbiter, test.program, test.inputs)
            if accepted.outcome in KIND_OF_OUTCOME:
                return CheckResult(
                    "slippage", f"{self.arbiter} does not accept it either: {shown(accepted.message, 200)}"
                )
        return self._cured(test)

    def _compared(self, subject: Subject, test: Test, got: Observation, wanted: Observation) -> CheckResult:
        verdict = ended(got, self.failure.verdict)
        if verdict is not None:
            return self._slippage(verdict, got, subject) if wanted.outcome == "ok" else CheckResult("gone", got.outcome)
        if got.outputs is None or wanted.outputs is None:
            return CheckResult("gone", f"{got.outcome}, {self.arbiter}: {wanted.outcome}")
        if self.finite and not finite(wanted.outputs.values()):
            return CheckResult("gone", f"{self.arbiter} gives NaN or infinity")
        found = compared(subject, got, wanted)
        worst = found.worst
        if worst is None:
            return CheckResult("gone", "it agrees")
        verdict = differed(worst, self.failure.verdict)
        wrong = tuple(name for name in wanted.outputs if name in found.mismatches)
        if not self.failure.shown_by(verdict, got, operators(subject), self.level, given_names(subject.model)):
            other = next((m for m in found.mismatches.values() if self._like(m, subject, got)), None)
            if other is None:
                return self._slippage(verdict, got, subject)
        answer = self._cured(test)
        return CheckResult(answer.kind, answer.why, answer.key, wrong)

    def _like(self, mismatch: Mismatch, subject: Subject, got: Observation) -> bool:
        verdict = differed(mismatch, self.failure.verdict)
        return self.failure.shown_by(verdict, got, operators(subject), self.level, given_names(subject.model))

    def _slippage(self, verdict: Verdict, got: Observation, subject: Subject) -> CheckResult:
        key = fingerprint(verdict, got, operators(subject), NOTHING, given_names(subject.model)).key
        return CheckResult("slippage", shown(got.message or f"{verdict.kind} {verdict.mismatch}", 200), key)

    def _cured(self, test: Test) -> CheckResult:
        if self.level == "cure":
            for build, sick in [*((b, False) for b in self.well), *((b, True) for b in self.sick)]:
                if self.fails(build, test) != sick:
                    return CheckResult("slippage", f"{build} {'is well' if sick else 'fails'} on it")
        return CheckResult("same")

    def fails(self, build: Target, test: Test) -> bool:
        """Whether another build of the compiler fails as well, in whatever way."""
        got = self.workers.observe(build, test.program, test.inputs)
        if self.arbiter is None or got.outputs is None:
            return got.outcome in KIND_OF_OUTCOME
        if build == self.arbiter:
            return False
        wanted = self.workers.observe(self.arbiter, test.program, test.inputs)
        if wanted.outputs is None:
            return False
        return not compare(got.outputs, wanted.outputs, test.program.output_dtypes()).agrees


@dataclass(frozen=True)
class RepeatedTest:
    """A check of a failure that shows only sometimes: `same` once it was seen `sightings` times in `runs` runs.

    A subject that fails with the chance `p` of the whole model is missed with at most the probability that `runs_for` was given;
    one that is accepted was seen to fail, and more than once, so that the chance does not dwindle step by step.
    """

    inner: InterestingnessTest
    runs: int
    sightings: int = 2

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            seen = 0
            for _ in range(self.runs):
                answer = next(iter(self.inner.evaluate([subject])))
                seen += answer.kind == "same"
                if seen == self.sightings or answer.kind == "invalid":
                    break
            yield answer if seen == self.sightings else CheckResult("gone", f"seen {seen} times in {self.runs} runs")


def runs_for(chance: float, sightings: int = 2, miss: float = 0.01) -> int:
    """How many runs show a failure of this chance `sightings` times, but for a probability of `miss`; 200 at most."""
    runs = sightings
    while runs < _MOST_RUNS and _fewer(chance, runs, sightings) > miss:
        runs += 1
    return runs


def _fewer(chance: float, runs: int, sightings: int) -> float:
    """The probability of fewer sightings than that (a binomial tail)."""
    return sum(math.comb(runs, seen) * chance**seen * (1 - chance) ** (runs - seen) for seen in range(sightings))


def cure_set(check: TargetTest, subject: Subject) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    """The other builds of the compiler that fail on a subject, and those that do not."""
    test = Test(program(subject), subject.inputs)
    answers = {build: check.fails(build, test) for build in builds(check.target)}
    return tuple(b for b, bad in answers.items() if bad), tuple(b for b, bad in answers.items() if not bad)


@dataclass(frozen=True)
class ScriptTest:
    """A user's own test: `SCRIPT MODEL INPUTS`, run in an empty folder; exit code 0 means that it is still interesting.

    MODEL is an .onnx file, INPUTS a folder of ONNX's `input_K.pb`. The script runs as the user who starts the reduction; it
    and what it started are killed after `seconds`.
    """

    script: Path
    seconds: float = 60.0

    def evaluate(self, subjects: Sequence[Subject]) -> Iterator[CheckResult]:
        """As `InterestingnessTest.evaluate`."""
        for subject in subjects:
            code = self.run(subject)
            yield CheckResult("same") if code == 0 else CheckResult("gone", f"exit code {code}")

    def run(self, subject: Subject) -> int:
        """The script's exit code; -1 when it took too long. BadInput when it cannot be started."""
        with Scratch() as scratch:
            folder = scratch / "check"
            (folder / "inputs").mkdir(parents=True)
            (folder / "model.onnx").write_bytes(program(subject).data)
            write_folder(folder / "inputs", subject.inputs, graph_inputs(subject.model), "input")
            command = [str(self.script), str(folder / "model.onnx"), str(folder / "inputs")]
            try:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(
                    f"the check {shown(self.script, 120)} cannot be started: {error.strerror or error}; is it executable?"
                ) from None
            try:
                return process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                return -1
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Validator:
    """Says of a candidate, before it costs a check, what is wrong with it."""

    def __init__(self, workers: Workers, start: Subject):
        self._workers = workers
        self._scaled = not bad_scale(start)
        # A model that ONNX's checker refuses can be a failing model all the same; then structure is all that can be asked for.
        self.strict = not self._complaint(start)

    def complaints(self, subjects: Sequence[Subject]) -> list[str]:
        """What is wrong with each subject, "" for a valid one."""
        found = [structural(subject) or self._degenerate(subject) for subject in subjects]
        if not self.strict:
            return found
        sound = [index for index, complaint in enumerate(found) if not complaint]
        tests = [Test(_light(subjects[index].model), {}, as_is=True) for index in sound]
        for index, answer in zip(sound, self._workers.observe_many(CHECKER, tests), strict=True):
            found[index] = "" if answer.outcome in ("ok", "environment") else shown(answer.message, 200) or "refused"
        return found

    def _degenerate(self, subject: Subject) -> str:
        operator = bad_scale(subject) if self._scaled else ""
        return f"a scale of {operator} is not positive and finite" if operator else ""

    def _complaint(self, subject: Subject) -> str:
        answer = self._workers.observe(CHECKER, _light(subject.model), {})
        return "" if answer.outcome in ("ok", "environment") else answer.message or "refused"


def structural(subject: Subject) -> str:
    """What is wrong with a subject's structure, "" when nothing is; pure Python."""
    try:
        check_structure(subject.model)
    except BadInput as error:
        return str(error)
    wanted = graph_inputs(subject.model).keys()
    return "" if wanted == subject.inputs.keys() else "its inputs and their values disagree"


def program(subject: Subject) -> Program:
    """The subject's model, serialised; equal models give equal bytes."""
    return OnnxProgram(subject.model.SerializeToString(deterministic=True))


def _light(model: onnx.ModelProto) -> Program:
    """A model for the checker, which looks at no values: large stored tensors are inputs of their type."""
    if model.ByteSize() < _HEAVY:
        return OnnxProgram(model.SerializeToString())
    light = shell(model)
    graph = light.graph
    for part in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, part).extend(getattr(model.graph, part))
    known = {info.name for info in graph.input}
    for tensor in model.graph.initializer:
        if tensor.ByteSize() < _LARGE:
            graph.initializer.append(tensor)
        elif tensor.name not in known:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    light.functions.extend(model.functions)
    return OnnxProgram(light.SerializeToString())


def operators(subject: Subject) -> list[str]:
    """The operators of a subject, bodies included, each once."""
    return sorted({node.op_type for node in all_nodes(subject.model.graph.node)})


def finite(values: Iterable[Value]) -> bool:
    """Whether no value, as far as it is of a float type, has NaN or infinity in it."""
    for value in values:
        if isinstance(value, list):
            if not finite(value):
                return False
        elif isinstance(value, np.ndarray) and value.dtype.kind not in "OUSMmiub":
            with np.errstate(all="ignore"):
                wide = value if value.dtype.kind in "fc" else value.astype(np.float64)
            if not np.isfinite(wide).all():
                return False
    return True


def compared(subject: Subject, got: Observation, wanted: Observation) -> Comparison:
    """How two observations of one subject differ."""
    return compare(got.outputs or {}, wanted.outputs or {}, declared_dtypes(subject.model))
