"""The coverage of campaigns: recorded, kept over an interruption, compared; functions of TIR that are built
upon those that reach something new.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.tir.arguments import basic
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.triage.campaign.coverage_record import (
    CompilerCoverage,
    CoverageRecord,
    ReachedLibrary,
    compare_coverage,
    load_record,
    save_record,
    shorten_path,
)
from opsieve.triage.campaign.guided_programs import EVERY, NOTICED, OFTEN, GuidedFunctions
from opsieve.tui.cli import SETTINGS
from opsieve.tui.commands.find.coverage_command import command


def record(name: str, addresses: list[int], build: str = "ab12", kind: str = "functions") -> CoverageRecord:
    library = ReachedLibrary("/nowhere/libx.so", build, 100, np.array(addresses, np.int64))
    compiler = CompilerCoverage([(0.5, 4, 1), (2.0, 16, len(addresses))], [library])
    return CoverageRecord(name, "mix", kind, {"tvm": compiler})


def test_a_record_comes_back(tmp_path: Path) -> None:
    save_record(record("c1", [4, 8, 1 << 31]), tmp_path)
    again = load_record(tmp_path)
    assert again.compilers["tvm"].growth == [(0.5, 4, 1), (2.0, 16, 3)]
    assert list(again.compilers["tvm"].libraries[0].addresses) == [4, 8, 1 << 31]


def test_two_campaigns_are_compared_by_what_only_one_reached() -> None:
    [found] = compare_coverage(record("a", [1, 2, 3]), record("b", [3, 4]))
    assert (found.first, found.second, found.both) == (3, 2, 1)
    assert (found.only_first.count, found.only_second.count) == (2, 1)
    assert found.source_known == 0.0  # the library is not there: nothing can be named


def test_what_cannot_be_compared_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match="no build of a library in common"):
        compare_coverage(record("a", [1]), record("b", [1], build="cd"))
    with pytest.raises(BadInput, match="cannot be compared"):
        compare_coverage(record("a", [1]), record("b", [1], kind="blocks"))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": 2}', '{"format":1,"campaign":"x","generator":"","kind":"","compilers":3}'],
)
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadInput, match="is not the coverage"):
        load_record(tmp_path / "x.json")
    with pytest.raises(BadInput, match="--coverage"):
        load_record(tmp_path)


def test_the_command_prints_and_tells_as_json(tmp_path: Path) -> None:
    for name, addresses in (("a", [1, 2, 3]), ("b", [3, 4])):
        (tmp_path / name).mkdir()
        save_record(record(name, addresses), tmp_path / name)
    both = CliRunner().invoke(
        command, [str(tmp_path / "a"), str(tmp_path / "b")], standalone_mode=False, **SETTINGS
    )
    assert "A 3, B 2, both 1, only A 2, only B 1" in both.output
    told = CliRunner().invoke(
        command, [str(tmp_path / "a"), str(tmp_path / "b"), "--json"], standalone_mode=False, **SETTINGS
    )
    assert json.loads(told.output)["libraries"][0]["only_b"]["count"] == 1
    alone = CliRunner().invoke(command, [str(tmp_path / "a")], standalone_mode=False, **SETTINGS)
    assert "3 reached by 16 tests" in alone.output


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/project/src/relax/op/x.cc", "src/relax/op/x.cc"),
        ("/onnxruntime_src/onnxruntime/core/graph/g.cc", "onnxruntime/core/graph/g.cc"),
        ("", ""),
        ("x.cc", "x.cc"),
    ],
)
def test_paths_are_told_from_the_projects_root(path: str, wanted: str) -> None:
    assert shorten_path(path) == wanted


def test_functions_go_by_the_loop_and_one_in_so_many_is_run() -> None:
    guided = GuidedFunctions(basic(), 3)
    cases = [guided.make_case(number) for number in range(2 * EVERY)]
    assert [number for number in range(2 * EVERY) if not guided.is_lowered_only(number)] == [0, EVERY]
    assert {case.program.ir for case in cases} == {"tir"}
    for number, case in enumerate(cases):
        guided.learn_result(number, case, True, ["pass"])
    assert len(guided.loop.pool) > len(basic())


@pytest.mark.slow(seconds=4)
def test_a_pass_at_which_programs_fail_is_drawn_rarely() -> None:
    guided, failing = GuidedFunctions(basic(), 3), "tirx.NarrowDataType"
    shares = []
    for first in range(0, 1200, 600):
        drawn = 0
        for number in range(first, first + 600):
            case = guided.make_case(number)
            assert isinstance(case.program, TirProgram)
            fails = any(item.startswith(failing) for item in case.program.passes)
            guided.learn_result(number, case, True, ["fail" if fails else "pass"])
            drawn += fails
        shares.append(drawn)
    assert shares[0] > OFTEN
    assert 0 < shares[1] < 600 / NOTICED
