"""How many distinct bugs the collection held over time, and how each began: with a campaign, or by hand.

    python benchmarks/found_curve.py [--json]

The curve comes from the history of `samples/corpus.json`, so it needs a clone with its history. The beginnings
come from the origin in each `case.json`. The collection does not record the CPU time that a bug cost, so there
is no curve over CPU hours here; `benchmarks/yields.py` measures that for one campaign, strategy by strategy.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from opsieve.backends.target import Target
from opsieve.gen.case.case import open_case
from opsieve.triage.corpus.corpus_file import read_bugs

ROOT = Path(__file__).parents[1]
INDEX = "samples/corpus.json"


def main() -> int:
    """Print the curve and the table; 1 without a history."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    facts = {"curve": list_curve(), "begins": count_beginnings()}
    if not facts["curve"]:
        print(f"this clone has no history of {INDEX}: git fetch --unshallow", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(facts, indent=2))
        return 0
    for row in facts["curve"]:
        print(f"{row['date']}  {row['bugs']:4}  {'#' * (row['bugs'] // 5)}")
    print("\ncompiler                          campaign  by hand")
    for compiler, counts in sorted(facts["begins"].items()):
        print(f"{compiler:32} {counts.get('campaign', 0):9} {counts.get('by hand', 0):8}")
    return 0


def list_curve() -> list[dict[str, Any]]:
    """Return a row for each commit that changed the number of distinct bugs, oldest first."""
    rows: list[dict[str, Any]] = []
    for line in run_git("log", "--reverse", "--format=%h %cs", "--", INDEX).splitlines():
        commit, date = line.split()
        cases = json.loads(run_git("show", f"{commit}:{INDEX}"))["cases"].values()
        bugs = sum(bool(case.get("bug")) and not case["bug"].get("same_as") for case in cases)
        if not rows or rows[-1]["bugs"] != bugs:
            rows.append({"commit": commit, "date": date, "bugs": bugs})
    return rows


def count_beginnings() -> dict[str, Counter[str]]:
    """Count the bugs of each compiler by whether a program of a campaign or a person showed them first."""
    table: dict[str, Counter[str]] = {}
    for name, (_, bug) in read_bugs(ROOT / "samples").items():
        begin = open_case(ROOT / "samples" / name).origin.generator
        by_machine = not begin.startswith(("written by hand", "by hand")) or "after a model" in begin
        row = table.setdefault(Target.parse(bug.fails).backend, Counter())
        row["campaign" if by_machine else "by hand"] += not bug.same_as
    return table


def run_git(*words: str) -> str:
    """Run git in the repository and return its output; "" if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
