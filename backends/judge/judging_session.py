"""One judgement in progress: its lab, and the answer of each oracle."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from onnx import ModelProto

from opsieve.backends import registry, verdict
from opsieve.backends.compare import Policy, compare
from opsieve.backends.judge.oracles import DERIVING, Lab, Values, is_independent
from opsieve.backends.judge.reasons import Cause, make_reason, make_verdict
from opsieve.backends.observation import Hazard, Observation
from opsieve.backends.reference.reference import REFUSED
from opsieve.gen.declarations.properties import ACCUMULATION, RANDOM
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program


class JudgingSession:
    """The program, the target, and the answers so far.

    Each oracle runs once; fresh runs of the target are extra. `expected` are outputs that the user vouches
    for, `oracles` further targets that may run.
    """

    def __init__(
        self,
        program: Program,
        inputs: Values,
        target: registry.ResolvedTarget,
        lab: Lab,
        expected: Mapping[str, Any] | None,
        oracles: Sequence[registry.ResolvedTarget],
        policy: Policy,
    ) -> None:
        self.program, self.inputs, self.target, self.lab = program, inputs, target, lab
        self.expected, self.policy = expected, policy.widen(program.computing_dtype)
        self.dtypes = program.output_dtypes()
        # None where the program has none: then nothing is known of where it jumps and of its operators.
        self.graph: ModelProto | None = ir_of(program).graph(program)
        self.observations: list[Observation] = []
        self.consulted: list[str] = []
        self.answers: dict[registry.ResolvedTarget, Observation] = {}
        # One that gives no outputs says nothing of a compiler's, nor that it had to run the program.
        self.oracles = [oracle for oracle in oracles if oracle != target and oracle.facts.computes]

    @cached_property
    def translation(self) -> OnnxProgram | None:
        """The program in ONNX, specialised to its inputs, for oracles of no other IR.

        None for a program with no translation.
        """
        translator = ir_of(self.program).translator
        if not translator:
            return None
        answer = self.lab.observe(registry.resolve(translator), self.program, self.inputs).outputs or {}
        return OnnxProgram(answer["model"].tobytes(), self.program.name) if "model" in answer else None

    @property
    def dataflow(self) -> ModelProto | None:
        """The graph, or that of the translation, in which jumps and magnified rounding are found."""
        if self.graph is not None:
            return self.graph
        return self.translation.proto if self.translation is not None else None

    def run_target(self, target: registry.ResolvedTarget) -> Observation:
        """Return the observation of the target or an oracle, running it if necessary.

        An oracle of another IR runs the translation.
        """
        if target not in self.answers:
            program, inputs = self.program, self.inputs
            # Only for oracles: a translation is another program, and says nothing about the target itself.
            is_oracle = is_independent(self.target, target) and program.ir not in target.irs
            if is_oracle and self.translation is not None:
                program = self.translation
                # The translation is specialised to some inputs, which it no longer takes.
                inputs = {name: inputs[name] for name in self.translation.inputs()}
            self.answers[target] = self.lab.observe(target, program, inputs)
            self.observations.append(self.answers[target])
            # An oracle that could not be asked is not cited as one.
            if target != self.target and self.answers[target].outcome not in ("environment", "unsupported"):
                self.consulted.append(target.display)
        return self.answers[target]

    def observe(
        self,
        target: registry.ResolvedTarget,
        program: Program,
        inputs: Values,
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        """Observe like a Lab; runs of the judged program become evidence."""
        # By identity: another program object may hold the same bytes with other inputs.
        if program is self.program and not fresh and not repeat:
            return self.run_target(target)
        return self.lab.observe(target, program, inputs, fresh=fresh, repeat=repeat)

    def list_asked(self) -> list[str]:
        """List every implementation that ran beside the target, with its outcome."""
        asked = [
            (each, answer) for each, answer in self.answers.items() if each not in (self.target, DERIVING)
        ]
        return [
            f"{each.display}"
            f" ({'refused by onnx.checker' if is_refused_by_checker(answer) else answer.outcome})"
            for each, answer in asked
        ]

    def run_again(self) -> Observation:
        """Run the target in a fresh process."""
        observation = self.lab.observe(self.target, self.program, self.inputs, fresh=True)
        self.observations.append(observation)
        return observation

    def list_confirming(self) -> list[registry.ResolvedTarget]:
        """List the oracles that can confirm the reference against the target.

        These are its unoptimised build, then every independent compiler. For a rewritten program the target
        on the original program comes first.
        """
        baseline = self.target.baseline
        others = [
            oracle for oracle in self.oracles if oracle != baseline and is_independent(self.target, oracle)
        ]
        own = [self.target.unrewritten] if self.target.rewrite else []
        return [*own, *others] if baseline is None else [*own, baseline, *others]

    def find_agreeing_host(self, outputs: Values, names: Sequence[str]) -> registry.ResolvedTarget | None:
        """Return the host if it gives the same named outputs for the original program: then the target is not
        at fault.
        """
        host = self.target.runtime
        # A missing output is the transformer's doing; the host has no part in it.
        if host is None or not all(name in outputs for name in names):
            return None
        return host if self.is_agreeing(host, outputs, names) else None

    def judge_host_fault(
        self, host: registry.ResolvedTarget, worst: verdict.Mismatch | None, rules: tuple[str, ...] = ()
    ) -> verdict.Verdict:
        """Return the verdict for a host that gives the same wrong outputs."""
        reason = make_reason(Cause.HOST_AGREES, host=host, target=self.target, mismatch=worst)
        return make_verdict("undecided", reason, "mismatch", rules=rules, mismatch=worst)

    def is_agreeing(
        self,
        oracle: registry.ResolvedTarget,
        truth: Mapping[str, Any],
        names: Sequence[str],
        terms: Mapping[str, int] | None = None,
    ) -> bool:
        """Whether an oracle gives the named outputs of `truth`."""
        answer = self.run_target(oracle)
        wanted = {name: truth[name] for name in names if name in truth}
        return (
            answer.outputs is not None
            and compare(answer.outputs, wanted, self.dtypes, self.policy, terms).agrees
        )

    def judge_other_causes(
        self, outputs: Values, names: Sequence[str], worst: verdict.Mismatch | None
    ) -> verdict.Verdict | None:
        """Judge outputs that change from run to run, or that the host gives by itself; None for others."""
        changed = self.judge_repetition(outputs, names)
        if changed is not None:
            return changed
        host = self.find_agreeing_host(outputs, names)
        return None if host is None else self.judge_host_fault(host, worst)

    def judge_repetition(self, outputs: Values, names: Sequence[str]) -> verdict.Verdict | None:
        """Judge a target that gives other outputs in a fresh process; None if it gives the same.

        If the second run gives no outputs, the failure is intermittent, and its kind is that of the run.
        """
        second = self.run_again()
        if second.outputs is None:
            # It shows the failure, so frames and message are read from it.
            self.observations.insert(0, self.observations.pop())
            reason = make_reason(Cause.ENDED_LATER, target=self.target, outcome=second.outcome, ending=second)
            return make_verdict("flaky", reason, verdict.KIND_OF_OUTCOME.get(second.outcome, "error"), second)
        first = {name: outputs[name] for name in names if name in outputs}
        # By tolerance and not by bits: threads may sum in another order.
        worst = compare(second.outputs, first, {}, self.policy).worst
        if worst is None:
            return None
        reason = make_reason(Cause.CHANGED, target=self.target, mismatch=worst)
        return make_verdict("fail", reason, "nondeterminism", mismatch=worst)


def is_refused_by_checker(answer: Observation) -> bool:
    """Whether the reference ran a model that onnx's checker refuses."""
    return any(note.startswith(REFUSED) for note in answer.notes)


def list_open_rules(hazards: Sequence[Hazard], output: str | None) -> tuple[str, ...]:
    """List rules of the hazards that reach one output; for None, of all except random operators."""
    return tuple(
        dict.fromkeys(
            hazard.rule
            for hazard in hazards
            if not hazard.rule.startswith(ACCUMULATION)
            if (output in hazard.outputs if output is not None else hazard.rule != RANDOM)
        )
    )


def find_sum_lengths(hazards: Sequence[Hazard]) -> dict[str, int]:
    """Return the longest sum that feeds each output, for outputs with a sum long enough to matter."""
    terms: dict[str, int] = {}
    for hazard in hazards:
        rule, _, count = hazard.rule.partition(":")
        if rule == ACCUMULATION and count.isdigit():
            for name in hazard.outputs:
                terms[name] = max(terms.get(name, 0), int(count))
    return terms
