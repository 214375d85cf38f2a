"""The import contracts of pyproject.toml: each holds, and each breaks when an import is put in the wrong
direction.
"""

import itertools
import tomllib
from typing import Any

import grimp
import pytest
from importlinter.contracts.layers import LayersContract
from repository import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["name"]: contract for contract in SETTINGS["contracts"]}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*SETTINGS["root_packages"], cache_dir=None)


def holds(contract: dict[str, Any], graph: grimp.ImportGraph) -> bool:
    options = {
        name: str(value) if isinstance(value, bool) else value  # as import-linter reads them
        for name, value in contract.items()
        if name not in ("name", "type")
    }
    checked: bool = LayersContract(contract["name"], SETTINGS, options).check(graph, verbose=False).kept
    return checked


def floors(contract: dict[str, Any]) -> list[list[str]]:
    """The full names of the modules of each floor, top to bottom."""
    inside = "".join(f"{container}." for container in contract.get("containers", []))
    return [
        [inside + name for name in layer.replace(":", "|").replace(" ", "").split("|")]
        for layer in contract["layers"]
    ]


def leaf(graph: grimp.ImportGraph, module: str) -> str:
    """A module that is no folder: the one named, or the first of those in it."""
    return min(
        graph.find_descendants(module) - {""} or {module},
        key=lambda name: (len(graph.find_children(name)), name),
    )


def with_import(contract: dict[str, Any], graph: grimp.ImportGraph, importer: str, imported: str) -> bool:
    """Whether the contract holds with one import more."""
    graph.add_import(importer=importer, imported=imported)
    try:
        return holds(contract, graph)
    finally:
        graph.remove_import(importer=importer, imported=imported)


def test_there_is_a_contract_for_every_folder_and_every_module_stands_on_a_floor() -> None:
    inside = {name: contract for name, contract in CONTRACTS.items() if "containers" in contract}
    containers = {container for contract in inside.values() for container in contract["containers"]}
    assert set(SETTINGS["root_packages"]) <= containers
    assert all(contract.get("exhaustive") is True for contract in inside.values())
    assert not [name for name, contract in inside.items() if contract.get("exhaustive_ignores")]


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_holds(name: str, graph: grimp.ImportGraph) -> None:
    assert holds(CONTRACTS[name], graph)


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_breaks_when_a_floor_imports_what_stands_above_it(
    name: str, graph: grimp.ImportGraph
) -> None:
    every = floors(CONTRACTS[name])
    for above, below in itertools.pairwise(every):
        assert not with_import(CONTRACTS[name], graph, leaf(graph, below[0]), leaf(graph, above[0]))


@pytest.mark.parametrize(
    "name", [name for name, contract in CONTRACTS.items() if any("|" in one for one in contract["layers"])]
)
def test_a_contract_breaks_when_neighbours_know_each_other(name: str, graph: grimp.ImportGraph) -> None:
    for layer, beside in zip(CONTRACTS[name]["layers"], floors(CONTRACTS[name]), strict=True):
        if "|" in layer:
            assert not with_import(CONTRACTS[name], graph, leaf(graph, beside[0]), leaf(graph, beside[1]))
