"""Replay a public report: run its model on the versions it names and on the installed ones, and find its
history.
"""

import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from opsieve.backends import registry, verdict
from opsieve.backends.releases.consent import SWITCH, named_by_file
from opsieve.backends.workers.sandbox.limited_process import read_limited
from opsieve.bisect.sessions import answers, versions
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.judging import JudgeRequest, JudgeResult, RefusedModel, judge_models
from opsieve.triage.known.report import ReportFacts
from opsieve.triage.known.report_models import InlineModel, ReportContents, read_contents

# The parser of onnx is C++: a process of its own may die of a text.
PARSER = "opsieve.triage.known.report_models:parse_text"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A report to replay.

    `report` is a saved page or Markdown text; `model` replaces an inline one; `targets` replace those that
    the report names. `history` also searches the first and last failing release, among installed releases, or
    with consent among all.
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
    """The result of a replay.

    `model` names the source of the model; `results` are those of `opsieve run --json`; `still` tells whether
    the installed version fails, or is None if that is undecided; `first_bad` and `first_good` are releases,
    or "" if unknown.
    """

    facts: ReportFacts
    model: str
    results: tuple[Mapping[str, Any], ...]
    still: bool | None
    first_bad: str = ""
    first_good: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `opsieve replay --json`."""
        return {**asdict(self), "results": [dict(result) for result in self.results]}


def replay_report(request: ReplayRequest, say: Callable[[str], None]) -> ReplayAnswer:
    """Replay a report.

    Raises:
        BadInput: If it has no readable model, or names a target that does not exist.
    """
    contents = read_contents(request.report)
    facts = contents.facts
    targets = _choose_targets(request, facts, say)
    with tempfile.TemporaryDirectory() as folder:
        sources = dict(_iter_models(contents, request, Path(folder), say))
        asked = JudgeRequest(targets, inputs=request.inputs, seed=request.seed, offline=request.offline)
        # A report often shows several models, of which some are only fragments: the first whole one counts.
        with closing(judge_models([*sources], asked, say, group=1)) as judging:
            for name, found in groupby(judging, attrgetter("model")):
                model, items = Path(name), list(found)
                results = [each for each in items if isinstance(each, JudgeResult)]
                if results:
                    break
                for each in items:
                    if isinstance(each, RefusedModel):
                        # Without the advice to use an option of `run`
                        why = each.reason.replace(name, "it").partition("; fix it")[0]
                        say(f"{sources[model]} is not judged: {why}")
            else:
                raise BadInput(
                    f"{shown(request.report, 200)} holds no model that can be judged (a script of"
                    " onnx.helper, or onnx.parser's text): --model names the one that is attached to it"
                )
        since = _find_history(model, results, request, say) if request.history else ("", "")
        installed = [each.judged.verdict.verdict for each in results if not each.target.release]
        return ReplayAnswer(
            facts,
            sources[model],
            tuple(each.facts() for each in results),
            # One failing target decides; the others only say something if one of them passes.
            True if verdict.FAILING & {*installed} else False if "pass" in installed else None,
            *since,
        )


def _choose_targets(
    request: ReplayRequest, facts: ReportFacts, say: Callable[[str], None]
) -> tuple[str, ...]:
    if request.targets:
        return request.targets
    for provider in facts.providers:
        # Other devices are rarely there; the report's bug may still show on the CPU.
        if provider != "CPU":
            say(
                f"the report names {provider}ExecutionProvider, which is not run: -t"
                f" onnxruntime:{provider.lower()} runs it"
            )
    known = []
    for text in facts.list_targets():
        try:
            registry.resolve(text)
        except BadInput as error:
            say(f"{text} is left out: {error}")
        else:
            # A report is a stranger's text: its targets are no consent to install or run anything.
            known.append(named_by_file(text, request.offline))
    return tuple(known)


def _iter_models(
    contents: ReportContents, request: ReplayRequest, folder: Path, say: Callable[[str], None]
) -> Iterator[tuple[Path, str]]:
    """Yield the file of each distinct model, with the inputs of its script beside it, and its source."""
    if request.model is not None:
        yield request.model, str(request.model)
        return
    written = set()
    for number, found in enumerate(contents.models):
        if (found.data, found.text) in written:
            continue
        written.add((found.data, found.text))
        data = found.data or _parse_model_text(found, say)
        if not data:
            continue
        # A folder of its own, because opsieve takes values that lie beside a model as its inputs.
        path = folder / str(number) / "model.onnx"
        path.parent.mkdir()
        path.write_bytes(data)
        arrays: dict[str, Any] = {name: each.as_numpy() for name, each in found.inputs.items()}
        if arrays:
            # np.savez has an argument `file`, which an input may be called.
            with zipfile.ZipFile(path.with_name("inputs.npz"), "w") as archive:
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w") as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
        yield path, f"block {found.block} of the report"


def _parse_model_text(found: InlineModel, say: Callable[[str], None]) -> bytes:
    """Parse a model's text with onnx.parser, in a process of its own; b"" on failure."""
    try:
        return read_limited(PARSER, found.text.encode())
    except BadInput as error:
        say(f"onnx.parser does not read block {found.block}: {error}")
        return b""


def _find_history(
    model: Path,
    results: list[JudgeResult],
    request: ReplayRequest,
    say: Callable[[str], None],
) -> tuple[str, str]:
    """Find the first failing release and the first fixed one after it, for the first failing compiler; "" if
    unknown.
    """
    failing = next((each.target for each in results if each.judged.verdict.verdict == "fail"), None)
    if failing is None or not failing.facts.package:
        return "", ""
    # A report is a stranger's text, and its replay installs nothing without consent.
    offline = request.offline or os.environ.get(SWITCH) != "yes"
    target, package = str(failing.with_release("")), failing.facts.package
    asked = BisectRequest(
        model,
        bad=failing.release or None,
        target=target,
        inputs=request.inputs,
        attribute=False,
        offline=offline,
    )
    here = next((each for each in results if str(each.target) == target), None)
    passes = here is not None and here.judged.verdict.verdict == "pass"
    repaired = ""
    # Only if it passes now and failed in a release was it repaired in between.
    if here is not None and passes and asked.bad:
        repaired = _find_end(
            replace(asked, good=str(here.facts()["version"]), fixed=True), package, "first_good", say
        )
    return _find_end(asked, package, "first_bad", say), repaired


def _find_end(asked: BisectRequest, package: str, which: str, say: Callable[[str], None]) -> str:
    """Search one end of the failure's history; "" with a message if the search fails."""
    try:
        found = versions.bisect_releases(asked, package, say)
    except BadInput as error:
        say(f"the history is not known: {error}")
        return ""
    return str(getattr(found, which)) if isinstance(found, answers.VersionAnswer) else ""
