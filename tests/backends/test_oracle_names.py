"""Oracles chosen by name and by file."""

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


def test_a_file_chooses_and_sets_margins(tmp_path: Path) -> None:
    file = tmp_path / "oracles.toml"
    file.write_text('oracles = ["slowdown", "memory"]\n[slowdown]\nmargin = 3\nrounds = 5\n')
    choice = choose_oracles(["execution"], file)
    assert choice.names == ("slowdown", "memory", "execution")
    assert choice.measured == ("slowdown", "memory")
    assert (choice.slowdown_margin, choice.rounds, choice.memory_margin) == (3.0, 5, 2.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('oracles = ["magic"]', "there is no oracle"),
        ("oracles = 3", "list of names"),
        ("oracles = []\nother = 1", "'other'"),
        ("[slowdown]\nmargin = 0.5", "number from 1"),
        ("[slowdown]\nmargins = 2", "'margins'"),
        ("oracles = [", "not TOML"),
        ("a" * 70_000, "bytes"),
    ],
)
def test_a_file_that_says_something_else_is_refused_with_a_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "oracles.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=said):
        choose_oracles([], file)
    with pytest.raises(BadInput, match="cannot read"):
        choose_oracles([], tmp_path / "missing.toml")


def test_every_name_stands_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "explanation" / "oracles.md").read_text()
    assert [name for name in NAMES if f"\n- `{name}`: " not in page] == []
