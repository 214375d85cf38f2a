"""Sentences with counts: `1 test`, `0 tests`, `2 tests`, never `1 tests`."""

import re

import pytest
from repository import ROOT

from opsieve.gen.model.printable import count_noun

NOUNS = "tests|clusters|failures|nodes|cases|members|elements|operators|releases|questions|attempts|models|programs|targets|files|fingerprints|decisions|jobs|checks"
PLURAL = re.compile(rf'f"[^"\n]*\{{[^{{}}"]+\}}\s+(?:{NOUNS})\b')
# A count that cannot be 1 where the sentence is said, or that is a limit or the text of a record.
NEVER_ONE = {
    "tui/app/app.py": "one decision is told by its own text",
    "gen/generation/random_graph.py": "a field of a record that tests compare",
    "gen/model/tensors.py": "the number may be text",
    "gen/irs/tvm/nodes.py": "a limit",
    "gen/data/inputs.py": "more than a limit",
    "reducer/nodes/node_phase.py": "some of many nodes",
    "reducer/onnx_edit/parts.py": "a limit",
    "backends/judge/reasons.py": "a share of the elements",
    "tui/commands/find/gen_command.py": "a rate",
    "tui/commands/find/fuzz_command.py": "a rate",
    "tui/app/screens/jobs_screen.py": "a rate",
    "backends/reference/reference_ops.py": "what a kernel says of a shape",
}


@pytest.mark.parametrize(
    ("noun", "said"),
    [
        ("test", ("0 tests", "1 test", "2 tests")),
        ("mismatch", ("0 mismatches", "1 mismatch", "2 mismatches")),
        ("category", ("0 categories", "1 category", "2 categories")),
        ("pass", ("0 passes", "1 pass", "2 passes")),
    ],
)
def test_a_count_and_its_noun_agree(noun: str, said: tuple[str, ...]) -> None:
    assert tuple(count_noun(number, noun) for number in range(3)) == said


def test_no_sentence_puts_a_plural_behind_a_number_that_may_be_one() -> None:
    found = {}
    for folder in ("gen", "backends", "triage", "reducer", "bisect", "tui"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            lines = [line.strip() for line in path.read_text().splitlines() if PLURAL.search(line)]
            if lines and name not in NEVER_ONE:
                found[name] = lines
    assert not found, "write counted(number, noun)"
