"""What `run` calls a failure can be reduced, attributed, exported, bisected and kept: a table of every way in
which the judge reaches `fail`.

`python tests/chain/print_matrix.py` prints the rows and steps.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from chain_rows import NEVER_A_FAILURE, OTHER_KINDS, REAL_ROWS, ROWS, STEPS, Row, sentence_of
from chain_steps import Answer, Anvil, RealReleases, answers, installed_anvil, matrix
from commands import opsieve
from repository import ROOT

from opsieve.backends.judge.reasons import Cause
from opsieve.backends.verdict import Kind

QUICK = [row for row in ROWS if not row.slow]


@pytest.fixture(scope="module")
def anvil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anvil]:
    with installed_anvil(tmp_path_factory.mktemp("anvil")) as found:
        yield found


def asked(
    rows: list[Row], anvil: Anvil | RealReleases, folder: Path, capsys: pytest.CaptureFixture[str]
) -> list[Answer]:
    """What every step answers for these rows; the matrix is printed."""

    def command(*words: str | Path) -> tuple[int, str]:
        code, out, err = opsieve(*words, capsys=capsys)
        return code, out + err

    found = list(answers(rows, anvil, folder, command))
    print(matrix(found))
    return found


def test_each_step_agrees_with_run(anvil: Anvil, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows share a process for their scripts, and a corpus."""
    found = asked(QUICK, anvil, tmp_path, capsys)
    assert {(each.row, each.step) for each in found} == {(row, step) for row in QUICK for step in STEPS}
    wrong = [str(each) for each in found if not each.is_right]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=pytest.mark.slow(seconds=row.slow)) for row in ROWS if row.slow],
)
def test_each_step_agrees_with_run_on_slow_failures(
    anvil: Anvil, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: Row
) -> None:
    wrong = [str(each) for each in asked([row], anvil, tmp_path, capsys) if not each.is_right]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow(seconds=90)  # installs two releases each
@pytest.mark.parametrize("row", REAL_ROWS, ids=lambda row: row.name)
def test_each_step_agrees_with_run_on_real_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], row: Row
) -> None:
    monkeypatch.setenv("OPSIEVE_PROBES", str(tmp_path / "probes"))
    wrong = [str(each) for each in asked([row], RealReleases(), tmp_path, capsys) if not each.is_right]
    assert not wrong, "\n".join(wrong)


def test_every_cause_has_a_row_or_never_fails() -> None:
    in_rows = {row.cause for row in ROWS if row.cause is not None}
    others = set(NEVER_A_FAILURE)
    assert in_rows | others == set(Cause), "a Cause without a row: add one to chain_rows.py"
    assert not in_rows & others


def test_every_kind_has_a_row_or_a_reason() -> None:
    in_rows = {row.kind for row in ROWS}
    assert in_rows | set(OTHER_KINDS) == set(get_args(Kind))
    assert not in_rows & set(OTHER_KINDS)


def test_causes_without_a_row_lead_to_no_failure() -> None:
    """Every call of `make_verdict("fail", ...)` in the judge, with the cause that it is given, directly or in the
    variable before it.
    """
    failing: set[str] = set()
    for path in sorted((ROOT / "backends" / "judge").glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                failing |= causes_of_failures(function)
    known = {cause.name for row in ROWS if (cause := row.cause) is not None}
    assert failing <= known, f"{sorted(failing - known)} lead to the verdict fail: add rows to chain_rows.py"
    assert {"CRASHED", "WRONG", "MADE_LACK", "ACCEPTS", "CHANGED", "LEVELS_DISAGREE"} <= failing


def causes_of_failures(function: ast.FunctionDef) -> set[str]:
    """The names of the causes with which a function gives the verdict `fail`."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    fails = [
        call
        for call in calls
        if (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", ""))
        == "make_verdict"
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value == "fail"
    ]
    reasons = [
        (node.lineno, node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "reason"
    ]
    found = set()
    for call in fails:
        before = {line: value for line, value in reasons if line < call.lineno}
        given = before[max(before)] if isinstance(call.args[1], ast.Name) else call.args[1]
        named = [
            node.attr for node in ast.walk(given) if isinstance(node, ast.Attribute) and node.attr.isupper()
        ]
        assert named, f"line {call.lineno}: the cause of a failure is not in sight"
        found |= {name for name in named if name in Cause.__members__}
    return found


def test_rows_are_told_apart_by_their_sentences() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(sentence_of(cause) for cause in Cause)
    assert all(set(row.cells) <= set(STEPS) for row in ROWS)
