"""The one definition of what shows a failure, for every command that works on one.

A target shows a failure when the verdict on it is `fail`. `judge_program` gives that verdict with every
oracle that it takes. Replays, candidates of a reduction, releases and passes are many runs of one failure,
and cannot ask all oracles each time: `judge_run` gives the verdict on one run by the same rules, from that
run and from what an arbiter gives. No other module concludes a failure from how a run ended. Whether two
failures are the same is decided by `triage/fingerprint/sameness.py`.
"""

from opsieve.backends.compare import POLICY, Comparison, Policy, compare
from opsieve.backends.judge import derived_types, oracles, pieces
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import KIND_OF_OUTCOME, Verdict
from opsieve.gen.model.program import Program


def judge_run(
    program: Program,
    inputs: oracles.Values,
    target: ResolvedTarget,
    run: Observation,
    lab: oracles.Lab,
    *,
    right: Observation | None = None,
    blame: str = "",
    policy: Policy = POLICY,
    comes_and_goes: bool = False,
) -> Verdict:
    """Judge one run of `target` by that run and by the arbiter's run `right`.

    Args:
        lab: Runs other compilers to see who accepts a program that `target` calls unsupported.
        right: The arbiter's run; without one, outputs are not compared.
        comes_and_goes: Whether the failure is intermittent. Then a run that gives outputs proves that another
            run's `unsupported` is no missing feature, and `target` is asked once more.

    Returns:
        `fail` with its kind; `pass` for uncontradicted outputs; `undecided` if the arbiter gave no outputs;
        `unsupported` or `environment`. Only `judge_program` applies the oracles that excuse a failure
        (undefined results, rounding).
    """
    if run.outcome == "ok":
        # No arbiter: a run that gives outputs contradicts nothing.
        if right is None:
            return Verdict("pass", f"{target.display} gives outputs")
        if right.outputs is None:
            return Verdict("undecided", f"{right.target} gives no outputs to compare with")
        worst = compare_runs(program, run, right, policy).worst
        if worst is None:
            return Verdict("pass", f"{target.display} agrees with {right.target}")
        # Compared with itself on the plain program: the two are equivalent, so that one of them is wrong.
        other_meaning = target.rewrite and right.target == target.unrewritten.display
        return Verdict(
            "fail", "", "metamorphic" if other_meaning else "mismatch", "run", mismatch=worst, blame=blame
        )
    if run.outcome == "environment":
        return Verdict("environment", run.message, None, run.stage, run.message)
    if run.outcome == "unsupported" and not (
        find_acceptor_of_lack(program, inputs, target, run, lab)
        or (comes_and_goes and lab.observe(target, program, inputs, fresh=True).outcome == "ok")
    ):
        return Verdict("unsupported", run.message, None, run.stage, run.message)
    # An outcome without a kind of its own, such as `rejected`, is an error of the compiler here.
    kind = KIND_OF_OUTCOME.get(run.outcome, "error")
    return Verdict("fail", run.message, kind, run.stage, run.message, blame=blame)


def compare_runs(
    program: Program, run: Observation, right: Observation, policy: Policy = POLICY
) -> Comparison:
    """Compare the outputs of a run with those of the arbiter, or their types with those that shape inference
    derives.
    """
    # Shape inference derives types and no values.
    if right.target == str(oracles.DERIVING):
        return Comparison(
            derived_types.find_contradictions(run.outputs or {}, derived_types.read_derived(right))
        )
    return compare(run.outputs or {}, right.outputs or {}, program.output_dtypes(), policy)


def is_refusal(run: Observation) -> bool:
    """Whether the compiler refuses the program: it raised an error or died. A missing feature is not a
    refusal.
    """
    return run.outcome in KIND_OF_OUTCOME


def is_acceptance(run: Observation) -> bool:
    """Whether the compiler accepts the program: it gave outputs. For an invalid program this is the
    failure.
    """
    return run.outcome == "ok"


def find_acceptor_of_lack(
    program: Program, inputs: oracles.Values, target: ResolvedTarget, lack: Observation, lab: oracles.Lab
) -> str:
    """Name the compiler that takes a program called unsupported, or "": then the need for the feature is the
    optimiser's own.

    The unoptimised build runs; without one, the target itself, operator by operator. Passes of the program
    may have requirements, which are not faults: the unoptimised build leaves the passes out. A transformer
    raises an error for an unsupported operator that it made.
    """
    # Such a target says for certain what it lacks, or a pass may require it.
    if program.passes or target.facts.states_lacks:
        return ""
    baseline = target.baseline
    if baseline is not None:
        return f"{baseline.display} runs" if lab.observe(baseline, program, inputs).outcome == "ok" else ""
    return (
        "it takes operator by operator"
        if pieces.accepts_each_operator(program, inputs, target, lab, lack)
        else ""
    )
