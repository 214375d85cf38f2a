"""What to say of a program on a target: the order of questions, the voices heard, the rules that decide.

Nothing runs here. Every answer is asked of a Lab, which runs the program in a worker of its own; few voices are asked when few
are enough. docs/oracles.md states the policy and what was measured of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import onnx
from onnx import ModelProto, TypeProto, helper

from opsieve.backends.compare import POLICY, Comparison, Policy, compare, error
from opsieve.backends.hazards import ACCUMULATION, RANDOM
from opsieve.backends.jumps import excuses
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.reference import REFUSED
from opsieve.backends.target import Target
from opsieve.backends.verdict import Judgement, Kind, Mismatch, Verdict
from opsieve.gen.program import Program

FLOAT64 = Target("reference", options=(("precision", "float64"),))
NATIVE = Target("reference", options=(("precision", "native"),))
EXPECTED = "expected outputs"  # how the outputs that the user gave are called among the voices

_PEER_FACTOR = 10.0
_PEER_FLOOR = 1e-6
_REPEATS = 3  # fresh runs before a failure counts as flaky
_STRUCTURE = frozenset(["missing", "type", "shape", "dtype"])
_ENDS: Mapping[str, Kind] = {"crash": "crash", "hang": "hang", "out-of-memory": "memory"}

Values = dict[str, Any]


class Lab(Protocol):
    """Runs programs on targets."""

    def observe(self, target: Target, program: Program, inputs: Values, fresh: bool = False) -> Observation:
        """What the program does on the target; in a process forked for it alone when `fresh`."""

    def baseline(self, target: Target) -> Target | None:
        """The unoptimised build of the same compiler and release; None when there is none."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and the observations that it stands on, the candidate's first."""

    verdict: Verdict
    observations: tuple[Observation, ...]


def judge(
    program: Program,
    inputs: Values,
    target: Target,
    lab: Lab,
    *,
    expected: Mapping[str, Any] | None = None,
    voices: Sequence[Target] = (),
    policy: Policy = POLICY,
) -> Judged:
    """The verdict on `program`, fed with `inputs`, on `target`.

    `expected` are outputs that the user vouches for, `voices` further targets that may be asked when there is doubt.
    """
    trial = _Trial(program, inputs, target, lab, expected, voices, policy)
    verdict = trial.verdict()
    return Judged(replace(verdict, voices=tuple(trial.heard)), tuple(trial.observations))


class _Trial:
    """One judgement: remembers who was asked what."""

    def __init__(
        self,
        program: Program,
        inputs: Values,
        target: Target,
        lab: Lab,
        expected: Mapping[str, Any] | None,
        voices: Sequence[Target],
        policy: Policy,
    ) -> None:
        self.program, self.inputs, self.target, self.lab = program, inputs, target, lab
        self.expected, self.policy = expected, policy
        self.observations: list[Observation] = []
        self.heard: list[str] = []
        self.answers: dict[Target, Observation] = {}
        self.voices = [voice for voice in voices if voice != target]

    def ask(self, target: Target) -> Observation:
        if target not in self.answers:
            self.answers[target] = self.lab.observe(target, self.program, self.inputs)
            self.observations.append(self.answers[target])
            if target != self.target and self.answers[target].outcome not in ("environment", "unsupported"):
                self.heard.append(str(target))
        return self.answers[target]

    def again(self) -> Observation:
        observation = self.lab.observe(self.target, self.program, self.inputs, fresh=True)
        self.observations.append(observation)
        return observation

    def baseline(self) -> Target | None:
        found = self.lab.baseline(self.target)
        return None if found == self.target else found

    def verdict(self) -> Verdict:
        first = self.ask(self.target)
        if first.outcome in ("environment", "unsupported"):
            kind: Judgement = "environment" if first.outcome == "environment" else "unsupported"
            return Verdict(
                kind, f"{self.target} cannot be asked: {_short(first)}", stage=first.stage, message=first.message
            )
        if first.outcome in _ENDS:
            return self.died(first)
        if first.outcome in ("error", "rejected"):
            return self.refused(first)
        return self.answered(first)

    # -- it ended badly

    def confirmed(self, first: Observation) -> Verdict | None:
        """None when a fresh process fails the same way; else the verdict `flaky`, with how often of how many."""
        if self.again().outcome == first.outcome:
            return None
        same = 1 + sum(self.again().outcome == first.outcome for _ in range(_REPEATS - 1))
        reason = f"{self.target} showed `{first.outcome}` in {same} of {_REPEATS + 1} runs of the same inputs: {_short(first)}"
        return Verdict("flaky", reason, _ENDS.get(first.outcome, "error"), first.stage, first.message)

    def died(self, first: Observation) -> Verdict:
        flaky = self.confirmed(first)
        if flaky is not None:
            return flaky
        kind = _ENDS[first.outcome]
        blame = ""
        baseline = self.baseline()
        if kind == "crash":
            return Verdict(
                "fail",
                f"{self.target} crashed while it was in {first.stage}: {_short(first)}",
                kind,
                first.stage,
                first.message,
            )
        # A program that needs the time or the memory is not the compiler's fault: somebody else must do with less.
        if baseline is not None and self.ask(baseline).outcome == "ok":
            blame = "optimiser"
        elif self.ask(NATIVE).outcome != first.outcome or any(self.ask(v).outcome == "ok" for v in self.voices):
            blame = "compiler"
        else:
            return Verdict(
                "undecided",
                f"{self.target} and the reference both ended with `{first.outcome}`",
                kind,
                first.stage,
                first.message,
            )
        reason = f"{self.target} ended with `{first.outcome}` while it was in {first.stage}, twice: {_short(first)}"
        return Verdict("fail", reason, kind, first.stage, first.message, blame=blame)

    def refused(self, first: Observation) -> Verdict:
        flaky = self.confirmed(first)
        if flaky is not None:
            return flaky
        stage, message = first.stage, first.message
        open_ = _names(self.ask(NATIVE).hazards, None) if stage == "run" else ()
        if open_:
            reason = f"{self.target} gave up where ONNX leaves the result open ({', '.join(open_)}): {_short(first)}"
            return Verdict("invalid", reason, "error", stage, message, rules=open_)
        baseline = self.baseline()
        acceptor, blame, against = "", "", False
        if baseline is not None and self.ask(baseline).outcome == "ok":
            acceptor, blame = str(baseline), "optimiser"
        elif self.expected is not None:
            acceptor, blame = EXPECTED, "compiler"
            self.heard.append(EXPECTED)
        else:
            for voice in (NATIVE, *self.voices):
                answer = self.ask(voice)
                refused = any(note.startswith(REFUSED) for note in answer.notes)
                if answer.outcome == "ok" and not refused:
                    acceptor, blame = str(voice), "compiler"
                    break
                against = against or refused or answer.outcome in ("error", "rejected")
        if acceptor:
            does = "refuses" if first.outcome == "rejected" else "fails on"
            reason = f"{self.target} {does} a program that {acceptor} accept{'' if acceptor == EXPECTED else 's'}: {_short(first)}"
            return Verdict("fail", reason, "error", stage, message, blame=blame)
        if against:
            return Verdict("invalid", f"nobody asked accepts the program: {_short(first)}", "error", stage, message)
        return Verdict("undecided", f"nobody else could be asked: {_short(first)}", "error", stage, message)

    # -- it gave outputs

    def answered(self, first: Observation) -> Verdict:
        outputs = first.outputs or {}
        dtypes = declared_dtypes(self.program.proto)
        if self.expected is not None:
            given = compare(outputs, self.expected, dtypes, self.policy)
            self.heard.append(EXPECTED)
            if given.agrees:
                return Verdict("pass", f"{self.target} gives the expected outputs", rules=given.rules)
        arbiter = self.ask(FLOAT64)
        if arbiter.outputs is None:
            arbiter = self.ask(NATIVE)
        if arbiter.outputs is None:
            return self.without_reference(outputs, dtypes)
        terms = _terms(arbiter.hazards)
        found = compare(outputs, arbiter.outputs, dtypes, self.policy, terms)
        if found.agrees and self.expected is None:
            return Verdict("pass", f"{self.target} agrees with {arbiter.target}", rules=found.rules)
        if found.agrees:
            return self.against_expected(first, outputs, dtypes)
        return _Dispute(self, arbiter, outputs, dtypes, terms).verdict(found)

    def against_expected(self, first: Observation, outputs: Values, dtypes: Mapping[str, str]) -> Verdict:
        """The reference and the candidate agree, the expected outputs are others."""
        worst = compare(outputs, self.expected or {}, dtypes, self.policy).worst
        others = [voice for voice in (self.baseline(), *self.voices) if voice is not None]
        agree = [str(v) for v in others if self.agrees(v, outputs, dtypes, tuple(self.expected or {}))]
        who = ", ".join([str(FLOAT64), *agree])
        reason = f"the expected outputs differ from {self.target}, but {who} agree{'' if agree else 's'} with it: {_told(worst)}"
        return Verdict("undecided", reason, "mismatch", "run", mismatch=worst)

    def agrees(self, voice: Target, truth: Mapping[str, Any], dtypes: Mapping[str, str], names: Sequence[str]) -> bool:
        answer = self.ask(voice)
        wanted = {name: truth[name] for name in names if name in truth}
        return answer.outputs is not None and compare(answer.outputs, wanted, dtypes, self.policy).agrees

    def repeats(self, outputs: Values, names: Sequence[str], dtypes: Mapping[str, str]) -> Verdict | None:
        """None when a fresh process gives the same outputs; else the verdict on that."""
        second = self.again()
        if second.outputs is None:
            reason = (
                f"{self.target} gave outputs once and ended with `{second.outcome}` the next time: {_short(second)}"
            )
            return Verdict("fail", reason, "nondeterminism", second.stage, second.message)
        worst = compare(
            second.outputs, {name: outputs[name] for name in names if name in outputs}, {}, self.policy
        ).worst
        if worst is None:
            return None
        reason = f"{self.target} gave other outputs for the same inputs in a second run: {_told(worst)}"
        return Verdict("fail", reason, "nondeterminism", "run", mismatch=worst)

    def without_reference(self, outputs: Values, dtypes: Mapping[str, str]) -> Verdict:
        baseline = self.baseline()
        if self.expected is not None:
            found = compare(outputs, self.expected, dtypes, self.policy)
            names = tuple(found.mismatches)
            changed = self.repeats(outputs, names, dtypes)
            if changed is not None:
                return changed
            against = [v for v in self.voices if self.agrees(v, outputs, dtypes, names)]
            if against:
                reason = f"{against[0]} agrees with {self.target} against the expected outputs: {_told(found.worst)}"
                return Verdict("undecided", reason, "mismatch", "run", mismatch=found.worst)
            right = baseline is not None and self.agrees(baseline, self.expected, dtypes, names)
            reason = f"{self.target} does not give the expected outputs: {_told(found.worst)}"
            return Verdict(
                "fail", reason, "mismatch", "run", rules=("expected-is-truth",), mismatch=found.worst,
                blame="optimiser" if right else "compiler",
            )  # fmt: skip
        for voice in (baseline, *self.voices):
            answer = None if voice is None else self.ask(voice)
            if answer is None or answer.outputs is None:
                continue
            found = compare(outputs, answer.outputs, dtypes, self.policy)
            if found.agrees:
                return Verdict("pass", f"the reference cannot evaluate the program; {voice} agrees", rules=found.rules)
            changed = self.repeats(outputs, tuple(found.mismatches), dtypes)
            if changed is not None:
                return changed
            reason = f"the reference cannot evaluate the program, and {voice} differs from {self.target}: {_told(found.worst)}"
            return Verdict("undecided", reason, "mismatch", "run", mismatch=found.worst)
        return Verdict("undecided", "the reference cannot evaluate the program and nobody else could be asked")


class _Dispute:
    """The candidate's outputs differ from the arbiter's: which differences are excused, and who is to blame for the others."""

    def __init__(
        self, trial: _Trial, arbiter: Observation, outputs: Values, dtypes: Mapping[str, str], terms: Mapping[str, int]
    ) -> None:
        self.trial, self.arbiter, self.outputs, self.dtypes, self.terms = trial, arbiter, outputs, dtypes, terms
        self.truth: Values = arbiter.outputs or {}
        self.left: dict[str, Mismatch] = {}
        self.rules: list[str] = []
        self.open = False

    def verdict(self, found: Comparison) -> Verdict:
        trial = self.trial
        self.left = dict(found.mismatches)
        self.rules.extend(found.rules)
        worst = found.worst
        self.drop_open(self.arbiter.hazards)
        if self.left:
            changed = trial.repeats(self.outputs, tuple(self.left), self.dtypes)
            if changed is not None:
                return changed
            self.drop_shared()
        if self.left:
            self.drop_jumps()
        if not self.left:
            return self.excused(worst)
        worst = Comparison(self.left).worst
        # The expected outputs and other compilers are voices of their own; the native reference shares the arbiter's code.
        others = [voice for voice in (trial.baseline(), *trial.voices) if voice is not None]
        names = tuple(self.left)
        seconds = [str(v) for v in others if trial.agrees(v, self.truth, self.dtypes, names)]
        if trial.expected is not None and all(name in trial.expected for name in names):
            wanted = {name: self.truth[name] for name in names if name in self.truth}
            if compare(trial.expected, wanted, self.dtypes, trial.policy, self.terms).agrees:
                seconds.append(EXPECTED)
        if not seconds:
            reason = f"only {self.arbiter.target} says that {trial.target} is wrong, no second voice: {_told(worst)}"
            return Verdict("undecided", reason, "mismatch", "run", rules=tuple(self.rules), mismatch=worst)
        baseline = trial.baseline()
        optimiser = baseline is not None and str(baseline) in seconds
        reason = f"{trial.target} is wrong: {_told(worst)}; {self.arbiter.target} and {', '.join(seconds)} agree"
        return Verdict(
            "fail", reason, "mismatch", "run", rules=tuple(self.rules), mismatch=worst,
            blame="optimiser" if optimiser else "compiler",
        )  # fmt: skip

    def drop_open(self, hazards: Sequence[Hazard]) -> None:
        for name in list(self.left):
            rules = _names(hazards, name)
            if rules:
                self.rules.extend(rule for rule in rules if rule not in self.rules)
                self.open = True
                del self.left[name]

    def drop_shared(self) -> None:
        """Leave out what everybody gets wrong as much: the program magnifies rounding errors."""
        trial = self.trial
        native = trial.ask(NATIVE)
        self.drop_open(native.hazards)
        peers = {name: [error(native.outputs[name], self.truth[name])] for name in self.left if native.outputs}
        others = [voice for voice in (trial.baseline(), *trial.voices) if voice is not None]
        for name, mismatch in list(self.left.items()):
            if mismatch.what in _STRUCTURE:
                continue
            own = error(self.outputs[name], self.truth[name])
            screen = trial.policy.screen(self.dtypes.get(name, ""), self.terms.get(name, 0))
            errors = peers.get(name, [])
            for voice in others:
                if _excuses(own, errors):
                    break
                answer = trial.ask(voice).outputs
                if answer is not None and name in answer:
                    # Another compiler can share the fault, its unoptimised build above all: it counts up to the screen.
                    errors = [*errors, min(error(answer[name], self.truth[name]), screen)]
            if _excuses(own, errors):
                self.rules.append("peers-share-the-error")
                del self.left[name]

    def drop_jumps(self) -> None:
        trial = self.trial
        wrong = [name for name, mismatch in self.left.items() if mismatch.what not in _STRUCTURE]
        targets = {"candidate": trial.target, "native": NATIVE, "float64": FLOAT64}

        def ask(who: str, model: ModelProto, feeds: Values) -> Observation:
            program = Program(model.SerializeToString(), trial.program.name)
            return trial.lab.observe(targets[who], program, feeds)

        if not wrong:
            return
        for name in excuses(trial.program.proto, trial.inputs, self.outputs, wrong, self.dtypes, trial.policy, ask):
            self.rules.append("jump")
            del self.left[name]

    def excused(self, worst: Mismatch | None) -> Verdict:
        rules = tuple(dict.fromkeys(self.rules))
        if self.open:
            reason = f"ONNX leaves the result open ({', '.join(rules)}), so {_told(worst)} is nobody's fault"
            return Verdict("invalid", reason, "mismatch", "run", rules=rules, mismatch=worst)
        return Verdict(
            "pass", f"{self.trial.target} differs within the rules {', '.join(rules)}: {_told(worst)}", rules=rules
        )


def declared_dtypes(model: ModelProto) -> dict[str, str]:
    """numpy's name of the element type that the model declares for each output, "" where it declares none."""
    return {value.name: _element(value.type) for value in model.graph.output}


def _element(declared: TypeProto) -> str:
    kind = declared.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _element(getattr(declared, kind).elem_type)
    if kind != "tensor_type" or declared.tensor_type.elem_type not in onnx.TensorProto.DataType.values():
        return ""
    number = declared.tensor_type.elem_type
    if number == onnx.TensorProto.UNDEFINED:
        return ""
    return "string" if number == onnx.TensorProto.STRING else str(helper.tensor_dtype_to_np_dtype(number).name)


def _excuses(own: float, peers: Sequence[float]) -> bool:
    return bool(peers) and own <= _PEER_FACTOR * max(*peers, _PEER_FLOOR)


def _names(hazards: Sequence[Hazard], output: str | None) -> tuple[str, ...]:
    """Rules of the hazards that reach one output; for None, of all but random operators."""
    return tuple(
        dict.fromkeys(
            hazard.rule
            for hazard in hazards
            if not hazard.rule.startswith(ACCUMULATION)
            if (output in hazard.outputs if output is not None else hazard.rule != RANDOM)
        )
    )


def _terms(hazards: Sequence[Hazard]) -> dict[str, int]:
    terms: dict[str, int] = {}
    for hazard in hazards:
        rule, _, count = hazard.rule.partition(":")
        if rule == ACCUMULATION and count.isdigit():
            for name in hazard.outputs:
                terms[name] = max(terms.get(name, 0), int(count))
    return terms


def _short(observation: Observation) -> str:
    text = " ".join((observation.message or observation.exception or "").split())
    if observation.signal:
        text = f"signal {observation.signal} {text}".strip()
    return text if len(text) <= 200 else text[:197] + "..."


def _told(mismatch: Mismatch | None) -> str:
    if mismatch is None:
        return "no difference"
    name = repr(mismatch.output)[:60]
    if mismatch.what in _STRUCTURE:
        return f"output {name} has {mismatch.what} {mismatch.got or 'nothing'} for {mismatch.expected}"
    place = f" at {list(mismatch.index)}" if mismatch.index else ""
    return (
        f"output {name} is {mismatch.got} for {mismatch.expected}{place}, off by {mismatch.max_scaled:.2g} of its largest "
        f"magnitude in {mismatch.fraction:.0%} of its elements"
    )
