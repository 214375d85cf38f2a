"""What shows a failure: the one definition, for every command that works on one.

A target shows a failure when the verdict on it is `fail`. `judge` gives that verdict with every oracle that
it takes. Replays, candidates of a reduction, releases and passes are many runs of one failure, and cannot ask
all oracles each time: `judge_run` gives the verdict on one run by the same rules, from that run and from what
an arbiter gives. No other module concludes a failure from how a run ended. Whether two failures are the same
is decided by `triage/fingerprint/sameness.py`.
"""

from opsieve.backends.compare import POLICY, Comparison, Policy, compare
from opsieve.backends.judge.derived_types import find_contradictions, read_derived
from opsieve.backends.judge.oracles import DERIVING, Lab, Values
from opsieve.backends.judge.pieces import accepts_each_operator
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import KIND_OF_OUTCOME, Verdict
from opsieve.gen.model.program import Program


def judge_run(
    program: Program,
    inputs: Values,
    target: ResolvedTarget,
    run: Observation,
    lab: Lab,
    *,
    right: Observation | None = None,
    blame: str = "",
    policy: Policy = POLICY,
) -> Verdict:
    """Judge one run of `target` by that run and by the arbiter's run `right`.

    Args:
        lab: Asked who accepts a program that `target` says it does not support.
        right: What the arbiter gives; without one, outputs are not compared.

    Returns:
        `fail` with its kind; `pass` for outputs that nothing contradicts; `undecided` when the arbiter gave
        no outputs to compare with; `unsupported` or `environment`. Of oracles that excuse a failure
        (undefined results, rounding) only `judge` knows.
    """
    if run.outcome == "ok":
        if right is None:
            return Verdict("pass", f"{target.display} gives outputs")
        if right.outputs is None:
            return Verdict("undecided", f"{right.target} gives no outputs to compare with")
        worst = compare_runs(program, run, right, policy).worst
        if worst is None:
            return Verdict("pass", f"{target.display} agrees with {right.target}")
        other_meaning = target.rewrite and right.target == target.unrewritten.display
        return Verdict(
            "fail", "", "metamorphic" if other_meaning else "mismatch", "run", mismatch=worst, blame=blame
        )
    if run.outcome == "environment":
        return Verdict("environment", run.message, None, run.stage, run.message)
    if run.outcome == "unsupported" and not find_acceptor_of_lack(program, inputs, target, run, lab):
        return Verdict("unsupported", run.message, None, run.stage, run.message)
    kind = KIND_OF_OUTCOME.get(run.outcome, "error")
    return Verdict("fail", run.message, kind, run.stage, run.message, blame=blame)


def compare_runs(
    program: Program, run: Observation, right: Observation, policy: Policy = POLICY
) -> Comparison:
    """Compare the outputs of a run with those of the arbiter, or their types with those that shape inference
    derives.
    """
    if right.target == str(DERIVING):
        return Comparison(find_contradictions(run.outputs or {}, read_derived(right)))
    return compare(run.outputs or {}, right.outputs or {}, program.output_dtypes(), policy)


def is_refusal(run: Observation) -> bool:
    """Whether a run says that its compiler does not accept the program: it raised an error or died. A lack
    says nothing of the program.
    """
    return run.outcome in KIND_OF_OUTCOME


def is_acceptance(run: Observation) -> bool:
    """Whether a run says that its compiler accepts the program: it gave outputs. For a program that has no
    meaning, this is the failure.
    """
    return run.outcome == "ok"


def find_acceptor_of_lack(
    program: Program, inputs: Values, target: ResolvedTarget, lack: Observation, lab: Lab
) -> str:
    """Say who takes a program that a compiler says it does not support, "" for nobody: taken by one, the
    compiler made what it lacks.

    The unoptimised build is asked; where there is none, the target itself, operator by operator. Where passes
    belong to the program, what they say that they want of it is no fault: the unoptimised build leaves them
    out. So it is with a transformer, which raises an error for a lack that it made.
    """
    if program.passes or target.facts.states_lacks:
        return ""
    baseline = target.baseline
    if baseline is not None:
        return f"{baseline.display} runs" if lab.observe(baseline, program, inputs).outcome == "ok" else ""
    return (
        "it takes operator by operator" if accepts_each_operator(program, inputs, target, lab, lack) else ""
    )
