"""Judge a mismatch between a target and the reference: excuses, and the blame otherwise.

Each output is judged by itself, so that an unconfirmed one hides no other. If the reference stands alone
against the target, the first operator that differs for equal inputs is found and judged by all oracles
(opsieve.backends.judge.localise).
"""

from collections.abc import Mapping, Sequence

from onnx import ModelProto

from opsieve.backends.compare import Comparison, compare, error
from opsieve.backends.judge.derived_types import (
    RULE,
    derive_types,
    describe_type,
    find_contradictions,
    judge_types,
)
from opsieve.backends.judge.discontinuities import excuses
from opsieve.backends.judge.discontinuity_points import Ask, find_points
from opsieve.backends.judge.integer_results import find_wrong_by_integers
from opsieve.backends.judge.judging_session import JudgingSession, find_sum_lengths, list_open_rules
from opsieve.backends.judge.levels import judge_levels
from opsieve.backends.judge.localise import Dispute, Finding, settle_dispute
from opsieve.backends.judge.oracles import EXPECTED, FLOAT64, NATIVE, VOUCHED, Values, is_independent
from opsieve.backends.judge.perturbation import Movement, measure_movements
from opsieve.backends.judge.reasons import Cause, make_reason, make_verdict
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import STRUCTURE, Mismatch, Verdict
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import read_type, type_of
from opsieve.gen.rewrites.relation import list_relations

_PEER_FACTOR = 10.0
_FAR = 100.0
_OUTVOTING = 2  # independent compilers beside the target
_PEER_FLOOR = 1e-2  # of the screen: what every compiler of a type may be off by


class MismatchJudge:
    """Judges outputs of the target that differ from the arbiter's: excuses, and the blame for the rest."""

    def __init__(
        self,
        session: JudgingSession,
        arbiter: ResolvedTarget,
        outputs: Values,
        terms: Mapping[str, int],
        depth: int = 0,
    ) -> None:
        self.session, self.arbiter, self.outputs = session, arbiter, outputs
        self.terms, self.depth = terms, depth
        self.right = session.run_target(arbiter)
        self.truth: Values = self.right.outputs or {}
        self.left: dict[str, Mismatch] = {}
        self.rules: list[str] = []
        self.undefined = False
        self.moved: dict[str, Movement] = {}  # of the outputs that are wrong, by rounding

    def judge_comparison(self, found: Comparison) -> Verdict:
        """Judge the mismatches that remain after every excusing rule."""
        session = self.session
        self.left = dict(found.mismatches)
        self.rules.extend(found.rules)
        self.drop_undefined(self.right.hazards)
        if self.left and not self.depth:
            changed = session.judge_repetition(self.outputs, tuple(self.left))
            if changed is not None:
                return changed
            self.drop_shared()
        if self.left:
            self.drop_discontinuities()
        if self.left:
            self.drop_magnified()
        if not self.left:
            return self.judge_excused(found.worst)
        worst = Comparison(self.left).worst
        shared = {name: session.find_agreeing_host(self.outputs, (name,)) for name in self.left}
        self.left = {name: mismatch for name, mismatch in self.left.items() if shared[name] is None}
        if not self.left:
            return session.judge_host_fault(next(filter(None, shared.values())), worst, tuple(self.rules))
        confirmed = {name: seconds for name in self.left if (seconds := self.list_confirming(name))}
        if confirmed:
            return self.judge_confirmed(confirmed)
        return self.judge_type() or self.judge_unconfirmed(found.worst)

    def judge_type(self) -> Verdict | None:
        """Judge an output whose shape or dtype contradicts inference or the reference, whichever compilers
        agree with it.

        The reference alone is not enough for a shape that depends on values near a discontinuity, nor against
        inference.
        """
        session = self.session
        shaped = [name for name, mismatch in self.left.items() if mismatch.what in ("shape", "dtype")]
        if self.depth or not shaped or session.graph is None:
            return None
        contradicted = judge_types(session, self.outputs)
        if contradicted is not None:
            return contradicted
        native = session.run_target(NATIVE).outputs or {}
        doubtful = find_contradictions(native, derive_types(session))
        given = {
            name: type_of(native.get(name))
            for name in shaped
            if name not in doubtful and not self.is_discontinuous(name)
        }
        types = {name: read_type(type_) for name, type_ in given.items() if type_ is not None}
        worst = Comparison(find_contradictions(self.outputs, types)).worst
        if worst is None:
            return None
        reason = make_reason(
            Cause.CONTRADICTS_REFERENCE, target=session.target, arbiter=self.arbiter, **describe_type(worst)
        )
        return make_verdict(
            "fail", reason, "mismatch", rules=(*self.rules, RULE), mismatch=worst, blame="compiler"
        )

    def judge_confirmed(self, confirmed: Mapping[str, Sequence[str]]) -> Verdict:
        """Return the failure for the worst output whose value a second oracle confirms."""
        session = self.session
        worst = Comparison({name: self.left[name] for name in confirmed}).worst
        assert worst is not None
        seconds = next(oracles for name, oracles in confirmed.items() if self.left[name] is worst)
        baseline = session.target.baseline
        blame = "optimiser" if baseline is not None and baseline.display in seconds else "compiler"
        rules = (*self.rules, VOUCHED) if seconds == [EXPECTED] else tuple(self.rules)
        oracles = [self.arbiter, *seconds]
        reason = make_reason(Cause.WRONG, target=session.target, mismatch=worst, oracles=oracles)
        return make_verdict("fail", reason, "mismatch", rules=rules, mismatch=worst, blame=blame)

    def judge_unconfirmed(self, shown: Mismatch | None) -> Verdict:
        """Judge by the first operator that differs for equal inputs, if the arbiter stands alone."""
        session = self.session
        rules, worst = tuple(self.rules), Comparison(self.left).worst
        facts: dict[str, object] = {"target": session.target, "arbiter": self.arbiter, "mismatch": worst}
        reason = make_reason(Cause.ONE_ORACLE, **facts)
        plain = make_verdict("undecided", reason, "mismatch", rules=rules, mismatch=worst)
        if self.depth or session.graph is None:
            return plain
        dispute = Dispute(session, session.graph, self.arbiter, self.outputs, tuple(self.left))
        finding = settle_dispute(dispute, self.judge_piece)
        found = plain if finding is None else self.judge_finding(finding, facts, rules, worst or shown)
        if found.verdict != "undecided":
            return found
        decided = self.judge_outvoted(facts) or self.judge_by_rewrites(found)
        if decided.verdict != "undecided":
            return decided
        names, rules = tuple(self.left), tuple(self.rules)
        return judge_levels(session, self.outputs, names, self.terms, rules, measured=True) or decided

    def judge_outvoted(self, facts: Mapping[str, object]) -> Verdict | None:
        """Return a pass if two compilers independent of the target and of each other agree with it against
        the arbiter.
        """
        session = self.session
        agree = [
            each
            for each in session.oracles
            if is_independent(session.target, each)
            and session.is_agreeing(each, self.outputs, tuple(self.left))
        ]
        if len({each.family for each in agree}) < _OUTVOTING:
            return None
        reason = make_reason(Cause.OUTVOTED, **{**facts, "operator": "the program", "oracles": agree})
        return make_verdict("pass", reason, rules=(*self.rules, "reference-outvoted"))

    def judge_by_rewrites(self, otherwise: Verdict) -> Verdict:
        """Return a failure if the target itself gives the arbiter's value for an equivalent program
        (gen/rewrites).
        """
        session = self.session
        if session.target.rewrite or session.graph is None:
            return otherwise
        for name, mismatch in self.left.items():
            if self.is_discontinuous(name):
                # Another order of the same steps can fall to the other side, and be no less honest
                continue
            for rewrite in list_relations(session.program.ir):
                other = session.target.with_options(rewrite=rewrite)
                if session.is_agreeing(other, self.truth, (name,), self.terms):
                    facts = {
                        "target": session.target,
                        "mismatch": mismatch,
                        "arbiter": self.arbiter,
                        "other": other,
                    }
                    reason = make_reason(Cause.CONTRADICTED, **facts)
                    rules = (*self.rules, "self-contradiction")
                    return make_verdict(
                        "fail", reason, "mismatch", rules=rules, mismatch=mismatch, blame="compiler"
                    )
        return otherwise

    def judge_finding(
        self, finding: Finding, facts: dict[str, object], rules: tuple[str, ...], worst: Mismatch | None
    ) -> Verdict:
        """Return the verdict that follows from the program's operators."""
        rules = (*rules, *(rule for rule in finding.rules if rule not in rules))
        if finding.kind == "operators-agree":
            reason = make_reason(Cause.OPERATORS_AGREE, **facts)
            return make_verdict("pass", reason, rules=(*rules, "every-operator-agrees"))
        worst = Comparison({name: self.left[name] for name in finding.outputs}).worst or worst
        facts.update(operator=finding.operator, found=finding.found, mismatch=worst)
        if finding.kind == "outvoted":
            reason = make_reason(Cause.OUTVOTED, **facts, oracles=finding.oracles)
            return make_verdict(
                "pass", reason, rules=(*rules, "reference-outvoted"), operator=finding.operator
            )
        if finding.kind == "wrong":
            reason = make_reason(Cause.WRONG_OPERATOR, **facts)
            return make_verdict(
                "fail",
                reason,
                "mismatch",
                rules=rules,
                mismatch=worst,
                blame=finding.blame,
                operator=finding.operator,
            )
        reason = make_reason(Cause.ONE_ORACLE_OPERATOR, **facts)
        return make_verdict(
            "undecided", reason, "mismatch", rules=rules, mismatch=worst, operator=finding.operator
        )

    def judge_piece(
        self, piece: Program, inputs: Values, outputs: Values
    ) -> tuple[Verdict, JudgingSession] | None:
        """Judge `outputs` that the target gave for a part of the program, with the session; returns `None`
        without a reference.
        """
        outer = self.session
        session = JudgingSession(piece, inputs, outer.target, outer.lab, None, outer.oracles, outer.policy)
        right = session.run_target(self.arbiter)
        if right.outputs is None:
            return None
        terms = find_sum_lengths(right.hazards)
        found = compare(outputs, right.outputs, session.dtypes, session.policy, terms)
        if found.agrees:
            reason = make_reason(Cause.AGREES, target=outer.target, oracle=self.arbiter)
            return make_verdict("pass", reason, rules=found.rules), session
        judge = MismatchJudge(session, self.arbiter, outputs, terms, self.depth + 1)
        return judge.judge_comparison(found), session

    def list_confirming(self, name: str) -> list[str]:
        """List the oracles that confirm the arbiter's value: the first one that gives it, and the expected
        outputs.

        The native reference shares the arbiter's code and is excluded.
        """
        session = self.session
        found = []
        for oracle in session.list_confirming():
            agrees = session.is_agreeing(oracle, self.truth, (name,), self.terms)
            if agrees or self.is_rounded_to(oracle, name):
                found.append(oracle.display)
                break
        if session.expected is not None and name in session.expected and name in self.truth:
            wanted = {name: self.truth[name]}
            if compare(session.expected, wanted, session.dtypes, session.policy, self.terms).agrees:
                found.append(EXPECTED)
        return found

    def is_rounded_to(self, oracle: ResolvedTarget, name: str) -> bool:
        """Whether an oracle is within rounding of the arbiter's value, and the target a hundred times
        farther.
        """
        session, truth = self.session, self.truth[name]
        answer = session.run_target(oracle).outputs or {}
        off = compare(answer, {name: truth}, session.dtypes, session.policy, self.terms).mismatches[name]
        if (
            off.what != "value"
            or name not in self.moved
            or not self.moved[name].is_explaining(answer[name], session.policy)
        ):
            return False
        return error(self.outputs[name], truth) > _FAR * error(answer[name], truth)

    def drop_undefined(self, hazards: Sequence[Hazard]) -> None:
        """Drop outputs that depend on a result that ONNX leaves undefined."""
        for name in list(self.left):
            rules = list_open_rules(hazards, name)
            if rules:
                self.rules.extend(rule for rule in rules if rule not in self.rules)
                self.undefined = True
                del self.left[name]

    def drop_shared(self) -> None:
        """Drop outputs that all implementations get wrong by as much, because rounding errors grow."""
        session = self.session
        native = session.run_target(NATIVE)
        self.drop_undefined(native.hazards)
        peers = {
            name: [error(native.outputs[name], self.truth[name])] for name in self.left if native.outputs
        }
        for name, mismatch in list(self.left.items()):
            if mismatch.what in STRUCTURE or session.policy.tolerance is not None:
                continue
            own = error(self.outputs[name], self.truth[name])
            screen = session.policy.screen(session.dtypes.get(name, ""), self.terms.get(name, 0))
            errors = peers.get(name, [])
            for oracle in self.list_peers(name):
                if _is_shared(own, errors, screen):
                    break
                answer = session.run_target(oracle).outputs
                if answer is not None and name in answer:
                    # Another compiler can have the same fault: it counts up to the screen.
                    errors = [*errors, min(error(answer[name], self.truth[name]), screen)]
            if _is_shared(own, errors, screen):
                self.rules.append("peers-share-the-error")
                del self.left[name]

    def list_peers(self, name: str) -> list[ResolvedTarget]:
        """List the compilers that show the error of a correct compiler.

        Other builds of the target's compiler share its kernels and are excluded. If its unoptimised build is
        right, the list is empty, because only the optimiser is in question.
        """
        session, baseline = self.session, self.session.target.baseline
        if baseline is not None and session.is_agreeing(baseline, self.truth, (name,), self.terms):
            return []
        return [oracle for oracle in session.oracles if is_independent(session.target, oracle)]

    def drop_discontinuities(self) -> None:
        """Drop outputs that a value near a discontinuity explains."""
        session = self.session
        # Where values decide how many there are (NonZero, Unique), the shape is a matter of rounding too.
        wrong = [name for name, mismatch in self.left.items() if mismatch.what not in STRUCTURE - {"shape"}]
        ask = self.make_observer()
        graph = session.dataflow if wrong else None
        if graph is None:
            return
        values = session.inputs, self.outputs
        wide = self.arbiter == FLOAT64
        found = excuses(graph, *values, wrong, session.dtypes, session.policy, ask, wide=wide)
        excused = set(found) - find_wrong_by_integers(graph, session.inputs, self.outputs, found, ask)
        for name in filter(excused.__contains__, found):
            self.rules.append("jump")
            del self.left[name]

    def drop_magnified(self) -> None:
        """Drop outputs that one unit in the last place of earlier results explains, without a discontinuity
        behind them.
        """
        session = self.session
        graph, policy = session.dataflow, session.policy
        if graph is None or self.arbiter != FLOAT64 or policy.tolerance is not None:
            return
        wrong = [
            name
            for name, mismatch in self.left.items()
            if mismatch.what == "value" and not self.is_discontinuous(name)
        ]
        self.moved = measure_movements(graph, session.inputs, wrong, policy, self.make_observer())
        for name, movement in self.moved.items():
            if movement.is_explaining(self.outputs[name], policy):
                self.rules.append("rounding-magnified")
                del self.left[name]

    def is_discontinuous(self, name: str) -> bool:
        """Whether a discontinuity lies on the way to an output."""
        assert self.session.dataflow is not None
        found = find_points(self.session.dataflow, (name,))
        return bool(found.names or found.scales)

    def make_observer(self) -> Ask:
        """Return a function that runs changed models on the target and both references.

        Changed translations do not run on the target, since they would reach it through another importer. The
        native reference takes its place, so any value that rounding can lead to is excused.
        """
        session = self.session
        candidate = session.target if session.graph is not None else NATIVE
        targets = {"candidate": candidate, "native": NATIVE, "float64": self.arbiter}

        def ask(who: str, model: ModelProto, feeds: Values) -> Observation:
            program = OnnxProgram(model.SerializeToString(), session.program.name)
            return session.lab.observe(targets[who], program, feeds)

        return ask

    def judge_excused(self, worst: Mismatch | None) -> Verdict:
        """Return the verdict after every mismatch was excused."""
        rules = tuple(dict.fromkeys(self.rules))
        if self.undefined:
            reason = make_reason(Cause.UNDEFINED, rules=rules, mismatch=worst)
            return make_verdict("invalid", reason, "mismatch", rules=rules, mismatch=worst)
        return make_verdict(
            "pass",
            make_reason(Cause.WITHIN_RULES, target=self.session.target, rules=rules, mismatch=worst),
            rules=rules,
        )


def _is_shared(own: float, peers: Sequence[float], screen: float) -> bool:
    return bool(peers) and own <= _PEER_FACTOR * max(*peers, _PEER_FLOOR * screen)
