"""A mismatch between a target and the reference: what excuses it, and who is to blame otherwise."""

from collections.abc import Mapping, Sequence

from onnx import ModelProto

from opsieve.backends.compare import Comparison, compare, error
from opsieve.backends.judge.discontinuities import excuses
from opsieve.backends.judge.judging_session import STRUCTURE, JudgingSession, describe, open_rules
from opsieve.backends.judge.oracles import EXPECTED, FLOAT64, NATIVE, Values
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.registry import display
from opsieve.backends.target import Target
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.gen.model.program import OnnxProgram

_PEER_FACTOR = 10.0
_PEER_FLOOR = 1e-2  # of the screen: what every compiler of a type may be off by


class MismatchJudge:
    """The candidate's outputs differ from the arbiter's: which differences are excused, and who is to blame for the others."""

    def __init__(
        self,
        session: JudgingSession,
        arbiter: Observation,
        outputs: Values,
        dtypes: Mapping[str, str],
        terms: Mapping[str, int],
    ) -> None:
        self.session, self.arbiter, self.outputs, self.dtypes, self.terms = session, arbiter, outputs, dtypes, terms
        self.truth: Values = arbiter.outputs or {}
        self.left: dict[str, Mismatch] = {}
        self.rules: list[str] = []
        self.open = False
        self.others: list[Target] = []

    def verdict(self, found: Comparison) -> Verdict:
        """What is left of the mismatches once every rule had its say."""
        session = self.session
        self.left = dict(found.mismatches)
        self.rules.extend(found.rules)
        worst = found.worst
        self.drop_open(self.arbiter.hazards)
        if self.left:
            changed = session.repeats(self.outputs, tuple(self.left), self.dtypes)
            if changed is not None:
                return changed
            self.others = self.jury()
            self.drop_shared()
        if self.left:
            self.drop_discontinuities()
        if not self.left:
            return self.excused(worst)
        worst = Comparison(self.left).worst
        shared = {name: session.host_shares(self.outputs, (name,), self.dtypes) for name in self.left}
        self.left = {name: mismatch for name, mismatch in self.left.items() if shared[name] is None}
        if not self.left:
            return session.fault_of(next(filter(None, shared.values())), worst, tuple(self.rules))
        worst = Comparison(self.left).worst
        # The expected outputs and other compilers are oracles of their own; the native reference shares the arbiter's code.
        names = tuple(self.left)
        seconds = [display(v) for v in self.others if session.agrees(v, self.truth, self.dtypes, names)]
        if session.expected is not None and all(name in session.expected for name in names):
            wanted = {name: self.truth[name] for name in names if name in self.truth}
            if compare(session.expected, wanted, self.dtypes, session.policy, self.terms).agrees:
                seconds.append(EXPECTED)
        if not seconds:
            reason = f"only {self.arbiter.target} says that {display(session.target)} is wrong, no second oracle: {describe(worst)}"
            return Verdict("undecided", reason, "mismatch", "run", rules=tuple(self.rules), mismatch=worst)
        baseline = session.baseline()
        optimiser = baseline is not None and display(baseline) in seconds
        reason = f"{display(session.target)} is wrong: {describe(worst)}; {self.arbiter.target} and {', '.join(seconds)} agree"
        return Verdict(
            "fail", reason, "mismatch", "run", rules=tuple(self.rules), mismatch=worst,
            blame="optimiser" if optimiser else "compiler",
        )  # fmt: skip

    def jury(self) -> list[Target]:
        """Who is asked beside the arbiter: the unoptimised build, and others only where that does not settle it."""
        session, baseline = self.session, self.session.baseline()
        if baseline is None:
            return list(session.oracles)
        if session.agrees(baseline, self.truth, self.dtypes, tuple(self.left)):
            return [baseline]
        return [baseline, *(oracle for oracle in session.oracles if oracle != baseline)]

    def drop_open(self, hazards: Sequence[Hazard]) -> None:
        """Leave out what depends on a result that ONNX leaves open."""
        for name in list(self.left):
            rules = open_rules(hazards, name)
            if rules:
                self.rules.extend(rule for rule in rules if rule not in self.rules)
                self.open = True
                del self.left[name]

    def drop_shared(self) -> None:
        """Leave out what everybody gets wrong as much: the program magnifies rounding errors."""
        session = self.session
        native = session.ask(NATIVE)
        self.drop_open(native.hazards)
        peers = {name: [error(native.outputs[name], self.truth[name])] for name in self.left if native.outputs}
        for name, mismatch in list(self.left.items()):
            if mismatch.what in STRUCTURE or session.policy.tolerance is not None:
                continue
            own = error(self.outputs[name], self.truth[name])
            screen = session.policy.screen(self.dtypes.get(name, ""), self.terms.get(name, 0))
            errors = peers.get(name, [])
            for oracle in self.others:
                if _shared(own, errors, screen):
                    break
                answer = session.ask(oracle).outputs
                if answer is not None and name in answer:
                    # Another compiler can share the fault, its unoptimised build above all: it counts up to the screen.
                    errors = [*errors, min(error(answer[name], self.truth[name]), screen)]
            if _shared(own, errors, screen):
                self.rules.append("peers-share-the-error")
                del self.left[name]

    def drop_discontinuities(self) -> None:
        """Leave out what a value near a jump explains."""
        session = self.session
        wrong = [name for name, mismatch in self.left.items() if mismatch.what not in STRUCTURE]
        targets = {"candidate": session.target, "native": NATIVE, "float64": FLOAT64}

        def ask(who: str, model: ModelProto, feeds: Values) -> Observation:
            program = OnnxProgram(model.SerializeToString(), session.program.name)
            return session.lab.observe(targets[who], program, feeds)

        if not wrong or not isinstance(session.program, OnnxProgram):
            return
        for name in excuses(
            session.program.proto, session.inputs, self.outputs, wrong, self.dtypes, session.policy, ask
        ):
            self.rules.append("jump")
            del self.left[name]

    def excused(self, worst: Mismatch | None) -> Verdict:
        """The verdict when nothing is left."""
        rules = tuple(dict.fromkeys(self.rules))
        if self.open:
            reason = f"ONNX leaves the result open ({', '.join(rules)}), so {describe(worst)} is nobody's fault"
            return Verdict("invalid", reason, "mismatch", "run", rules=rules, mismatch=worst)
        return Verdict(
            "pass",
            f"{display(self.session.target)} differs within the rules {', '.join(rules)}: {describe(worst)}",
            rules=rules,
        )


def _shared(own: float, peers: Sequence[float], screen: float) -> bool:
    return bool(peers) and own <= _PEER_FACTOR * max(*peers, _PEER_FLOOR * screen)
