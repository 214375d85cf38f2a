"""The passes of a backend as something to attribute a failure to.

A backend takes part by its options alone: one of `disabled_optimizers`, `disabled` or `skip` takes names of
passes joined with `+`, and `trace=on` prints which ran (`attribution.py`); with an attribute
`counts_applications` that is true, it takes `PASS@2` too. Options whose values are `on` and `off`, `on` by
default, are tried like passes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsieve.backends.compare import POLICY, Policy, compare
from opsieve.backends.compilers.torch.knobs import PARTS
from opsieve.backends.judge.oracles import NATIVE
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, names, plugin
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import COMPILED
from opsieve.bisect.passes.attribution import Attribution, PassTrace, attribute, read_trace
from opsieve.bisect.search.search import TestResult
from opsieve.bisect.sources.outcome import VersionOutcome, evaluate, evaluate_run, result_for
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, NoFailure, Unjudged
from opsieve.gen.model.program import Program

_LARGE = 10_000  # bytes of a model on which the reference costs more than all probes
_SKIPPING = ("disabled_optimizers", "disabled", "skip")
# Backends with levels between none and all: the option and its values, each of which does what the one before
# does, and more.
_LADDERS = {
    "onnxruntime": ("level", ("disable_all", "basic", "extended", "all")),
    "inductor": ("level", ("off", "eager", "aot_eager", "aot_eager_decomp_partition", "inductor")),
}
# Names to skip of backends that have no trace.
_NAMES = {"inductor": tuple(PARTS)}


@dataclass(frozen=True, slots=True)
class Blamed:
    """What is said of the passes, the failure that it is about, and another failure that is left with all
    optimisation off.
    """

    attribution: Attribution
    wanted: VersionOutcome
    beneath: VersionOutcome | None


def skip_option(backend: str) -> str:
    """The option of a backend that takes the passes to skip, "" for none."""
    options = plugin(backend).facts.options
    found = [name for name in _SKIPPING if options.get(name) == ()]
    return found[0] if found and ("trace" in options or backend in _NAMES) else ""


def switches(backend: str) -> tuple[str, ...]:
    """The options of a backend that switch a part of it off; not the one that switches all of it off."""
    facts = plugin(backend).facts
    return tuple(
        name
        for name, legal in facts.options.items()
        if legal == ("on", "off") and facts.baseline.get(name) != "off"
    )


def attributable() -> tuple[str, ...]:
    """The backends whose passes, or parts, can be switched off."""
    return tuple(name for name in names() if skip_option(name) or switches(name))


def blame_passes(
    case: Case, target: ResolvedTarget, lab: ObservationCache, policy: Policy = POLICY
) -> Blamed:
    """The guilty passes for the failure that a case shows on a target.

    Each probe runs in a process of its own, so a pass whose skipping crashes the compiler costs no more than
    any other. The judge says what the target shows, where that is not plain. A compiler that dies or raises
    is known again by that alone, and one that gives outputs is past it; then the reference, slow on a large
    model, runs once at most. BadInput for a backend whose passes cannot be switched off from here, NoFailure
    when the case does not fail on the target, or not when it is run again.
    """
    if not (skip_option(target.name) or switches(target.name)):
        raise BadInput(
            f"passes of {target.name} cannot be switched off from here; {', '.join(attributable())} can be"
        )
    variants = _Variants(case, target, lab)
    plain = _plain(case, target, variants, lab)
    wanted = plain or evaluate(case, target, variants, policy)
    if wanted.state != "bad":
        raise (NoFailure if wanted.state == "good" else Unjudged)(
            f"{target.display}: {wanted.symptom}: {wanted.text}"
        )

    compiling = variants.only_compiles(wanted)
    unoptimised: list[VersionOutcome] = []

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        variant, lowest = variants.at(level, off), level == variants.levels[0]
        seen = _compiled(case, variant, wanted, variants) if compiling and not lowest else None
        seen = seen or _seen(case, variant, wanted, variants, policy, lowest and plain is None)
        if level == variants.levels[0] and len(variants.levels) > 1:
            unoptimised.append(seen)
        return result_for(seen, wanted)

    counted = target.facts.counts_applications
    found = attribute(variants.levels, probe, variants.trace, variants.switches, counted)
    if found.answer == "does-not-fail":
        raise NoFailure(f"{target.display}: it failed once, and not again: {wanted.text}")
    beneath = next((seen for seen in unoptimised if seen.state == "bad" and seen.trait != wanted.trait), None)
    return Blamed(found, wanted, beneath)


def _plain(
    case: Case, target: ResolvedTarget, variants: "_Variants", lab: ObservationCache
) -> VersionOutcome | None:
    """A failure that needs no judge: a large model on which the compiler dies or raises, twice, where its
    unoptimised build is well.

    The judge would have the reference look for operations that ONNX leaves open, which takes seconds on a
    large model.
    """
    baseline = target.baseline
    if baseline is None or case.program.byte_size < _LARGE:
        return None
    found = evaluate_run(
        case, target, variants.observe(target, case.program, case.inputs), variants, "optimiser"
    )
    if found is None or variants.observe(baseline, case.program, case.inputs).outputs is None:
        return None
    again = evaluate_run(
        case, target, lab.observe(target, case.program, case.inputs, fresh=True), variants, "optimiser"
    )
    return found if again is not None and again.key == found.key else None


def _seen(
    case: Case,
    target: ResolvedTarget,
    wanted: VersionOutcome,
    variants: "_Variants",
    policy: Policy,
    unoptimised: bool,
) -> VersionOutcome:
    """What a variant shows, with the judge where a run of it alone does not say.

    Whether outputs are right is of interest only `unoptimised`: a failure of another kind may lie beneath the
    wanted one. On a large model nobody looks.
    """
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


def _compiled(
    case: Case, target: ResolvedTarget, wanted: VersionOutcome, variants: "_Variants"
) -> VersionOutcome | None:
    """What a variant shows that is compiled and not run; None when that does not say."""
    got = variants.compiled(target)
    ended = evaluate_run(case, target, got, variants)
    if ended is not None:
        return ended if ended.trait == wanted.trait else None
    return (
        None
        if got.outputs is None
        else VersionOutcome("good", symptom="ok", text=f"{target.display} compiles it")
    )


class _Variants:
    """A target with passes off, and a lab that asks each such variant in a fork of its own, so that no worker
    is left waiting.
    """

    def __init__(self, case: Case, target: ResolvedTarget, lab: ObservationCache):
        self._case, self._target, self._lab = case, target, lab
        self._skip = skip_option(target.name)
        self._known: dict[ResolvedTarget, Observation] = {}
        self._off = tuple(name for name in target.options.get(self._skip, "").split("+") if name)
        self._steps = self._levels(target.facts.baseline)
        self.levels = tuple(self._steps)
        self.switches = tuple(name for name in switches(target.name) if target.options[name] == "on")

    def _levels(self, baseline: Mapping[str, str]) -> dict[str, ResolvedTarget]:
        """Targets from no optimisation to the target itself, by name."""
        option, ladder = _LADDERS.get(self._target.name, ("", ()))
        level = self._target.options[option] if ladder else ""
        if level in ladder:
            steps = ladder[: ladder.index(level) + 1]
            return {step: self._target.with_options(**{option: step}) for step in steps}
        unoptimised = self._target.with_options(**baseline) if baseline else self._target
        return (
            {"none": unoptimised, "target": self._target}
            if unoptimised != self._target
            else {"target": self._target}
        )

    def at(self, level: str, off: tuple[str, ...]) -> ResolvedTarget:
        """The target at a level with passes off."""
        if not off:
            return self._steps[level]
        changes = {name: "off" for name in off if name in self.switches}
        named = [name for name in off if name not in changes]
        if named:
            changes[self._skip] = "+".join((*self._off, *named))
        return self._steps[level].with_options(**changes)

    def trace(self, level: str, off: tuple[str, ...]) -> PassTrace:
        """Which passes run and act at a level; nothing for a backend that has no trace."""
        if not self._skip or self._target.name in _NAMES:
            return PassTrace(_NAMES.get(self._target.name, ()))
        target = self.at(level, off).with_options(trace="on")
        seen = self.observe(target, self._case.program, self._case.inputs)
        return read_trace(seen.log, seen.outcome in ("crash", "hang", "out-of-memory"))

    def observe(
        self, target: ResolvedTarget, program: Program, inputs: dict[str, Any], *, fresh: bool = False
    ) -> Observation:
        """For `judge`: one of the target's backend is asked about the case in a fork, about other programs,
        and others, as ever.
        """
        of_case = program == self._case.program and inputs is self._case.inputs
        if fresh or target.name != self._target.name or not of_case:
            return self._lab.observe(target, program, inputs, fresh=fresh)
        if target not in self._known:
            self._known[target] = self._lab.observe(target, program, inputs, fresh=True)
        return self._known[target]

    def compiled(self, target: ResolvedTarget) -> Observation:
        """What the compiler makes of the case when it is only compiled."""
        return self._lab.observe(target, self._case.program, self._case.inputs, fresh=True, repeat=COMPILED)

    def only_compiles(self, wanted: VersionOutcome) -> bool:
        """Whether the failure shows in a program that is compiled and not run: probes need not run it
        then.
        """
        if wanted.stage != "compile" or wanted.flaky:
            return False
        ended = evaluate_run(self._case, self._target, self.compiled(self._target), self)
        return ended is not None and ended.trait == wanted.trait
