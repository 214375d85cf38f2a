"""How often something is drawn has a name: no probability stands in the middle of a sampler, a pattern or a
mutation.
"""

import re

import pytest
from repository import ROOT

_LITERAL = re.compile(r"(?:random\(\) *(?:<|<=|>|>=)|chance\() *0?\.\d|random\(\) *(?:<|>=)[^\n]*\* *0?\.\d")


@pytest.mark.parametrize(
    "folder", ["operators", "build", "generation", "strategies", "spec", "values", "tir", "relax"]
)
def test_no_probability_is_written_where_it_is_used(folder: str) -> None:
    found = [
        f"{path.name}:{number} {line.strip()}"
        for path in sorted((ROOT / "gen" / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _LITERAL.search(line)
    ]
    assert not found, (
        "a field of Style, of SamplerRates (gen/declarations/builder.py) of gen/irs/tir/scope.py or"
        " gen/irs/relax/declaration.py, or of the strategy's own rates"
    )
