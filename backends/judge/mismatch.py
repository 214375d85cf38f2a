"""A mismatch between a target and the reference: what excuses it, and who is to blame otherwise.

Each output is looked at by itself: one that nobody can confirm hides no other. Where the reference stands
alone against the target, the first operator that differs given equal inputs is looked for and asked of
everybody (opsieve.backends.judge.localise).
"""

from collections.abc import Mapping, Sequence

from onnx import ModelProto

from opsieve.backends.compare import Comparison, compare, error
from opsieve.backends.judge.derived_types import RULE, derive, describe_type, find_contradictions, judge_types
from opsieve.backends.judge.discontinuities import excuses
from opsieve.backends.judge.discontinuity_points import Ask, points
from opsieve.backends.judge.integer_results import wrong_by_integers
from opsieve.backends.judge.judging_session import JudgingSession, open_rules, sum_lengths
from opsieve.backends.judge.levels import disagreement
from opsieve.backends.judge.localise import Dispute, Finding, settle
from opsieve.backends.judge.oracles import EXPECTED, FLOAT64, NATIVE, Values, independent
from opsieve.backends.judge.perturbation import Movement, movements
from opsieve.backends.judge.reasons import Cause, because, verdict
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
    """The target's outputs differ from the arbiter's: which differences are excused, and who is to blame for
    the others.
    """

    def __init__(
        self,
        session: JudgingSession,
        arbiter: ResolvedTarget,
        outputs: Values,
        terms: Mapping[str, int],
        depth: int = 0,
    ) -> None:
        self.session, self.arbiter, self.outputs, self.terms, self.depth = (
            session,
            arbiter,
            outputs,
            terms,
            depth,
        )
        self.right = session.ask(arbiter)
        self.truth: Values = self.right.outputs or {}
        self.left: dict[str, Mismatch] = {}
        self.rules: list[str] = []
        self.undefined = False
        self.moved: dict[str, Movement] = {}  # of the outputs that are wrong, by rounding

    def verdict(self, found: Comparison) -> Verdict:
        """What is left of the mismatches once every rule had its say."""
        session = self.session
        self.left = dict(found.mismatches)
        self.rules.extend(found.rules)
        self.drop_undefined(self.right.hazards)
        if self.left and not self.depth:
            changed = session.repeats(self.outputs, tuple(self.left))
            if changed is not None:
                return changed
            self.drop_shared()
        if self.left:
            self.drop_discontinuities()
        if self.left:
            self.drop_magnified()
        if not self.left:
            return self.excused(found.worst)
        worst = Comparison(self.left).worst
        shared = {name: session.host_shares(self.outputs, (name,)) for name in self.left}
        self.left = {name: mismatch for name, mismatch in self.left.items() if shared[name] is None}
        if not self.left:
            return session.fault_of(next(filter(None, shared.values())), worst, tuple(self.rules))
        confirmed = {name: seconds for name in self.left if (seconds := self.seconds(name))}
        if confirmed:
            return self.wrong(confirmed)
        return self.of_another_type() or self.alone(found.worst)

    def of_another_type(self) -> Verdict | None:
        """The failure of an output whose shape or dtype shape inference or the reference contradicts, whoever
        agrees with the target.

        The reference alone does not decide on a shape that values near a discontinuity can change, nor where
        inference contradicts the reference.
        """
        session = self.session
        shaped = [name for name, mismatch in self.left.items() if mismatch.what in ("shape", "dtype")]
        if self.depth or not shaped or session.graph is None:
            return None
        contradicted = judge_types(session, self.outputs)
        if contradicted is not None:
            return contradicted
        native = session.ask(NATIVE).outputs or {}
        doubtful = find_contradictions(native, derive(session))
        given = {
            name: type_of(native.get(name))
            for name in shaped
            if name not in doubtful and not self.jumps(name)
        }
        types = {name: read_type(type_) for name, type_ in given.items() if type_ is not None}
        worst = Comparison(find_contradictions(self.outputs, types)).worst
        if worst is None:
            return None
        reason = because(
            Cause.CONTRADICTS_REFERENCE, target=session.target, arbiter=self.arbiter, **describe_type(worst)
        )
        return verdict(
            "fail", reason, "mismatch", rules=(*self.rules, RULE), mismatch=worst, blame="compiler"
        )

    def wrong(self, confirmed: Mapping[str, Sequence[str]]) -> Verdict:
        """The failure: the worst of the outputs whose value a second oracle confirms."""
        session = self.session
        worst = Comparison({name: self.left[name] for name in confirmed}).worst
        assert worst is not None
        seconds = next(oracles for name, oracles in confirmed.items() if self.left[name] is worst)
        baseline = session.target.baseline
        blame = "optimiser" if baseline is not None and baseline.display in seconds else "compiler"
        facts = {"target": session.target, "mismatch": worst, "arbiter": self.arbiter, "oracles": seconds}
        reason = because(Cause.WRONG, **facts)
        return verdict("fail", reason, "mismatch", rules=tuple(self.rules), mismatch=worst, blame=blame)

    def alone(self, shown: Mismatch | None) -> Verdict:
        """The verdict where nobody confirms the arbiter: on the first operator that differs given equal
        inputs.
        """
        session = self.session
        rules, worst = tuple(self.rules), Comparison(self.left).worst
        facts: dict[str, object] = {"target": session.target, "arbiter": self.arbiter, "mismatch": worst}
        plain = verdict(
            "undecided", because(Cause.ONE_ORACLE, **facts), "mismatch", rules=rules, mismatch=worst
        )
        if self.depth or session.graph is None:
            return plain
        finding = settle(
            Dispute(session, session.graph, self.arbiter, self.outputs, tuple(self.left)),
            self.judge_piece,
        )
        found = plain if finding is None else self.settled(finding, facts, rules, worst or shown)
        if found.verdict != "undecided":
            return found
        decided = self.outvoted(facts) or self.contradicted(found)
        if decided.verdict != "undecided":
            return decided
        names, rules = tuple(self.left), tuple(self.rules)
        return disagreement(session, self.outputs, names, self.terms, rules, measured=True) or decided

    def outvoted(self, facts: Mapping[str, object]) -> Verdict | None:
        """The pass where two compilers that share nothing with the target or each other give what it gives,
        against the arbiter.
        """
        session = self.session
        agree = [
            each
            for each in session.oracles
            if independent(session.target, each) and session.agrees(each, self.outputs, tuple(self.left))
        ]
        if len({each.family for each in agree}) < _OUTVOTING:
            return None
        reason = because(Cause.OUTVOTED, **{**facts, "operator": "the program", "oracles": agree})
        return verdict("pass", reason, rules=(*self.rules, "reference-outvoted"))

    def contradicted(self, otherwise: Verdict) -> Verdict:
        """The failure where the target itself gives the arbiter's value of an output once the program is
        rewritten (gen/rewrites).
        """
        session = self.session
        if session.target.rewrite or session.graph is None:
            return otherwise
        for name, mismatch in self.left.items():
            if self.jumps(name):
                continue  # another order of the same steps can fall to the other side, and be no less honest
            for rewrite in list_relations(session.program.ir):
                other = session.target.with_options(rewrite=rewrite)
                if session.agrees(other, self.truth, (name,), self.terms):
                    facts = {
                        "target": session.target,
                        "mismatch": mismatch,
                        "arbiter": self.arbiter,
                        "other": other,
                    }
                    reason = because(Cause.CONTRADICTED, **facts)
                    rules = (*self.rules, "self-contradiction")
                    return verdict(
                        "fail", reason, "mismatch", rules=rules, mismatch=mismatch, blame="compiler"
                    )
        return otherwise

    def settled(
        self, finding: Finding, facts: dict[str, object], rules: tuple[str, ...], worst: Mismatch | None
    ) -> Verdict:
        """The verdict that the operators of the program give."""
        rules = (*rules, *(rule for rule in finding.rules if rule not in rules))
        if finding.kind == "operators-agree":
            reason = because(Cause.OPERATORS_AGREE, **facts)
            return verdict("pass", reason, rules=(*rules, "every-operator-agrees"))
        worst = Comparison({name: self.left[name] for name in finding.outputs}).worst or worst
        facts.update(operator=finding.operator, found=finding.found, mismatch=worst)
        if finding.kind == "outvoted":
            reason = because(Cause.OUTVOTED, **facts, oracles=finding.oracles)
            return verdict("pass", reason, rules=(*rules, "reference-outvoted"), operator=finding.operator)
        if finding.kind == "wrong":
            reason = because(Cause.WRONG_OPERATOR, **facts)
            return verdict(
                "fail",
                reason,
                "mismatch",
                rules=rules,
                mismatch=worst,
                blame=finding.blame,
                operator=finding.operator,
            )
        reason = because(Cause.ONE_ORACLE_OPERATOR, **facts)
        return verdict(
            "undecided", reason, "mismatch", rules=rules, mismatch=worst, operator=finding.operator
        )

    def judge_piece(
        self, piece: Program, inputs: Values, outputs: Values
    ) -> tuple[Verdict, JudgingSession] | None:
        """The verdict on `outputs` that the target gave inside the program for a part of it, and who was
        asked; None without a reference.
        """
        outer = self.session
        session = JudgingSession(piece, inputs, outer.target, outer.lab, None, outer.oracles, outer.policy)
        right = session.ask(self.arbiter)
        if right.outputs is None:
            return None
        terms = sum_lengths(right.hazards)
        found = compare(outputs, right.outputs, session.dtypes, session.policy, terms)
        if found.agrees:
            reason = because(Cause.AGREES, target=outer.target, oracle=self.arbiter)
            return verdict("pass", reason, rules=found.rules), session
        return MismatchJudge(session, self.arbiter, outputs, terms, self.depth + 1).verdict(found), session

    def seconds(self, name: str) -> list[str]:
        """Who confirms the arbiter's value of an output: the first witness that gives it, and the user's
        expected outputs.

        The native reference shares the arbiter's code, and is none.
        """
        session = self.session
        found = []
        for oracle in session.witnesses():
            if session.agrees(oracle, self.truth, (name,), self.terms) or self.rounds_to(oracle, name):
                found.append(oracle.display)
                break
        if session.expected is not None and name in session.expected and name in self.truth:
            wanted = {name: self.truth[name]}
            if compare(session.expected, wanted, session.dtypes, session.policy, self.terms).agrees:
                found.append(EXPECTED)
        return found

    def rounds_to(self, oracle: ResolvedTarget, name: str) -> bool:
        """Whether an oracle is off the arbiter's value by no more than rounding moves it, and the target a
        hundred times farther.
        """
        session, truth = self.session, self.truth[name]
        answer = session.ask(oracle).outputs or {}
        off = compare(answer, {name: truth}, session.dtypes, session.policy, self.terms).mismatches[name]
        if (
            off.what != "value"
            or name not in self.moved
            or not self.moved[name].explains(answer[name], session.policy)
        ):
            return False
        return error(self.outputs[name], truth) > _FAR * error(answer[name], truth)

    def drop_undefined(self, hazards: Sequence[Hazard]) -> None:
        """Leave out what depends on a result that ONNX leaves undefined."""
        for name in list(self.left):
            rules = open_rules(hazards, name)
            if rules:
                self.rules.extend(rule for rule in rules if rule not in self.rules)
                self.undefined = True
                del self.left[name]

    def drop_shared(self) -> None:
        """Leave out what everybody gets wrong as much: the program magnifies rounding errors."""
        session = self.session
        native = session.ask(NATIVE)
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
            for oracle in self.peers_of(name):
                if _shared(own, errors, screen):
                    break
                answer = session.ask(oracle).outputs
                if answer is not None and name in answer:
                    # Another compiler can have the same fault: it counts up to the screen.
                    errors = [*errors, min(error(answer[name], self.truth[name]), screen)]
            if _shared(own, errors, screen):
                self.rules.append("peers-share-the-error")
                del self.left[name]

    def peers_of(self, name: str) -> list[ResolvedTarget]:
        """Return the compilers that tell how far off an honest compiler is.

        Other builds of the target's compiler are none: they share its kernels. Where its unoptimised build is
        right, no other compiler is asked, for the optimiser alone is in question.
        """
        session, baseline = self.session, self.session.target.baseline
        if baseline is not None and session.agrees(baseline, self.truth, (name,), self.terms):
            return []
        return [oracle for oracle in session.oracles if independent(session.target, oracle)]

    def drop_discontinuities(self) -> None:
        """Leave out what a value near a discontinuity explains."""
        session = self.session
        # Where values decide how many there are (NonZero, Unique), the shape is a matter of rounding too.
        wrong = [name for name, mismatch in self.left.items() if mismatch.what not in STRUCTURE - {"shape"}]
        ask = self.observer()
        graph = session.dataflow if wrong else None
        if graph is None:
            return
        found = excuses(
            graph, session.inputs, self.outputs, wrong, session.dtypes, session.policy, ask,
            wide=self.arbiter == FLOAT64,
        )  # fmt: skip
        excused = set(found) - wrong_by_integers(graph, session.inputs, self.outputs, found, ask)
        for name in filter(excused.__contains__, found):
            self.rules.append("jump")
            del self.left[name]

    def drop_magnified(self) -> None:
        """Leave out what a unit in the last place of the results on the way explains, with no discontinuity
        behind them.
        """
        session = self.session
        graph, policy = session.dataflow, session.policy
        if graph is None or self.arbiter != FLOAT64 or policy.tolerance is not None:
            return
        wrong = [
            name for name, mismatch in self.left.items() if mismatch.what == "value" and not self.jumps(name)
        ]
        self.moved = movements(graph, session.inputs, wrong, policy, self.observer())
        for name, movement in self.moved.items():
            if movement.explains(self.outputs[name], policy):
                self.rules.append("rounding-magnified")
                del self.left[name]

    def jumps(self, name: str) -> bool:
        """Whether a discontinuity lies on the way to an output."""
        assert self.session.dataflow is not None
        found = points(self.session.dataflow, (name,))
        return bool(found.names or found.scales)

    def observer(self) -> Ask:
        """What asks the target and both references about changed models.

        The target is not asked about changed translations, which reach it through another importer: an
        honest evaluation stands for it, so any value that rounding can lead to is excused.
        """
        session = self.session
        candidate = session.target if session.graph is not None else NATIVE
        targets = {"candidate": candidate, "native": NATIVE, "float64": self.arbiter}

        def ask(who: str, model: ModelProto, feeds: Values) -> Observation:
            program = OnnxProgram(model.SerializeToString(), session.program.name)
            return session.lab.observe(targets[who], program, feeds)

        return ask

    def excused(self, worst: Mismatch | None) -> Verdict:
        """The verdict when nothing is left."""
        rules = tuple(dict.fromkeys(self.rules))
        if self.undefined:
            reason = because(Cause.UNDEFINED, rules=rules, mismatch=worst)
            return verdict("invalid", reason, "mismatch", rules=rules, mismatch=worst)
        return verdict(
            "pass",
            because(Cause.WITHIN_RULES, target=self.session.target, rules=rules, mismatch=worst),
            rules=rules,
        )


def _shared(own: float, peers: Sequence[float], screen: float) -> bool:
    return bool(peers) and own <= _PEER_FACTOR * max(*peers, _PEER_FLOOR * screen)
