"""Precision and recall of "probably owner/repo#N": failures whose public issue is known, and failures that no issue of the index is about.

    python benchmarks/known_issues.py ISSUES.json THREADS.json [--logs RECORDS.jsonl.gz]

ISSUES is an export (`opsieve known import`). THREADS is a list of `{issue, target, text or model, guilty, inputs}`: a program as text of onnx.parser, after the
reproducer of the issue, with the guilty pass where `attribute` names one. Each is run; what no longer fails is left out. RECORDS are failures of
other tools: whatever is named for them is shown, to be judged by a person.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser

import opsieve
from opsieve.triage.external.external_logs import fingerprint_of
from opsieve.triage.external.external_records import Record, read_records
from opsieve.triage.fingerprint.component import ComponentName
from opsieve.triage.fingerprint.evidence import Evidence
from opsieve.triage.fingerprint.fingerprint import Fingerprint, fingerprint
from opsieve.triage.fingerprint.graph_signature import signature_of
from opsieve.triage.fingerprint.program_names import program_names
from opsieve.triage.fingerprint.title import title_of
from opsieve.triage.known.issue_match import ClusterSignature
from opsieve.triage.known.issues import read_export
from opsieve.triage.known.matching import IssueIndex, probable_issues


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("issues", type=Path)
    parser.add_argument("threads", type=Path)
    parser.add_argument("--logs", type=Path)
    asked = parser.parse_args()
    index = IssueIndex(read_export(asked.issues).issues)
    print(f"{len(index.issues)} issues")
    from_threads(json.loads(asked.threads.read_text()), index)
    if asked.logs:
        from_logs(asked.logs, index)


def from_threads(threads: list[dict[str, Any]], index: IssueIndex) -> None:
    """Run each reproducer; print what is named for it, and the sums."""
    right = wrong = none = passing = listed = 0
    for thread in threads:
        model = onnx.load(thread["model"]) if "model" in thread else onnx.parser.parse_model(thread["text"])
        given = {name: np.array(value) for name, value in thread["inputs"].items()}
        types = {
            item.name: onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
            for item in model.graph.input
        }
        inputs = {name: value.astype(types[name]) for name, value in given.items()}
        try:
            (result,) = opsieve.run(model, inputs or None, targets=[thread["target"]])
        except opsieve.BadInput as error:
            print(f"  {thread['issue']:36} not run: {error}"[:200])
            passing += 1
            continue
        verdict = result.judged.verdict
        if verdict.verdict != "fail":
            print(f"  {thread['issue']:36} {thread['target']:22} {verdict.verdict}: {verdict.reason[:90]}")
            passing += 1
            continue
        program = result.case.program
        names = frozenset(program.operators()) - {"Constant"}
        evidence = Evidence(signature_of(model), tuple(filter(None, [thread["guilty"]])))
        seen = result.judged.observations[0]
        found = fingerprint(verdict, seen, sorted(names), evidence, program_names(program))
        said = named(found, names, thread["guilty"], index)
        first = said[0] if said else ""
        listed += thread["issue"] in said
        right, wrong, none = (
            right + (first == thread["issue"]),
            wrong + (first not in ("", thread["issue"])),
            none + (not first),
        )
        print(f"  {thread['issue']:36} {thread['target']:22} {verdict.kind:9} {' '.join(said) or '-'}")
    total = right + wrong + none
    sums = f"{right} right, {wrong} wrong, {none} without, {listed} with it among those named"
    print(
        f"{total} fail, {passing} do not: {sums}; precision {right / max(1, right + wrong):.2f}, recall {right / max(1, total):.2f}"
    )


def from_logs(path: Path, index: IssueIndex) -> None:
    """Print what is named for the distinct failures of other tools' records."""
    seen: dict[str, tuple[Fingerprint, frozenset[str]]] = {}
    for _, record in read_records(path):
        if isinstance(record, Record):
            found = fingerprint_of(record)
            seen.setdefault(found.key, (found, frozenset(record.operators)))
    bugs = 0
    for found, operators in seen.values():
        if found.value(ComponentName.KIND) in ("unsupported", "environment"):
            continue
        bugs += 1
        if said := named(found, operators, "", index):
            print(f"  {title_of(found)[:110]}  ({' '.join(sorted(operators))[:40]}): {' '.join(said)}")
    print(f"{bugs} distinct failures of {path.name}")


def named(found: Fingerprint, operators: frozenset[str], guilty: str, index: IssueIndex) -> list[str]:
    """The issues that a failure probably is, by name, with the reason of the first."""
    backend, kind = found.value(ComponentName.BACKEND), found.value(ComponentName.KIND)
    cluster = ClusterSignature(1, backend, kind, title_of(found), (found.components,), operators, guilty)
    probable = probable_issues(cluster, index)
    return [*(one.name for one in probable), *(f"({probable[0].reasons[0]})" for _ in probable[:1])]


if __name__ == "__main__":
    main()
