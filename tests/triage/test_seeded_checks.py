"""A check that the seeded-fault benchmarks put into a function is the fault, whatever the function gets."""

import ast
from typing import Any

import pytest
from benchmarks.triaging.changes import CHECKS, insert_check


@pytest.mark.parametrize("number", range(1, 2 * len(CHECKS), 2))  # an odd one is always raised
@pytest.mark.parametrize(
    "parameters", ["bb, inputs, attr, params", "node, state", "node", "*, shape", "inputs", ""]
)
def test_a_check_speaks_of_what_the_function_has(parameters: str, number: int) -> None:
    tree = ast.parse(f"def f({parameters}):\n    one = 1\n    return one")
    function: Any = tree.body[0]
    insert_check(function, 1, number)
    scope: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "f.py", "exec"), scope)  # noqa: S102  written above
    given: dict[str, Any] = {name: ["x"] for name in parameters.replace("*, ", "").split(", ") if name}
    with pytest.raises(
        (ValueError, TypeError, AssertionError), match=r"wants|not handled|unexpected|lowered|infer"
    ):
        scope["f"](**given)
