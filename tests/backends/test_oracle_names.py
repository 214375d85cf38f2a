"""Oracles chosen by name."""

from pathlib import Path

import pytest

from opsieve.backends.judge.oracle_names import NAMES, ORACLES, choose_oracles
from opsieve.backends.registry import resolve
from opsieve.gen.errors import BadInput


def test_an_oracle_that_compares_builds_adds_targets_and_one_that_a_worker_asks_an_option() -> None:
    tvm, ort = resolve("tvm:target=llvm-O0"), resolve("onnxruntime")
    found = choose_oracles(["pipelines", "text-round-trip"]).expand_targets([tvm, ort, tvm])
    assert [target.display for target in found] == [
        "tvm:check=text,target=llvm-O0",
        "tvm:zero,check=text,target=llvm-O0",
        "tvm:target,check=text,target=llvm-O0",
        "onnxruntime",
    ]
    both = choose_oracles(["json-round-trip", "text-round-trip", "execution"]).expand_targets([tvm])
    assert [target.options["check"] for target in both] == ["all", "all"]
    assert [target.options["exec"] for target in both] == ["bytecode", "compiled"]


def test_what_is_always_asked_may_be_named_and_changes_nothing() -> None:
    always = [oracle.name for oracle in ORACLES if not (oracle.option or oracle.siblings or oracle.measured)]
    assert {"well-formed", "builds", "reference", "accepts-invalid"} <= set(always)
    tvm = resolve("tvm")
    assert choose_oracles(always).expand_targets([tvm]) == [tvm]
    assert choose_oracles(always).measured == ()


def test_oracles_are_chosen_once_and_in_order() -> None:
    choice = choose_oracles(["slowdown", "execution", "memory", "slowdown"])
    assert choice.names == ("slowdown", "execution", "memory")
    assert choice.measured == ("slowdown", "memory")


def test_an_unknown_oracle_is_refused_with_a_suggestion() -> None:
    with pytest.raises(BadInput, match=r"there is no oracle 'slowdwon'.*packages.* slowdown\?"):
        choose_oracles(["slowdwon"])


def test_every_name_stands_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "explanation" / "oracles.md").read_text()
    assert [name for name in NAMES if f"\n- `{name}`: " not in page] == []
