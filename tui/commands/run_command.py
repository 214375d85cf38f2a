"""`opsieve run`: judge models on targets."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsieve.backends.judge.judge import Judged
    from opsieve.backends.target import Target
    from opsieve.backends.workers.observation_cache import ObservationCache
    from opsieve.gen.case.case import Case

GROUP = 64  # models judged together: enough to fill the workers' frames, few enough to keep in memory
PATH = click.Path(path_type=Path)
COLOURS = {"pass": "green", "fail": "red", "flaky": "magenta", "undecided": "yellow", "invalid": "yellow"}


@click.command()
@click.argument("models", nargs=-1, required=True, type=PATH)
@click.option("--inputs", type=PATH, help="Inputs: an .npz file, an ONNX data set, or a folder that holds one of them.")
@click.option("--expected", type=PATH, help="Expected outputs: the same kinds.")
@click.option("-t", "--target", "targets", multiple=True, help="backend[==release][:option,...]; may be repeated.")
@click.option(
    "--values", help="search: such that nothing inside is NaN or infinite; special[:zeros,nan,...]: strewn in."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs that nobody gave, and of --values.")
@click.option("--seconds", default=60.0, show_default=True, help="Wall time that one model may take on one target.")
@click.option("--memory", default=4096, show_default=True, help="MiB that a model may use on a target.")
@click.option("--rtol", type=float, help="Relative tolerance of your own, for every element, in place of the policy.")
@click.option("--atol", type=float, help="Absolute tolerance of your own, added to the relative one.")
@click.option("--oracle", "oracles", multiple=True, type=click.Choice(["slowdown", "memory"]), help="Ask this too.")
@click.option("--no-check", is_flag=True, help="Judge models that onnx.checker rejects, too.")
@click.option("--offline", is_flag=True, help="Install no release; use those that are there.")
@click.option("--save", type=PATH, help="Write each failure as a case folder into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    models: tuple[Path, ...],
    inputs: Path | None,
    expected: Path | None,
    targets: tuple[str, ...],
    values: str | None,
    seed: int,
    seconds: float,
    memory: int,
    rtol: float | None,
    atol: float | None,
    oracles: tuple[str, ...],
    no_check: bool,
    offline: bool,
    save: Path | None,
    as_json: bool,
) -> int:
    """Judge MODELS on one or many targets: pass or fail, with the reason.

    A model is an .onnx file, a case folder, or a folder that holds model.onnx and its data. Without --target it is judged
    on the installed onnxruntime with all optimisations. Exit code 1 when any verdict is `fail`.
    """
    from opsieve.backends.registry import resolve
    from opsieve.backends.target import BadTarget
    from opsieve.backends.workers.observation_cache import ObservationCache
    from opsieve.backends.workers.workers import Workers
    from opsieve.backends.workers.zygote import Limits
    from opsieve.tui.commands.values import chosen, voice

    if not 0 < seconds <= 86400:
        raise BadTarget("--seconds must lie between 0 and 86400.")
    if not 64 <= memory <= 1 << 20:
        raise BadTarget("--memory must lie between 64 and 1048576 MiB.")
    for name, value in (("--rtol", rtol), ("--atol", atol)):
        if value is not None and not 0 <= value < float("inf"):
            raise BadTarget(f"{name} must be a number that is not negative.")
    word = "" if values is None else _word(values, expected)
    tolerance = None if rtol is None and atol is None else (rtol or 0.0, atol or 0.0)
    resolved = [resolve(text) for text in dict.fromkeys(targets or ("onnxruntime",))]
    started = time.monotonic()
    results: list[dict[str, Any]] = []
    bad: list[str] = []
    limits = Limits(seconds=seconds, memory=memory << 20)
    try:
        with Workers(
            limits, offline=offline, say=lambda sentence: click.echo(f"opsieve: {sentence}", err=True)
        ) as workers:
            lab = ObservationCache(workers)
            for first in range(0, len(models), GROUP):
                cases = list(_cases(models[first : first + GROUP], inputs, expected, seed, lab, not no_check, bad))
                if word:
                    cases = chosen(cases, word, seed, workers, voice)
                for result in _judged(cases, resolved, lab, oracles, tolerance, save):
                    results.append(result)
                    if not as_json:
                        click.echo(_line(result))
                lab.forget()
    finally:  # on Ctrl-C too: what was judged is told
        if as_json:
            click.echo(json.dumps({"results": results}))
        elif len(results) > 1:
            counts = ", ".join(
                f"{count} {verdict}" for verdict, count in Counter(r["verdict"] for r in results).items()
            )
            click.echo(f"opsieve: {counts} in {time.monotonic() - started:.1f} s", err=True)
    if bad:
        return 2
    return 1 if any(result["verdict"] == "fail" for result in results) else 0


def _word(values: str, expected: Path | None) -> str:
    """The choice of values, checked; BadInput when there is no such choice, or other outputs are expected."""
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.gen.values.values import SEARCH, SPECIAL, named_values

    if expected is not None:
        raise BadInput("--expected are outputs for the inputs as they are; leave --expected or --values out")
    return named_values(values, (SEARCH, SPECIAL))


def _cases(
    paths: Sequence[Path],
    inputs: Path | None,
    expected: Path | None,
    seed: int,
    lab: "ObservationCache",
    check: bool,
    bad: list[str],
) -> Iterator[tuple[str, "Case"]]:
    """The cases that `paths` name; of what cannot be used, one sentence goes to stderr and to `bad`."""
    from opsieve.backends.target import Target
    from opsieve.backends.workers.workers import Test
    from opsieve.gen.case.open_case import open_case
    from opsieve.gen.model.bad_input import BadInput
    from opsieve.gen.model.invalid_marker import broken
    from opsieve.tui.cli import complain

    opened = []
    for path in paths:
        try:
            opened.append((str(path), open_case(path, inputs, expected, seed)))
        except BadInput as error:
            bad.append(str(error))
            complain(str(error))
    checker = Target("checker")
    if check:
        lab.prefetch([(checker, [Test(case.program, case.inputs) for _, case in opened])])
    for name, case in opened:
        wrong_on_purpose = broken(case.program.proto) is not None
        answer = lab.observe(checker, case.program, case.inputs) if check and not wrong_on_purpose else None
        if answer is not None and answer.outcome not in ("ok", "environment"):
            why = " ".join(answer.message.split())[:300]
            if answer.outcome not in ("rejected", "error"):  # then the checker has not said it
                why = f"onnx's checker ends in a {answer.outcome} on it: {why}"
            sentence = f"{name} is no valid ONNX model ({why}); mend it, or pass --no-check to run it all the same."
            bad.append(sentence)
            complain(sentence)
        else:
            yield name, case


def _judged(
    cases: Sequence[tuple[str, "Case"]],
    targets: "Sequence[Target]",
    lab: "ObservationCache",
    oracles: Sequence[str],
    tolerance: tuple[float, float] | None,
    save: Path | None,
) -> Iterator[dict[str, Any]]:
    """A result for every case on every target."""
    from opsieve.backends.compare import POLICY
    from opsieve.backends.judge.judge import Judged, judge
    from opsieve.backends.judge.oracles import FLOAT64, SECOND_ORACLES
    from opsieve.backends.judge.performance import measure_memory, measure_slowdown
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.workers import Test

    policy = replace(POLICY, tolerance=tolerance)
    tests = [Test(case.program, case.inputs) for _, case in cases]
    lab.prefetch([(target, tests) for target in dict.fromkeys([*targets, FLOAT64])])
    for path, case in cases:
        for target in targets:
            others = [oracle for oracle in SECOND_ORACLES if resolve(oracle) != target]
            judged = judge(
                case.program, case.inputs, target, lab, expected=case.expected, oracles=others, policy=policy
            )
            for name in oracles if judged.verdict.verdict == "pass" else ():
                measure = measure_slowdown if name == "slowdown" else measure_memory
                verdict = measure(case.program, case.inputs, target, lab)
                if verdict.verdict != "pass":
                    judged = Judged(verdict, judged.observations)
            if save is not None and judged.verdict.verdict == "fail":
                _save(save, path, case, target, judged)
            yield _result(path, case, target, judged)


def _result(path: str, case: "Case", target: "Target", judged: "Judged") -> dict[str, Any]:
    """The keys of docs/reference/cli.md."""
    from opsieve.backends.registry import display
    from opsieve.gen.model.structure import all_nodes
    from opsieve.triage.fingerprint.evidence import NOTHING
    from opsieve.triage.fingerprint.fingerprint import fingerprint
    from opsieve.triage.fingerprint.program_names import given_names

    verdict, observation = judged.verdict, judged.observations[0]
    operators = sorted({node.op_type for node in all_nodes(case.program.proto.graph.node)})
    return {
        "model": path,
        "target": display(target),
        "verdict": verdict.verdict,
        "kind": verdict.kind,
        "stage": verdict.stage,
        "message": verdict.message,
        "fingerprint": fingerprint(verdict, observation, operators, NOTHING, given_names(case.program.proto)).key
        if verdict.verdict == "fail"
        else "",
        "seconds": round(observation.total_seconds, 6),
        "reason": verdict.reason,
        "blame": verdict.blame,
        "rules": list(verdict.rules),
        "oracles": list(verdict.oracles),
        # The name that this key had before 0.2, for one minor version.
        "voices": list(verdict.oracles),
        "version": observation.version,
        "notes": list(observation.notes),
        "inputs": case.origin.inputs,
    }


def _save(folder: Path, path: str, case: "Case", target: "Target", judged: "Judged") -> None:
    """Write a failure as a case folder: the case, what was observed, and under which settings."""
    from opsieve.backends.record import write_observations
    from opsieve.backends.registry import display
    from opsieve.gen.case.case import save

    parameters = {**case.parameters, **judged.observations[0].knobs, "target": display(target)}
    name = "".join(c if c.isalnum() or c in "-." else "_" for c in f"{Path(path).stem or 'model'}-{display(target)}")[
        :120
    ]
    save(replace(case, parameters=parameters), folder / name)
    write_observations(folder / name, judged.observations)


def _line(result: dict[str, Any]) -> str:
    """One result for a person."""
    word = click.style(f"{result['verdict']:<12}", fg=COLOURS.get(result["verdict"]), bold=result["verdict"] == "fail")
    what = f"{result['kind']} at {result['stage']}: " if result["verdict"] == "fail" else ""
    known = f" [{result['fingerprint']}]" if result["fingerprint"] else ""
    reason = result["reason"].removeprefix(f"{result['target']} ")
    text = f"{result['target']}  {result['model']}  {what}{reason}{known}"
    return word + "".join(c if c.isprintable() else " " for c in text)
