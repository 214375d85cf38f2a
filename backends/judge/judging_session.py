"""One judgement while it is under way: the lab it asks, and what each oracle answered."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from onnx import ModelProto

from opsieve.backends.compare import Policy, compare
from opsieve.backends.judge.oracles import DERIVING, Lab, Values, independent
from opsieve.backends.judge.reasons import Cause, because, verdict
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.reference.reference import REFUSED
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.verdict import KIND_OF_OUTCOME, Mismatch, Verdict
from opsieve.gen.declarations.properties import ACCUMULATION, RANDOM
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program


class JudgingSession:
    """The program, the target, and who was asked what. Each oracle is asked once; fresh runs of the target
    are extra.

    `expected` are outputs that the user vouches for, `oracles` further targets that may be asked.
    """

    def __init__(
        self,
        program: Program,
        inputs: Values,
        target: ResolvedTarget,
        lab: Lab,
        expected: Mapping[str, Any] | None,
        oracles: Sequence[ResolvedTarget],
        policy: Policy,
    ) -> None:
        self.program, self.inputs, self.target, self.lab = program, inputs, target, lab
        self.expected, self.policy = expected, policy
        self.dtypes = program.output_dtypes()
        # None where the program has none: then nothing is known of where it jumps and of its operators.
        self.graph: ModelProto | None = ir_of(program).graph(program)
        self.observations: list[Observation] = []
        self.consulted: list[str] = []
        self.answers: dict[ResolvedTarget, Observation] = {}
        self.oracles = [oracle for oracle in oracles if oracle != target]

    @cached_property
    def translation(self) -> OnnxProgram | None:
        """The program in ONNX, specialised to its inputs, for oracles that take no other IR; None where it
        has none.
        """
        translator = ir_of(self.program).translator
        if not translator:
            return None
        answer = self.lab.observe(resolve(translator), self.program, self.inputs).outputs or {}
        return OnnxProgram(answer["model"].tobytes(), self.program.name) if "model" in answer else None

    @property
    def dataflow(self) -> ModelProto | None:
        """The graph, or that of the translation: what tells where the program jumps and magnifies rounding."""
        if self.graph is not None:
            return self.graph
        return self.translation.proto if self.translation is not None else None

    def ask(self, target: ResolvedTarget) -> Observation:
        """What the target or an oracle answers; an oracle of another IR is asked about the translation."""
        if target not in self.answers:
            program, inputs = self.program, self.inputs
            is_oracle = independent(self.target, target) and program.ir not in target.irs
            if is_oracle and self.translation is not None:
                program = self.translation
                inputs = {name: inputs[name] for name in self.translation.inputs()}
            self.answers[target] = self.lab.observe(target, program, inputs)
            self.observations.append(self.answers[target])
            if target != self.target and self.answers[target].outcome not in ("environment", "unsupported"):
                self.consulted.append(target.display)
        return self.answers[target]

    def observe(
        self, target: ResolvedTarget, program: Program, inputs: Values, *, fresh: bool = False
    ) -> Observation:
        """As a Lab: an answer about the judged program belongs to the evidence."""
        if program is self.program and not fresh:
            return self.ask(target)
        return self.lab.observe(target, program, inputs, fresh=fresh)

    def list_asked(self) -> list[str]:
        """Every implementation that was asked beside the target, with how it ended."""
        asked = [
            (each, answer) for each, answer in self.answers.items() if each not in (self.target, DERIVING)
        ]
        return [
            f"{each.display}"
            f" ({'refused by onnx.checker' if is_refused_by_checker(answer) else answer.outcome})"
            for each, answer in asked
        ]

    def again(self) -> Observation:
        """What the target does in a fresh process."""
        observation = self.lab.observe(self.target, self.program, self.inputs, fresh=True)
        self.observations.append(observation)
        return observation

    def witnesses(self) -> list[ResolvedTarget]:
        """Who can confirm the reference against the target: its unoptimised build, then every other
        independent compiler.

        A target that is given a rewritten program can be contradicted by itself, on the program as it is,
        before all others.
        """
        baseline = self.target.baseline
        others = [
            oracle for oracle in self.oracles if oracle != baseline and independent(self.target, oracle)
        ]
        own = [self.target.unrewritten] if self.target.rewrite else []
        return [*own, *others] if baseline is None else [*own, baseline, *others]

    def host_shares(self, outputs: Values, names: Sequence[str]) -> ResolvedTarget | None:
        """The host, when it gives the same named outputs for the original program: then they are no fault of
        the target's.
        """
        host = self.target.runtime
        if host is None or not all(name in outputs for name in names):
            return None
        return host if self.agrees(host, outputs, names) else None

    def fault_of(self, host: ResolvedTarget, worst: Mismatch | None, rules: tuple[str, ...] = ()) -> Verdict:
        """The verdict where the host gives the same wrong outputs."""
        reason = because(Cause.HOST_AGREES, host=host, target=self.target, mismatch=worst)
        return verdict("undecided", reason, "mismatch", rules=rules, mismatch=worst)

    def agrees(
        self,
        oracle: ResolvedTarget,
        truth: Mapping[str, Any],
        names: Sequence[str],
        terms: Mapping[str, int] | None = None,
    ) -> bool:
        """Whether an oracle gives the named outputs of `truth`."""
        answer = self.ask(oracle)
        wanted = {name: truth[name] for name in names if name in truth}
        return (
            answer.outputs is not None
            and compare(answer.outputs, wanted, self.dtypes, self.policy, terms).agrees
        )

    def repeats(self, outputs: Values, names: Sequence[str]) -> Verdict | None:
        """Return the verdict on a target whose outputs a fresh process does not repeat, None where it does.

        A run that ends without outputs is an intermittent failure of the kind of that ending: replays show
        it as this kind.
        """
        second = self.again()
        if second.outputs is None:
            reason = because(Cause.ENDED_LATER, target=self.target, outcome=second.outcome, ending=second)
            return verdict("flaky", reason, KIND_OF_OUTCOME.get(second.outcome, "error"), second)
        first = {name: outputs[name] for name in names if name in outputs}
        worst = compare(second.outputs, first, {}, self.policy).worst
        if worst is None:
            return None
        reason = because(Cause.CHANGED, target=self.target, mismatch=worst)
        return verdict("fail", reason, "nondeterminism", mismatch=worst)


def is_refused_by_checker(answer: Observation) -> bool:
    """Whether the reference ran a model that onnx's checker refuses."""
    return any(note.startswith(REFUSED) for note in answer.notes)


def open_rules(hazards: Sequence[Hazard], output: str | None) -> tuple[str, ...]:
    """Rules of the hazards that reach one output; for None, of all but random operators."""
    return tuple(
        dict.fromkeys(
            hazard.rule
            for hazard in hazards
            if not hazard.rule.startswith(ACCUMULATION)
            if (output in hazard.outputs if output is not None else hazard.rule != RANDOM)
        )
    )


def sum_lengths(hazards: Sequence[Hazard]) -> dict[str, int]:
    """The longest sum that feeds each output, where it is long enough to tell."""
    terms: dict[str, int] = {}
    for hazard in hazards:
        rule, _, count = hazard.rule.partition(":")
        if rule == ACCUMULATION and count.isdigit():
            for name in hazard.outputs:
                terms[name] = max(terms.get(name, 0), int(count))
    return terms
