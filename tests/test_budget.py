"""The product stays within its budget of statements ([tool.opsieve.statements] in pyproject.toml)."""

import tomllib

import pytest
from repository import ROOT
from source_figures import FOLDERS, figures

BUDGET = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["opsieve"]["statements"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_keeps_to_its_budget(folder: str) -> None:
    assert figures().statements[folder] <= BUDGET["folders"][folder]


def test_a_folder_may_grow_only_where_another_shrinks() -> None:
    assert sum(BUDGET["folders"].values()) <= BUDGET["total"]
    assert set(BUDGET["folders"]) == set(FOLDERS)


def test_the_budget_follows_the_sources() -> None:
    """A budget that lies far above the sources would let them grow again."""
    assert BUDGET["total"] <= 1.05 * sum(figures().statements.values())
