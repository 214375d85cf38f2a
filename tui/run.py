"""`opsieve run`: judge models on targets."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from opsieve.backends.lab import Lab
    from opsieve.backends.target import Target
    from opsieve.gen.case import Case

GROUP = 64  # models judged together: enough to fill the workers' frames, few enough to keep in memory
PATH = click.Path(path_type=Path)
COLOURS = {"pass": "green", "fail": "red", "flaky": "magenta", "undecided": "yellow", "invalid": "yellow"}


@click.command()
@click.argument("models", nargs=-1, required=True, type=PATH)
@click.option("--inputs", type=PATH, help="Inputs: an .npz file, an ONNX data set, or a folder that holds one of them.")
@click.option("--expected", type=PATH, help="Expected outputs: the same kinds.")
@click.option("-t", "--target", "targets", multiple=True, help="backend[==release][:option,...]; may be repeated.")
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs that nobody gave.")
@click.option("--seconds", default=60.0, show_default=True, help="Wall time that one model may take on one target.")
@click.option("--memory", default=4096, show_default=True, help="MiB that a model may use on a target.")
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
    seed: int,
    seconds: float,
    memory: int,
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
    from opsieve.backends.lab import Lab
    from opsieve.backends.registry import resolve
    from opsieve.backends.target import BadTarget
    from opsieve.backends.workers import Workers
    from opsieve.backends.zygote import Limits

    if not 0 < seconds <= 86400:
        raise BadTarget("--seconds must lie between 0 and 86400.")
    if not 64 <= memory <= 1 << 20:
        raise BadTarget("--memory must lie between 64 and 1048576 MiB.")
    resolved = [resolve(text) for text in dict.fromkeys(targets or ("onnxruntime",))]
    started = time.monotonic()
    results: list[dict[str, Any]] = []
    bad: list[str] = []
    limits = Limits(seconds=seconds, memory=memory << 20)
    try:
        with Workers(
            limits, offline=offline, say=lambda sentence: click.echo(f"opsieve: {sentence}", err=True)
        ) as workers:
            lab = Lab(workers)
            for first in range(0, len(models), GROUP):
                cases = list(_cases(models[first : first + GROUP], inputs, expected, seed, lab, not no_check, bad))
                for result in _judged(cases, resolved, lab, oracles, save):
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


def _cases(
    paths: Sequence[Path],
    inputs: Path | None,
    expected: Path | None,
    seed: int,
    lab: "Lab",
    check: bool,
    bad: list[str],
) -> Iterator[tuple[str, "Case"]]:
    """The cases that `paths` name; of what cannot be used, one sentence goes to stderr and to `bad`."""
    from opsieve.backends.target import Target
    from opsieve.backends.workers import Test
    from opsieve.gen.bad_input import BadInput
    from opsieve.gen.intake import open_case
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
        lab.foresee([(checker, [Test(case.program, case.inputs) for _, case in opened])])
    for path, case in opened:
        answer = lab.observe(checker, case.program, case.inputs) if check else None
        if answer is not None and answer.outcome not in ("ok", "environment"):
            why = " ".join(answer.message.split())[:300]
            sentence = f"{path} is no valid ONNX model ({why}); mend it, or pass --no-check to run it all the same."
            bad.append(sentence)
            complain(sentence)
        else:
            yield path, case


def _judged(
    cases: Sequence[tuple[str, "Case"]],
    targets: "Sequence[Target]",
    lab: "Lab",
    oracles: Sequence[str],
    save: Path | None,
) -> Iterator[dict[str, Any]]:
    """A result for every case on every target."""
    from opsieve.backends.judge import FLOAT64, judge
    from opsieve.backends.registry import display
    from opsieve.backends.workers import Test
    from opsieve.triage.fingerprint import fingerprint

    tests = [Test(case.program, case.inputs) for _, case in cases]
    lab.foresee([(target, tests) for target in dict.fromkeys([*targets, FLOAT64])])
    for path, case in cases:
        for target in targets:
            judged = judge(case.program, case.inputs, target, lab, expected=case.expected)
            verdict, observation = judged.verdict, judged.observations[0]
            operators = sorted({node.op_type for node in case.program.proto.graph.node})
            known = fingerprint(verdict, observation, operators).key if verdict.verdict == "fail" else ""
            yield {
                "model": path,
                "target": display(target),
                "verdict": verdict.verdict,
                "kind": verdict.kind,
                "stage": verdict.stage,
                "message": verdict.message,
                "fingerprint": known,
                "seconds": round(observation.total_seconds, 6),
                "reason": verdict.reason,
                "blame": verdict.blame,
                "rules": list(verdict.rules),
                "voices": list(verdict.voices),
                "version": observation.version,
                "notes": list(observation.notes),
            }


def _line(result: dict[str, Any]) -> str:
    """One result for a person."""
    word = click.style(f"{result['verdict']:<11}", fg=COLOURS.get(result["verdict"]), bold=result["verdict"] == "fail")
    what = f"{result['kind']} at {result['stage']}: " if result["verdict"] == "fail" else ""
    known = f" [{result['fingerprint']}]" if result["fingerprint"] else ""
    text = f"{result['target']}  {result['model']}  {what}{result['reason']}{known}"
    return word + "".join(c if c.isprintable() else " " for c in text)
