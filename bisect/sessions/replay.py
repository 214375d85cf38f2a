"""A public report replayed: its model on the versions and settings that it names and on what is installed,
and since when and until when it fails.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from opsieve.backends.registry import resolve
from opsieve.backends.releases.consent import SWITCH, named_by_file
from opsieve.backends.verdict import FAILING
from opsieve.bisect.sessions.answers import VersionAnswer
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sessions.versions import bisect_releases
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.judging import JudgeRequest, JudgeResult, judge_models
from opsieve.triage.known.report import ReportFacts, ReportText, facts_of, read_report
from opsieve.triage.known.report_models import InlineModel, inline_models

_PARSE = (
    "import sys, onnx.parser;"
    " sys.stdout.buffer.write(onnx.parser.parse_model(sys.stdin.read()).SerializeToString())"
)
_SECONDS = 30  # for the parser of onnx, which is C++: a process of its own may die of a text
_MOST = 20  # models of a report that are tried


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """`report` is a saved page or Markdown text; `model` stands for an inline one; `targets` for those that
    the report names. `history` asks since when and until when, on releases that are installed, or with
    consent on all.
    """

    report: Path
    model: Path | None = None
    inputs: Path | None = None
    targets: tuple[str, ...] = ()
    seed: int = 0
    history: bool = True
    offline: bool = False


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """`model` says where the model came from; `results` are those of `opsieve run --json`; `still` whether
    what is installed fails, None where neither is said; `first_bad` and `first_good` are releases, "" where
    unknown.
    """

    facts: ReportFacts
    model: str
    results: tuple[Mapping[str, Any], ...]
    still: bool | None
    first_bad: str = ""
    first_good: str = ""

    def as_json(self) -> dict[str, Any]:
        """The keys of `opsieve replay --json`."""
        return {**asdict(self), "results": [dict(result) for result in self.results]}


def replay(request: ReplayRequest, say: Callable[[str], None]) -> ReplayAnswer:
    """What became of a report. BadInput where it has no model that can be read, or names a target that does
    not exist.
    """
    report = read_report(request.report)
    facts = facts_of(report)
    targets = _targets(request, facts, say)
    with tempfile.TemporaryDirectory() as folder:
        for source, model, inputs in _models(report, request, Path(folder), say):
            asked = JudgeRequest(targets, inputs=inputs, seed=request.seed, offline=request.offline)
            results = [found for found in judge_models([model], asked, say) if isinstance(found, JudgeResult)]
            if results:
                since = _history(model, inputs, results, request, say) if request.history else ("", "")
                return ReplayAnswer(
                    facts, source, tuple(each.facts() for each in results), _still(results), *since
                )
            say(f"{source} cannot be judged")
    raise BadInput(
        f"{shown(request.report, 200)} holds no model that can be read (a script of onnx.helper, or"
        " onnx.parser's text): --model names the one that is attached to it"
    )


def _targets(request: ReplayRequest, facts: ReportFacts, say: Callable[[str], None]) -> tuple[str, ...]:
    if request.targets:
        return request.targets
    for provider in facts.providers:
        if provider != "CPU":
            say(
                f"the report names {provider}ExecutionProvider, which is not asked: -t"
                f" onnxruntime:{provider.lower()} does"
            )
    known = []
    for text in facts.targets():
        try:
            resolve(text)
        except BadInput as error:
            say(f"{text} is left out: {error}")
        else:
            known.append(named_by_file(text, request.offline))
    return tuple(known)


def _models(
    report: ReportText, request: ReplayRequest, folder: Path, say: Callable[[str], None]
) -> Iterator[tuple[str, Path, Path | None]]:
    """Where each model comes from, its file, and the file of its inputs, if any."""
    if request.model is not None:
        yield str(request.model), request.model, request.inputs
        return
    for number, found in enumerate(inline_models(report)):
        if number == _MOST:
            return
        data = found.data or _parsed(found, say)
        if not data:
            continue
        path = folder / str(number) / "model.onnx"
        path.parent.mkdir()
        path.write_bytes(data)
        inputs = request.inputs
        if inputs is None and found.inputs:
            inputs = path.parent / "inputs.npz"
            np.savez(inputs, **dict(found.inputs))
        yield f"block {found.block} of the report", path, inputs


def _parsed(found: InlineModel, say: Callable[[str], None]) -> bytes:
    """The model that onnx.parser makes of a text, b"" for none."""
    command = [sys.executable, "-I", "-c", _PARSE]
    try:
        done = subprocess.run(
            command, input=found.text.encode(), capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        say(f"onnx.parser did not end on block {found.block} within {_SECONDS} s")
        return b""
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        say(
            f"onnx.parser does not read block {found.block}:"
            f" {shown(lines[-1] if lines else done.returncode, 200)}"
        )
        return b""
    return done.stdout


def _still(results: list[JudgeResult]) -> bool | None:
    """Whether what is installed fails: None where no installed compiler gave a verdict of pass or fail."""
    installed = [each.judged.verdict.verdict for each in results if not each.target.release]
    return True if FAILING & {*installed} else False if "pass" in installed else None


def _history(
    model: Path,
    inputs: Path | None,
    results: list[JudgeResult],
    request: ReplayRequest,
    say: Callable[[str], None],
) -> tuple[str, str]:
    """The first release that fails and the first later one that does not, of the first compiler that fails;
    "" where unknown.
    """
    failing = next((each.target for each in results if each.judged.verdict.verdict == "fail"), None)
    if failing is None or not failing.facts.package:
        return "", ""
    offline = request.offline or os.environ.get(SWITCH) != "yes"
    target, package = str(failing.with_release("")), failing.facts.package
    asked = BisectRequest(
        model, bad=failing.release or None, target=target, inputs=inputs, attribute=False, offline=offline
    )
    here = next((each for each in results if str(each.target) == target), None)
    passes = here is not None and here.judged.verdict.verdict == "pass"
    repaired = ""
    if here is not None and passes and asked.bad:
        repaired = _end(
            replace(asked, good=str(here.facts()["version"]), fixed=True), package, "first_good", say
        )
    return _end(asked, package, "first_bad", say), repaired


def _end(asked: BisectRequest, package: str, which: str, say: Callable[[str], None]) -> str:
    """One end of the failure's life; "" where the search finds none, and says why."""
    try:
        found = bisect_releases(asked, package, say)
    except BadInput as error:
        say(f"the history is not known: {error}")
        return ""
    return str(getattr(found, which)) if isinstance(found, VersionAnswer) else ""
