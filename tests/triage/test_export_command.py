"""`opsieve export` as a user types it."""

import json
import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from exported import X, model
from onnx import helper
from slow_params import keep_quick
from stores import done, filled, finding

from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput, NoFailure
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.reducer.engine.interestingness import runs_for, wilson
from opsieve.reducer.sessions.export import case_folder as folder_of
from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store
from opsieve.tui.cli import SETTINGS
from opsieve.tui.commands.examine.export_command import command
from opsieve.tui.samples import SAMPLES


def exported(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, [str(item) for item in arguments], standalone_mode=False, **SETTINGS)
    if isinstance(result.exception, NoFailure):
        return result.exception.exit_code, result.stdout, str(result.exception)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout, result.stderr


@pytest.fixture
def case(tmp_path: Path) -> Path:
    made = Case(OnnxProgram(model().SerializeToString()), {"x": X}, parameters={"target": "fake:wrong@Relu"})
    save(made, tmp_path / "case")
    return tmp_path / "case"


def test_a_case_is_exported_with_what_is_known_of_its_culprit(case: Path, tmp_path: Path) -> None:
    change = {"kind": "regression", "last_before": "1.2", "first_after": "1.3"}
    (case / "culprit.json").write_text(
        json.dumps({"releases": {"transitions": [change, 7, {"kind": []}], "guilty_passes": ["Fuse`It"]}})
    )
    code, out, _ = exported(case, "--as", "issue", "-o", tmp_path, "--json")
    told = json.loads(out)
    assert code == 0
    assert set(told) == {"kind", "output", "bytes", "target", "version", "failure", "message"}
    assert (told["kind"], told["failure"], told["output"]) == (
        "issue",
        "mismatch",
        str(tmp_path / "issue.md"),
    )
    text = (tmp_path / "issue.md").read_text()
    assert len(text) == told["bytes"]
    assert "Fails since 1.3 (last good: 1.2)." in text
    assert "`Fuse?It`" in text


def test_an_issue_begins_with_numbers_and_has_a_table_of_settings() -> None:
    code, out, _ = exported(SAMPLES / "pad-maxpool-wrong-value", "--as", "issue", "-o", "-")
    assert code == 0
    assert out.split("\n\n")[2].startswith("Element [0, 0, 0, 2] is -1.437")
    for setting, result in (("all", "fails"), ("basic", "fails"), ("disable_all", "passes")):
        assert f"| level {setting} | {result} |\n" in out
    script = out.partition("```python\n")[2].partition("\n```")[0]
    assert len([line for line in script.splitlines() if line]) <= 20
    pins = script.splitlines()[0].split("'")[1::2]
    assert [pin.partition("==")[2] for pin in pins] == [metadata.version(pin.split("==")[0]) for pin in pins]


def test_exporting_what_was_not_reduced_suggests_it(tmp_path: Path) -> None:
    made = model()
    made.graph.node.insert(0, helper.make_node("Neg", ["x"], ["unused"]))
    program = OnnxProgram(made.SerializeToString())
    save(Case(program, {"x": X}, parameters={"target": "fake:wrong@Relu"}), tmp_path / "case")
    told = f"opsieve reduce {tmp_path / 'case'}"
    assert told in exported(tmp_path / "case", "-o", tmp_path)[2]
    # A target that was named is part of the command: without it, reduce would try another one.
    assert (
        f"{told} -t fake:crash@Relu"
        in exported(tmp_path / "case", "-t", "fake:crash@Relu", "-o", tmp_path)[2]
    )
    (tmp_path / "case" / "reduction.json").write_text('{"target": "fake:wrong@Relu"}')
    assert told not in exported(tmp_path / "case", "-o", tmp_path)[2]


def test_what_does_not_fail_is_not_exported(case: Path, tmp_path: Path) -> None:
    code, out, talk = exported(case, "-t", "fake", "-o", tmp_path / "repro.py", "--json")
    assert code == 3
    assert "pass: " in json.loads(out)["message"]
    assert talk.startswith("no failure to work on: fake: pass: ")
    assert not (tmp_path / "repro.py").exists()


def test_the_values_asked_for_are_those_of_the_reference(case: Path, tmp_path: Path) -> None:
    exported(case, "-o", tmp_path / "shown.py")
    source = (tmp_path / "shown.py").read_text()
    space: dict[str, object] = {}
    exec(compile(source.partition("def run(")[0], "repro.py", "exec"), space)  # noqa: S102  written by the code under test
    want, dtype, within = space["EXPECTED"]["y"]  # type: ignore[index]
    assert (dtype, want.dtype.name) == ("float32", "float64")
    assert np.array_equal(want, np.maximum(X, 0))
    assert 0 < within < 1e-3


def test_a_cluster_means_the_case_that_stands_for_it(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", [done(1, finding("no such kernel"))])
    found = folder_of("c1", store)
    assert (found / "model.onnx").is_file()
    for what in ("c99", "nothing"):
        with pytest.raises(BadInput):
            folder_of(what, store)
    with pytest.raises(BadInput, match="--store"):
        folder_of("c1", tmp_path / "none")


@pytest.mark.parametrize("seed", keep_quick([5, 3, 4], 1))  # it shows in one, none, both of the judge's runs
def test_a_flaky_failure_of_a_store_is_exported_and_says_how_often_it_shows(
    seed: int, tmp_path: Path
) -> None:
    target = f"fake:faults=error@Relu%0.4,seed={seed}"
    campaign = Campaign("c0ffee", "small-1", 7, (target,))
    with Store(store := tmp_path / "store") as writer:
        writer.begin_campaign(campaign)
        writer.record_tests(campaign, [done(1, finding("it fails", target=target, verdict="flaky"))])
    with Queries(store) as queries:
        (entry,) = queries.non_bugs("flaky")
    code, out, _ = exported(entry.case, "--store", store, "-o", tmp_path, "--json")
    assert code == 0
    assert json.loads(out)["failure"] == "error"
    shows = re.search(r"in (\d+) of 30 runs", json.loads(out)["message"])
    assert shows is not None
    source = (tmp_path / "repro.py").read_text()
    runs = re.search(r"^RUNS = (\d+)$", source, re.MULTILINE)
    assert runs is not None
    assert int(runs[1]) == runs_for(wilson(int(shows[1]), 30), sightings=1)
    # what shows in two runs of five is missed by less than one script in a hundred
    assert 0.6 ** int(runs[1]) < 0.01
    assert f"It does not always show, so it is looked for in up to {runs[1]} runs." in " ".join(
        source.split()
    )
    exported(entry.case, "--store", store, "-o", tmp_path, "--as", "issue")
    assert f"it was seen in {shows[1]} of 30 runs of the same inputs" in (tmp_path / "issue.md").read_text()


@pytest.mark.slow
def test_what_is_flaky_and_not_seen_again_is_not_exported(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", [done(1, finding("it fails", verdict="flaky"))])
    with Queries(store) as queries:
        (entry,) = queries.non_bugs("flaky")
    code, _, talk = exported(entry.case, "--store", store, "-o", tmp_path)
    assert code == 3
    assert "not seen again in 60 runs" in talk
    with pytest.raises(BadInput, match="--non-bugs"):
        exported(Path(entry.case).parent.name, "--store", store)


def test_bad_places_are_told(case: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot write"):
        exported(case, "-o", tmp_path / "no" / "such" / "folder.py")
    with pytest.raises(BadInput):
        exported(tmp_path / "no" / "case")


def test_a_module_that_the_default_compiler_does_not_take_asks_for_one_that_does() -> None:
    sample = Path(__file__).parents[2] / "samples" / "tvm-rms-norm-axes-error"
    with pytest.raises(
        BadInput, match=r"^onnxruntime takes no Relax modules: name a compiler that does with --target$"
    ):
        exported(sample)
