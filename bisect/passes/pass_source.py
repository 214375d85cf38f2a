"""Switch off passes of a backend to attribute a failure to them.

A backend takes part through its options alone: one of `disabled_optimizers`, `disabled` or `skip` takes names
of passes joined with `+`, and `trace=on` prints which ran (`backends/stacks/frame_lines.py`). If its fact
`counts_applications` is true, it takes `PASS@2` too. Options whose values are `on` and `off`, `on` by
default, are tried like passes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsieve.backends.compare import POLICY, Policy, compare
from opsieve.backends.judge.oracles import NATIVE
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, names, plugin
from opsieve.backends.stacks.frame_lines import PassTrace, choose_skip_option, read_trace
from opsieve.backends.verdict import leave_target_out
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import COMPILED
from opsieve.bisect.passes.attribution import Attribution, find_guilty_passes
from opsieve.bisect.search.search import TestResult
from opsieve.bisect.sources.outcome import VersionOutcome, classify_outcome, evaluate, evaluate_run
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, NoFailure, Unjudged
from opsieve.gen.model.program import Program

# Bytes of a model on which the reference costs more than all probes
_LARGE = 10_000
# Judgements of a build that must all pass before a failure that comes and goes is taken to be cured.
_TURNS = 4
# Backends with levels between none and all: the option and its values, each of which does what the one before
# does, and more.
_LADDERS = {
    "onnxruntime": ("level", ("disable_all", "basic", "extended", "all")),
    "inductor": ("level", ("off", "eager", "aot_eager", "aot_eager_decomp_partition", "inductor")),
}


@dataclass(frozen=True, slots=True)
class Blamed:
    """An attribution, the failure that it explains, and another failure that remains without optimisation."""

    attribution: Attribution
    wanted: VersionOutcome
    beneath: VersionOutcome | None


def find_skip_option(backend: str) -> str:
    """Return the backend's option that takes the passes to skip, or ""."""
    options = plugin(backend).facts.options
    return choose_skip_option(options) if "trace" in options else ""


def list_switches(backend: str) -> tuple[str, ...]:
    """List the options that switch off a part of the backend, except one that switches off everything."""
    facts = plugin(backend).facts
    return tuple(
        name
        for name, legal in facts.options.items()
        if legal == ("on", "off") and "off" not in (facts.baseline.get(name), facts.unchanged.get(name))
    )


def list_attributable() -> tuple[str, ...]:
    """List the backends whose passes, or parts, can be switched off."""
    return tuple(name for name in names() if find_skip_option(name) or list_switches(name))


def blame_passes(
    case: Case, target: ResolvedTarget, lab: ObservationCache, policy: Policy = POLICY
) -> Blamed:
    """Find the guilty passes for the failure of a case on a target.

    Each probe runs in a process of its own, so a pass whose skipping crashes the compiler costs no more than
    any other. The judge evaluates a target only if the outcome is not obvious. A compiler that dies or raises
    is recognised by that, and one that returns outputs is past such a failure; the reference, which is slow
    on a large model, then runs once at most.

    Raises:
        BadInput: If the backend's passes cannot be switched off from here.
        NoFailure: If the case passes on the target.
    """
    variants = _Variants(case, target, lab)
    plain = _find_plain_failure(case, target, variants, lab)
    wanted = plain or evaluate(case, target, variants, policy)
    # Without a repetition here, a failure seen in every second run would end every second attribution.
    for _ in range(_TURNS - 1):
        if wanted.state == "bad":
            break
        # A user has seen it fail: one run that passes does not settle it.
        variants.forget_run(target)
        wanted = replace(evaluate(case, target, variants, policy), flaky=True)
    if wanted.state != "bad":
        raise (NoFailure if wanted.state == "good" else Unjudged)(
            f"{target.display}: {'pass' if wanted.state == 'good' else wanted.symptom}:"
            f" {leave_target_out(wanted.text, target.display)}"
        )
    # Checked after the run, because "it passes" is the more useful answer for a case that does not fail.
    if not (find_skip_option(target.name) or list_switches(target.name)):
        raise BadInput(
            f"passes of {target.name} cannot be switched off from here;"
            f" {', '.join(list_attributable())} can be"
        )

    # A probe that only compiles spares the kernels and the judge, the larger part on a big model.
    compiling = variants.is_compile_failure(wanted)
    unoptimised: list[VersionOutcome] = []

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        variant, lowest = variants.get_target(level, off), level == variants.levels[0]
        seen = _evaluate_compiled(case, variant, wanted, variants) if compiling and not lowest else None
        seen = seen or _evaluate_variant(case, variant, wanted, variants, policy, lowest and plain is None)
        result = classify_outcome(seen, wanted)
        # One bad run proves that the variant still fails, whereas a good run of a flaky failure may be luck.
        for _ in range(_TURNS - 1 if wanted.flaky else 0):
            if result is TestResult.BAD:
                break
            variants.forget_run(variant)
            seen = evaluate(case, variant, variants, policy)
            result = classify_outcome(seen, wanted)
        if level == variants.levels[0] and len(variants.levels) > 1:
            unoptimised.append(seen)
        return result

    counted = target.facts.counts_applications
    # `NAME:ARGUMENT`; `=OPTION:VALUE` is no pass.
    own = [item.partition(":")[0] for item in case.program.passes if not item.startswith("=")]
    found = find_guilty_passes(
        variants.levels,
        probe,
        variants.trace_passes,
        variants.switches,
        counted,
        own,
        converts=bool(target.facts.unchanged),
    )
    if found.answer == "does-not-fail":
        raise NoFailure(f"{target.display}: it failed once, and not again: {wanted.text}")
    # Two bugs in one model: without optimisation it fails in another way, which the answer must not hide.
    beneath = next((seen for seen in unoptimised if seen.state == "bad" and seen.trait != wanted.trait), None)
    return Blamed(found, wanted, beneath)


def _find_plain_failure(
    case: Case, target: ResolvedTarget, variants: "_Variants", lab: ObservationCache
) -> VersionOutcome | None:
    """Recognise a failure that needs no judge: the compiler dies or raises on a large model, twice.

    Its unoptimised build must succeed. The judge would run the reference to look for undefined behaviour,
    which takes seconds on a large model.
    """
    baseline = target.baseline
    # On a small model the judge costs little and tells more.
    if baseline is None or case.program.byte_size < _LARGE:
        return None
    found = evaluate_run(
        case, target, variants.observe(target, case.program, case.inputs), variants, "optimiser"
    )
    if found is None or variants.observe(baseline, case.program, case.inputs).outputs is None:
        return None
    # A second time in a fresh process: a flaky failure needs the judge.
    again = evaluate_run(
        case, target, lab.observe(target, case.program, case.inputs, fresh=True), variants, "optimiser"
    )
    return found if again is not None and again.key == found.key else None


def _evaluate_variant(
    case: Case,
    target: ResolvedTarget,
    wanted: VersionOutcome,
    variants: "_Variants",
    policy: Policy,
    unoptimised: bool,
) -> VersionOutcome:
    """Evaluate a variant, with the judge only if a run of it alone is ambiguous.

    Outputs are compared only for the `unoptimised` variant: a failure of another kind may lie beneath the
    followed one. On a large model this comparison is left out.
    """
    # Wrong values can only be recognised by the reference.
    if wanted.stage == "done" or wanted.flaky:
        return evaluate(case, target, variants, policy)
    got = variants.observe(target, case.program, case.inputs)
    ended = evaluate_run(case, target, got, variants)
    if ended is not None and ended.trait == wanted.trait:
        return ended
    if got.outputs is None:
        return evaluate(case, target, variants, policy)
    if unoptimised:
        right = (
            variants.observe(NATIVE, case.program, case.inputs).outputs
            if case.expected is None
            else case.expected
        )
        if right is None or not compare(got.outputs, right, case.program.output_dtypes(), policy).agrees:
            return evaluate(case, target, variants, policy)
    return VersionOutcome("good", symptom="ok", text=f"{target.display} gives outputs")


def _evaluate_compiled(
    case: Case, target: ResolvedTarget, wanted: VersionOutcome, variants: "_Variants"
) -> VersionOutcome | None:
    """Evaluate a variant that is compiled but not run; None if that is ambiguous."""
    got = variants.observe_compilation(target)
    ended = evaluate_run(case, target, got, variants)
    if ended is not None:
        return ended if ended.trait == wanted.trait else None
    return (
        None
        if got.outputs is None
        else VersionOutcome("good", symptom="ok", text=f"{target.display} compiles it")
    )


class _Variants:
    """A target with passes off, and a lab that observes each variant in a fork of its own, so that workers do
    not pile up.
    """

    def __init__(self, case: Case, target: ResolvedTarget, lab: ObservationCache):
        self._case, self._target, self._lab = case, target, lab
        self._skip = find_skip_option(target.name)
        self._known: dict[ResolvedTarget, Observation] = {}
        self._off = tuple(name for name in target.options.get(self._skip, "").split("+") if name)
        self._steps = self._list_levels(target.facts.baseline)
        self.levels = tuple(self._steps)
        self.switches = tuple(name for name in list_switches(target.name) if target.options[name] == "on")

    def _list_levels(self, baseline: Mapping[str, str]) -> dict[str, ResolvedTarget]:
        """Return targets from no optimisation to the target itself, by name."""
        option, ladder = _LADDERS.get(self._target.name, ("", ()))
        level = self._target.options[option] if ladder else ""
        if level in ladder:
            steps = ladder[: ladder.index(level) + 1]
            return {step: self._target.with_options(**{option: step}) for step in steps}
        # A backend without named levels has two steps: everything off, and the target as it is.
        unoptimised = self._target.with_options(**baseline) if baseline else self._target
        return (
            {"none": unoptimised, "target": self._target}
            if unoptimised != self._target
            else {"target": self._target}
        )

    def get_target(self, level: str, off: tuple[str, ...]) -> ResolvedTarget:
        """Return the target at a level with passes off."""
        if not off:
            return self._steps[level]
        # A switch has an option of its own; all other names share the option that takes a list.
        changes = {name: "off" for name in off if name in self.switches}
        named = [name for name in off if name not in changes]
        if named:
            changes[self._skip] = "+".join((*self._off, *named))
        return self._steps[level].with_options(**changes)

    def trace_passes(self, level: str, off: tuple[str, ...]) -> PassTrace:
        """Return which passes run and act at a level; the trace is empty if the backend has no option
        for it.
        """
        if not self._skip:
            return PassTrace()
        target = self.get_target(level, off).with_options(trace="on")
        seen = self.observe(target, self._case.program, self._case.inputs)
        return read_trace(seen.log, seen.outcome in ("crash", "hang", "out-of-memory"))

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        """Observe a program for the judge; the case itself on the searched backend runs in a fork."""
        of_case = program == self._case.program and inputs is self._case.inputs
        if fresh or repeat or target.name != self._target.name or not of_case:
            return self._lab.observe(target, program, inputs, fresh=fresh, repeat=repeat)
        if target not in self._known:
            # Kept by target: the judge asks for the same run several times, and each costs a fork.
            self._known[target] = self._lab.observe(target, program, inputs, fresh=True)
        return self._known[target]

    def forget_run(self, target: ResolvedTarget) -> None:
        """Run the case on a target anew the next time, because its failure comes and goes."""
        self._known.pop(target, None)

    def observe_compilation(self, target: ResolvedTarget) -> Observation:
        """Observe the case when it is only compiled."""
        return self._lab.observe(target, self._case.program, self._case.inputs, fresh=True, repeat=COMPILED)

    def is_compile_failure(self, wanted: VersionOutcome) -> bool:
        """Whether the failure shows without running the program, so that probes need not run it."""
        # A flaky compilation needs the judge's repeated runs, which a compile-only probe leaves out.
        if wanted.stage != "compile" or wanted.flaky:
            return False
        ended = evaluate_run(self._case, self._target, self.observe_compilation(self._target), self)
        return ended is not None and ended.trait == wanted.trait
