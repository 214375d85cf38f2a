"""What to say of a program on a target: the order of questions, the oracles consulted, the rules that decide.

Nothing runs here. Every answer is asked of a Lab, which runs the program in a worker of its own; few oracles are asked when few
are enough. docs/explanation/oracles.md states the policy and what was measured of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsieve.backends.compare import POLICY, Policy, compare
from opsieve.backends.judge.acceptance import judge_broken
from opsieve.backends.judge.judging_session import (
    JudgingSession,
    describe,
    open_rules,
    short,
    sum_lengths,
)
from opsieve.backends.judge.mismatch import MismatchJudge
from opsieve.backends.judge.oracles import EXPECTED, FLOAT64, NATIVE, Lab, Values
from opsieve.backends.observation import Observation
from opsieve.backends.reference.reference import REFUSED
from opsieve.backends.registry import display
from opsieve.backends.target import Target
from opsieve.backends.verdict import DEATHS, Judgement, Verdict
from opsieve.gen.model.program import Program

_REPEATS = 3  # fresh runs before a failure counts as flaky
# Where ONNX leaves a result open, raising an exception is as good as any answer; constant folding raises it early.
_MAY_RAISE = frozenset(
    {"integer-division-by-zero", "integer-division-overflow", "negative-integer-power", "shift-too-far", "cast-of-nan"}
    | {"cast-out-of-range"}
)


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
    oracles: Sequence[Target] = (),
    policy: Policy = POLICY,
) -> Judged:
    """The verdict on `program`, fed with `inputs`, on `target`.

    `expected` are outputs that the user vouches for, `oracles` further targets that may be asked when there is doubt. A program that
    was made to be wrong (gen/model/invalid_marker.py) is judged by whether it is refused.
    """
    fault = program.fault if expected is None else None
    if fault is not None:
        return Judged(*judge_broken(program, inputs, target, lab, fault))
    session = _Judgement(program, inputs, target, lab, expected, oracles, policy)
    verdict = session.verdict()
    return Judged(replace(verdict, oracles=tuple(session.consulted)), tuple(session.observations))


class _Judgement(JudgingSession):
    """The order of questions."""

    def verdict(self) -> Verdict:
        first = self.ask(self.target)
        if first.outcome in ("environment", "unsupported"):
            kind: Judgement = "environment" if first.outcome == "environment" else "unsupported"
            return Verdict(
                kind,
                f"{display(self.target)} cannot be asked: {short(first)}",
                stage=first.stage,
                message=first.message,
            )
        if first.outcome in DEATHS:
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
        reason = f"{display(self.target)} showed `{first.outcome}` in {same} of {_REPEATS + 1} runs of the same inputs: {short(first)}"
        return Verdict("flaky", reason, DEATHS.get(first.outcome, "error"), first.stage, first.message)

    def died(self, first: Observation) -> Verdict:
        flaky = self.confirmed(first)
        if flaky is not None:
            return flaky
        kind = DEATHS[first.outcome]
        blame = ""
        baseline, host = self.baseline(), self.host()
        if host is not None and self.ask(host).outcome == first.outcome:
            reason = f"{display(host)}, which runs what {display(self.target)} makes, ends with `{first.outcome}` on the original program too"
            return Verdict("undecided", reason, kind, first.stage, first.message)
        if kind == "crash":
            return Verdict(
                "fail",
                f"{display(self.target)} crashed while it was in {first.stage}: {short(first)}",
                kind,
                first.stage,
                first.message,
            )
        # A program that needs the time or the memory is not the compiler's fault: somebody else must do with less.
        if baseline is not None and self.ask(baseline).outcome == "ok":
            blame = "optimiser"
        elif self.ask(NATIVE).outcome != first.outcome or any(self.ask(v).outcome == "ok" for v in self.oracles):
            blame = "compiler"
        else:
            return Verdict(
                "undecided",
                f"{display(self.target)} and the reference both ended with `{first.outcome}`",
                kind,
                first.stage,
                first.message,
            )
        reason = (
            f"{display(self.target)} ended with `{first.outcome}` while it was in {first.stage}, twice: {short(first)}"
        )
        return Verdict("fail", reason, kind, first.stage, first.message, blame=blame)

    def refused(self, first: Observation) -> Verdict:
        flaky = self.confirmed(first)
        if flaky is not None:
            return flaky
        stage, message = first.stage, first.message
        open_ = tuple(rule for rule in open_rules(self.ask(NATIVE).hazards, None) if rule in _MAY_RAISE)
        if open_:
            reason = (
                f"{display(self.target)} gave up where ONNX leaves the result open ({', '.join(open_)}): {short(first)}"
            )
            return Verdict("invalid", reason, "error", stage, message, rules=open_)
        baseline = self.baseline()
        acceptor, blame, against = "", "", False
        if baseline is not None and self.ask(baseline).outcome == "ok":
            acceptor, blame = display(baseline), "optimiser"
        elif self.expected is not None:
            acceptor, blame = EXPECTED, "compiler"
            self.consulted.append(EXPECTED)
        else:
            for oracle in (NATIVE, *self.oracles):
                answer = self.ask(oracle)
                refused = any(note.startswith(REFUSED) for note in answer.notes)
                if answer.outcome == "ok" and not refused:
                    acceptor, blame = display(oracle), "compiler"
                    break
                against = against or refused or answer.outcome in ("error", "rejected")
        if acceptor:
            does = "refuses" if first.outcome == "rejected" else "fails on"
            reason = f"{display(self.target)} {does} a program that {acceptor} accept{'' if acceptor == EXPECTED else 's'}: {short(first)}"
            return Verdict("fail", reason, "error", stage, message, blame=blame)
        if against:
            return Verdict("invalid", f"nobody asked accepts the program: {short(first)}", "error", stage, message)
        return Verdict("undecided", f"nobody else could be asked: {short(first)}", "error", stage, message)

    # -- it gave outputs

    def answered(self, first: Observation) -> Verdict:
        outputs = first.outputs or {}
        dtypes = self.program.output_dtypes()
        if self.expected is not None:
            given = compare(outputs, self.expected, dtypes, self.policy)
            self.consulted.append(EXPECTED)
            if given.agrees:
                return Verdict("pass", f"{display(self.target)} gives the expected outputs", rules=given.rules)
        arbiter = self.ask(FLOAT64)
        if arbiter.outputs is None:
            arbiter = self.ask(NATIVE)
        if arbiter.outputs is None:
            return self.without_reference(outputs, dtypes)
        terms = sum_lengths(arbiter.hazards)
        found = compare(outputs, arbiter.outputs, dtypes, self.policy, terms)
        if found.agrees and self.expected is None:
            return Verdict("pass", f"{display(self.target)} agrees with {arbiter.target}", rules=found.rules)
        if found.agrees:
            return self.against_expected(first, outputs, dtypes)
        return MismatchJudge(self, arbiter, outputs, dtypes, terms).verdict(found)

    def against_expected(self, first: Observation, outputs: Values, dtypes: Mapping[str, str]) -> Verdict:
        """The reference and the candidate agree, the expected outputs are others."""
        worst = compare(outputs, self.expected or {}, dtypes, self.policy).worst
        others = [oracle for oracle in dict.fromkeys((self.baseline(), *self.oracles)) if oracle is not None]
        agree = [display(v) for v in others if self.agrees(v, outputs, dtypes, tuple(self.expected or {}))]
        who = ", ".join([display(FLOAT64), *agree])
        reason = f"the expected outputs differ from {display(self.target)}, but {who} agree{'' if agree else 's'} with it: {describe(worst)}"
        return Verdict("undecided", reason, "mismatch", "run", mismatch=worst)

    def without_reference(self, outputs: Values, dtypes: Mapping[str, str]) -> Verdict:
        baseline = self.baseline()
        if self.expected is not None:
            found = compare(outputs, self.expected, dtypes, self.policy)
            names = tuple(found.mismatches)
            changed = self.repeats(outputs, names, dtypes)
            if changed is not None:
                return changed
            host = self.host_shares(outputs, names, dtypes)
            if host is not None:
                return self.fault_of(host, found.worst)
            against = [v for v in self.oracles if self.agrees(v, outputs, dtypes, names)]
            if against:
                reason = f"{display(against[0])} agrees with {display(self.target)} against the expected outputs: {describe(found.worst)}"
                return Verdict("undecided", reason, "mismatch", "run", mismatch=found.worst)
            right = baseline is not None and self.agrees(baseline, self.expected, dtypes, names)
            reason = f"{display(self.target)} does not give the expected outputs: {describe(found.worst)}"
            return Verdict(
                "fail", reason, "mismatch", "run", rules=("expected-is-truth",), mismatch=found.worst,
                blame="optimiser" if right else "compiler",
            )  # fmt: skip
        for oracle in self.oracles if baseline is None else (baseline, *self.oracles):
            answer = self.ask(oracle)
            if answer.outputs is None:
                continue
            found = compare(outputs, answer.outputs, dtypes, self.policy)
            if found.agrees:
                return Verdict(
                    "pass", f"the reference cannot evaluate the program; {display(oracle)} agrees", rules=found.rules
                )
            changed = self.repeats(outputs, tuple(found.mismatches), dtypes)
            if changed is not None:
                return changed
            reason = f"the reference cannot evaluate the program, and {display(oracle)} differs from {display(self.target)}: {describe(found.worst)}"
            return Verdict("undecided", reason, "mismatch", "run", mismatch=found.worst)
        return Verdict("undecided", "the reference cannot evaluate the program and nobody else could be asked")
