"""Precision and recall of "probably owner/repo#N": failures whose public issue is known, and failures that no
issue of the index is about.

    python benchmarks/known_issues.py ISSUES.json THREADS.json [--logs RECORDS.jsonl.gz]
    python benchmarks/known_issues.py --facts [--logs RECORDS.jsonl.gz]

`--facts` needs no network and no export: `triaging/known_threads.jsonl` tells of public threads, in our
words, title, telling lines and the failure as a log of another occurrence would have it (other names, sizes
and places in files; nothing that the thread does not say). They are the index, and each failure is asked for.
Failures that none of them is about are those of the samples (`samples/observed.jsonl`) and of RECORDS.

ISSUES is an export (`opsieve known import`). THREADS is a list of `{issue, target, text or model, guilty,
inputs}`: a program as text of onnx.parser, after the reproducer of the issue, with the guilty pass where
`attribute` names one. Each is run; what no longer fails is left out. RECORDS are failures of other tools:
whatever is named for them is shown, to be judged by a person.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser

import opsieve
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.triage.external.external_logs import fingerprint_record
from opsieve.triage.external.external_records import Record, read_records
from opsieve.triage.fingerprint.component import ComponentName, Evidence
from opsieve.triage.fingerprint.fingerprint import Fingerprint, make_fingerprint, make_title
from opsieve.triage.fingerprint.program_graph import ProgramNames, make_signature
from opsieve.triage.known.issues import ClusterSignature, KnownIssue, read_export
from opsieve.triage.known.matching import IssueIndex, find_probable

ROOT = Path(__file__).resolve().parent.parent
FACTS = Path(__file__).parent / "triaging" / "known_threads.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("issues", type=Path, nargs="?")
    parser.add_argument("threads", type=Path, nargs="?")
    parser.add_argument("--facts", action="store_true")
    parser.add_argument("--logs", type=Path)
    asked = parser.parse_args()
    if asked.facts:
        from_facts(asked.logs)
        return
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
        evidence = Evidence(make_signature(OnnxProgram.of(model)), tuple(filter(None, [thread["guilty"]])))
        seen = result.judged.observations[0]
        found = make_fingerprint(verdict, seen, sorted(names), evidence, ProgramNames(program))
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
        f"{total} fail, {passing} do not: {sums}; precision {right / max(1, right + wrong):.2f}, recall"
        f" {right / max(1, total):.2f}"
    )


def from_facts(logs: Path | None) -> None:
    """The threads of the file as index, and each of their failures; then failures that no thread is about."""
    facts = [json.loads(line) for line in FACTS.read_text().splitlines()]
    index = IssueIndex([_issue(fact) for fact in facts])
    halves = {"even lines": [0, 0, 0], "odd lines": [0, 0, 0]}
    misses: Counter[str] = Counter()
    for at, fact in enumerate(facts):
        said = named(
            _found(fact), frozenset(fact.get("operators", ())), fact.get("guilty", ""), index, fact["kind"]
        )
        right = bool(said) and said[0] in (fact["issue"], *fact.get("same", ()))
        misses[missed_kind(fact)] += not said
        halves["odd lines" if at % 2 else "even lines"][0 if right else 1 if said else 2] += 1
        print(f"  {fact['issue']:36} {fact['kind']:9} {'right' if right else ' '.join(said) or '-'}")
    halves["all"] = [sum(one) for one in zip(*halves.values(), strict=True)]
    for half, (right, wrong, none) in halves.items():
        total = right + wrong + none
        print(
            f"{half}: {total} threads: {right} right, {wrong} wrong, {none} without; precision"
            f" {right / max(1, right + wrong):.2f}, recall {right / max(1, total):.2f}"
        )
    print(f"without: {', '.join(f'{count} {kind}' for kind, count in misses.most_common() if count)}")
    from_samples(index)
    if logs:
        from_logs(logs, index)


def missed_kind(fact: dict[str, Any]) -> str:
    """What a thread that is not named has to be known by: a message, or the pass and the operators of a
    failure without one.
    """
    text = f"{fact['title']} {fact['says']}"
    if fact.get("message"):
        return "with a message"
    told = [*fact.get("operators", ()), *filter(None, [fact.get("guilty")])]
    return f"{fact['kind']} without a message, " + (
        "operators or pass told" if any(name in text for name in told) else "neither operators nor pass told"
    )


def _issue(fact: dict[str, Any]) -> KnownIssue:
    repository, _, number = fact["issue"].partition("#")
    url = f"https://github.com/{repository}/issues/{number}"
    return KnownIssue(repository, int(number), fact["title"], url, "", f"{fact['title']} {fact['says']}")


def _found(fact: dict[str, Any]) -> Fingerprint:
    """The fingerprint of a failure as another tool's log has it."""
    lines = [f'  File "{path}", line 1, in {function}' for path, function in fact.get("frames", ())]
    ending = f"{fact.get('exception') or 'RuntimeError'}: {fact.get('message', '')}"
    trace = "\n".join(["Traceback (most recent call last):", *lines, ending]) if lines else ""
    operators = tuple(fact.get("operators", ()))
    record = Record(fact["backend"], "compile", fact.get("exception", ""), fact.get("message", ""), trace, "", 11 if fact["kind"] == "crash" else 0, fact["kind"] == "hang", operators)  # fmt: skip
    return fingerprint_record(record)[1]


def from_samples(index: IssueIndex) -> None:
    """Print what is named for the failures of the samples, most of which no thread of the index is about."""
    total = 0
    for line in (ROOT / "samples" / "observed.jsonl").read_text().splitlines():
        seen = json.loads(line)
        first, verdict = seen["observations"][0], seen["verdict"]
        program = opsieve.open_case(ROOT / "samples" / seen["sample"]).program
        operators = frozenset(program.operators()) - {"Constant"}
        record = Record(seen["target"].partition("=")[0].partition(":")[0], first["stage"], first.get("exception", ""), first.get("message", ""), first.get("traceback", ""), first.get("log", ""), first.get("signal", 0), False, tuple(sorted(operators)))  # fmt: skip
        total += 1
        if said := named(fingerprint_record(record)[1], operators, "", index, verdict["kind"]):
            print(f"  {seen['sample']}: {' '.join(said)}")
    print(f"{total} failures of samples")


def from_logs(path: Path, index: IssueIndex) -> None:
    """Print what is named for the distinct failures of other tools' records."""
    seen: dict[str, tuple[Fingerprint, frozenset[str]]] = {}
    for _, record in read_records(path):
        if isinstance(record, Record):
            found = fingerprint_record(record)[1]
            seen.setdefault(found.key, (found, frozenset(record.operators)))
    bugs = 0
    for found, operators in seen.values():
        if found.get_value(ComponentName.KIND) in ("unsupported", "environment"):
            continue
        bugs += 1
        if said := named(found, operators, "", index):
            print(f"  {make_title(found)[:110]}  ({' '.join(sorted(operators))[:40]}): {' '.join(said)}")
    print(f"{bugs} distinct failures of {path.name}")


def named(
    found: Fingerprint, operators: frozenset[str], guilty: str, index: IssueIndex, kind: str = ""
) -> list[str]:
    """The issues that a failure probably is, by name, with the reason of the first."""
    backend, kind = found.get_value(ComponentName.BACKEND), kind or found.get_value(ComponentName.KIND)
    cluster = ClusterSignature(1, backend, kind, make_title(found), (found.components,), operators, guilty)
    probable = find_probable(cluster, index)
    return [*(one.name for one in probable), *(f"({probable[0].reasons[0]})" for _ in probable[:1])]


if __name__ == "__main__":
    main()
