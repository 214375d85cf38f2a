"""Judge models on targets, as `opsieve run` does: open, check, run, compare, and fingerprint and save each
failure.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from opsieve.backends import compare, record
from opsieve.backends.judge import divergence, oracle_names
from opsieve.backends.judge.judge import Judged, judge_case
from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.probing.chosen_values import choose_values
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.programs import add_script, get_checker
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, open_case, save
from opsieve.gen.errors import BadInput
from opsieve.gen.model.files import reason
from opsieve.gen.model.printable import facts_table
from opsieve.gen.rewrites.relation import list_relations, rewrite_program
from opsieve.gen.values.values import SEARCH, SPECIAL, named_values
from opsieve.triage.fingerprint.sameness import make_failure

# Models judged together: enough to fill the workers' frames, few enough to keep in memory.
GROUP = 64
_LIMITS = Limits()
_NO_CHOICE = oracle_names.OracleChoice()


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """The options for judging models.

    `values` is a word of gen/values or ""; `tolerance` is (relative, absolute) and replaces the policy's;
    `oracles` are additional ones; failures are written as case folders into `save`. With `locate` the first
    node whose output is wrong is searched where outputs are.
    """

    targets: tuple[str, ...] = ()
    inputs: Path | None = None
    expected: Path | None = None
    values: str = ""
    seed: int = 0
    tolerance: tuple[float, float] | None = None
    # Whether each target also runs equivalent variants of programs.
    metamorphic: bool = False
    oracles: oracle_names.OracleChoice = _NO_CHOICE
    check: bool = True
    save: Path | None = None
    limits: Limits = _LIMITS
    offline: bool = False
    locate: bool = False


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """One model on one target; `located` where that was asked for."""

    model: str
    case: Case
    target: ResolvedTarget
    judged: Judged
    located: divergence.Divergence | None = None

    def _repr_html_(self) -> str:
        """The verdict and the program, for notebooks."""
        facts = self.facts()
        kind = f" ({facts['kind']} at {facts['stage'] or 'an unknown stage'})" if facts["kind"] else ""
        names = ("model", "target", "version", "reason", "message", "blame", "fingerprint")
        about = [
            ("verdict", f"{facts['verdict']}{kind}"),
            *((name, str(facts[name] or "")) for name in names),
        ]
        return facts_table(about) + (self.case._repr_html_() if facts["verdict"] == "fail" else "")

    def facts(self) -> dict[str, Any]:
        """Return the keys of `opsieve run --json` (docs/reference/json.md)."""
        verdict, observation = self.judged.verdict, self.judged.observations[0]
        key = ""
        if verdict.verdict == "fail":
            key = make_failure(verdict, observation, self.case.program).fingerprint.key
        return {
            "model": self.model,
            "target": self.target.display,
            "verdict": verdict.verdict,
            "kind": verdict.kind,
            "stage": verdict.stage,
            "message": verdict.message,
            "fingerprint": key,
            "seconds": round(observation.total_seconds, 6),
            "reason": verdict.reason,
            "blame": verdict.blame,
            "rules": list(verdict.rules),
            "oracles": list(verdict.oracles),
            # The name that this key had before 0.2, for one minor version.
            "voices": list(verdict.oracles),
            "version": observation.version,
            "notes": list(observation.notes),
            "inputs": self.case.origin.inputs,
            **({} if self.located is None else {"located": asdict(self.located)}),
        }


@dataclass(frozen=True, slots=True)
class RefusedModel:
    """A model that cannot be judged, and why; `fault` is an error of opsieve itself."""

    model: str
    reason: str
    # It was opsieve that could not, and this is why
    fault: Exception | None = None


def judge_models(
    models: Sequence[Path], request: JudgeRequest, say: Callable[[str], None], group: int = GROUP
) -> Generator[JudgeResult | RefusedModel]:
    """Judge every model on every target, in order and `group` models at a time; diagnostics go to `say`.

    Without targets in the request each case runs on the one that it names.

    Raises:
        BadInput: For unknown targets of the request, or unknown values.
    """
    values = ""
    if request.values:
        if request.expected is not None:
            raise BadInput("--expected belongs to the inputs as they are: pass either --expected or --values")
        values = named_values(request.values, (SEARCH, SPECIAL))
    targets = request.oracles.expand_targets([resolve(text) for text in request.targets])
    with Workers(request.limits, offline=request.offline, say=say) as workers:
        cache = ObservationCache(workers)
        for first in range(0, len(models), group):
            cases, refused = _open_cases(models[first : first + group], request, cache)
            yield from refused
            if values:
                cases = choose_values(cases, values, request.seed, workers, say)
            for found, some in groupby(cases, lambda each: _find_targets(each, targets, request)):
                if isinstance(found, RefusedModel):
                    yield found
                else:
                    yield from _judge_all(list(some), found, request, cache)
            # Observations hold outputs; a folder may have thousands of models.
            cache.forget_all()


def choose_target(case: Case, offline: bool) -> str:
    """Return the target that a case names, else onnxruntime. Raises BadInput for one that needs consent."""
    return named_by_file(case.parameters.get("target") or "onnxruntime", offline, case.origin.versions)


def _find_targets(
    named: tuple[str, Case], targets: list[ResolvedTarget], request: JudgeRequest
) -> list[ResolvedTarget] | RefusedModel:
    """Return the targets; without any, the case's own with the additions of the oracles, or why it cannot be
    used.
    """
    try:
        return targets or request.oracles.expand_targets([resolve(choose_target(named[1], request.offline))])
    except BadInput as error:
        return RefusedModel(named[0], f"{named[0]}: {error}")


def _open_cases(
    paths: Sequence[Path], request: JudgeRequest, cache: ObservationCache
) -> tuple[list[tuple[str, Case]], list[RefusedModel]]:
    """Open the cases in `paths` with their names; unusable ones are returned as refusals."""
    opened, refused = [], []
    for path in paths:
        try:
            opened.append((str(path), open_case(path, request.inputs, request.expected, request.seed)))
        except Exception as error:  # noqa: BLE001
            # A fault of ours on one model costs the others nothing
            refused.append(_refuse(str(path), error, "read"))
    if not request.check:
        return opened, refused
    by_checker: dict[ResolvedTarget, list[Test]] = {}
    for _, case in opened:
        if (checker := get_checker(case.program)) is not None:
            by_checker.setdefault(checker, []).append(Test(case.program, case.inputs))
    # Their own checks report their errors.
    with suppress(Exception):
        cache.prefetch(by_checker.items())
    cases = []
    for name, case in opened:
        try:
            _check_validity(name, case, cache)
            cases.append((name, case))
        except Exception as error:  # noqa: BLE001  as above
            refused.append(_refuse(name, error, "check"))
    return cases, refused


def _check_validity(name: str, case: Case, cache: ObservationCache) -> None:
    """Raise BadInput for a program that the checker of its IR refuses, or does not judge."""
    checker = get_checker(case.program)
    # It is invalid on purpose
    if checker is None or case.program.fault is not None:
        return
    answer = cache.observe(checker, case.program, case.inputs)
    why = " ".join(answer.message.split())[:300]
    if answer.outcome in ("rejected", "error"):
        raise BadInput(
            f"{name} is not a valid ONNX model ({why}); fix it, or pass --no-check to run it anyway."
        )
    if answer.outcome == "hang":
        raise BadInput(f"{name} was not checked: onnx's checker gave {why}; --no-check runs it anyway.")
    # The model may be sound, and this machine short of memory, processes or files.
    if answer.outcome not in ("ok", "environment"):
        raise BadInput(
            f"{name} was not checked: onnx's checker ended in a {answer.outcome} ({why}); this machine may be"
            " short of memory, processes or files; --no-check runs it anyway."
        )


def _refuse(name: str, error: Exception, act: str) -> RefusedModel:
    """Return the refusal of a model, with the exception if it is a fault of opsieve."""
    if isinstance(error, BadInput):
        return RefusedModel(name, str(error))
    # This machine is short of something
    if isinstance(error, OSError):
        return RefusedModel(name, f"opsieve could not {act} {name}: {reason(error)}")
    return RefusedModel(name, f"opsieve failed to {act} it", error)


def _judge_all(
    cases: Sequence[tuple[str, Case]],
    targets: Sequence[ResolvedTarget],
    request: JudgeRequest,
    cache: ObservationCache,
) -> Iterator[JudgeResult | RefusedModel]:
    policy = replace(compare.POLICY, tolerance=request.tolerance)
    tests = [Test(case.program, case.inputs) for _, case in cases]
    # Their own checks report their errors.
    with suppress(Exception):
        cache.prefetch([(target, tests) for target in dict.fromkeys([*targets, FLOAT64])])
    for name, case in cases:
        try:
            yield from _judge_one(name, case, targets, request, cache, policy)
        except Exception as error:  # noqa: BLE001
            # A fault of ours on one model costs the others nothing
            yield _refuse(name, error, "judge")


def _judge_one(
    name: str,
    case: Case,
    targets: Sequence[ResolvedTarget],
    request: JudgeRequest,
    cache: ObservationCache,
    policy: compare.Policy,
) -> Iterator[JudgeResult]:
    for target in (each for one in targets for each in _iter_variants(one, case, request.metamorphic)):
        judged = judge_case(case, target, cache, policy, request.oracles)
        if request.save is not None and judged.verdict.verdict == "fail":
            _save_failure(request.save, name, case, target, judged, cache.workers)
        located = None
        if request.locate:
            problem = f"no output is wrong: the verdict is {judged.verdict.verdict}"
            located, given = divergence.Divergence(problem=problem), judged.observations[0].outputs
            if judged.verdict.mismatch is not None and given is not None:
                located = divergence.locate_divergence(
                    case.program, case.inputs, target, given, cache, policy
                )
        yield JudgeResult(name, case, target, judged, located)


def _iter_variants(target: ResolvedTarget, case: Case, metamorphic: bool) -> Iterator[ResolvedTarget]:
    """Yield the target, and with `metamorphic` the target behind every rewrite that fits the program."""
    yield target
    for name in list_relations(case.program.ir) if metamorphic and not target.rewrite else ():
        if rewrite_program(case.program, case.inputs, name) is not None:
            yield target.with_options(rewrite=name)


def _save_failure(
    folder: Path, model: str, case: Case, target: ResolvedTarget, judged: Judged, workers: Workers
) -> None:
    """Write a failure as a case folder: the case, the observations, and the settings."""
    parameters = {**case.parameters, **judged.observations[0].knobs, "target": target.display}
    if oracle := oracle_names.name_optional_oracle(judged.verdict, case.program):
        parameters[oracle_names.ORACLE] = oracle
    text = f"{Path(model).stem or 'model'}-{target.display}"
    # A target's text has colons, commas and slashes, which file systems do not all take.
    name = "".join(c if c.isalnum() or c in "-." else "_" for c in text)[:120]
    save(add_script(replace(case, parameters=parameters), workers), folder / name)
    record.write_observations(folder / name, judged.observations)
