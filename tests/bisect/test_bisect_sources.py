"""Sightings, transitions, the journal, the blame of passes, and both commands."""

import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import opsieve
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper
from repository import ROOT
from wheels import wheel

from opsieve.backends.registry import resolve
from opsieve.backends.releases.installers import CONFIGURED, PackageIndex
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.search.search import TestResult
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.bisect.sessions.version_rows import assemble_row
from opsieve.bisect.sources.outcome import (
    ProbeJournal,
    VersionOutcome,
    classify_outcome,
    describe_limits,
    find_transitions,
    hash_case,
    is_monotone,
)
from opsieve.bisect.sources.release_source import Releases, find_backend, list_releases
from opsieve.bisect.sources.version_sequence import find_place
from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram

FINE, LOST = VersionOutcome("good", symptom="ok"), VersionOutcome("skip", symptom="environment")
WRONG = VersionOutcome("bad", "k1", "mismatch value", "value mismatch", "done")
RAISES = VersionOutcome("bad", "k2", "error run x", "error at run", "run")
UNSUPPORTED = VersionOutcome("skip", symptom="unsupported", stage="run")
STOPS = VersionOutcome("bad", "k3", "error compile y", "error at compile", "compile")
DIES = VersionOutcome("bad", "k4", "crash compile SIGSEGV", "crash at compile", "compile")
DIES_IN_F = replace(DIES, key="k5", trait="crash compile SIGSEGV f")
DIES_IN_G = replace(DIES, key="k6", trait="crash compile SIGSEGV g")


@pytest.mark.parametrize(
    ("seen", "wanted", "expected"),
    [
        (FINE, WRONG, TestResult.GOOD),
        (LOST, WRONG, TestResult.SKIP),
        (WRONG, WRONG, TestResult.BAD),
        (RAISES, WRONG, TestResult.SKIP),  # it ends before a wrong result could be seen
        (STOPS, RAISES, TestResult.SKIP),
        (WRONG, RAISES, TestResult.GOOD),  # it got past the place of the error
        (RAISES, STOPS, TestResult.GOOD),
        # It compiles what its host cannot run, or cannot be tried at all.
        (UNSUPPORTED, STOPS, TestResult.GOOD),
        (UNSUPPORTED, RAISES, TestResult.SKIP),
        (LOST, STOPS, TestResult.SKIP),
        (STOPS, None, TestResult.BAD),
        # A release without symbols has no names on its stack.
        (DIES, DIES_IN_F, TestResult.BAD),
        (DIES_IN_F, DIES, TestResult.BAD),
        (DIES_IN_G, DIES_IN_F, TestResult.SKIP),
        (DIES, STOPS, TestResult.SKIP),
    ],
)
def test_another_failure_is_never_bad(
    seen: VersionOutcome, wanted: VersionOutcome | None, expected: TestResult
) -> None:
    assert classify_outcome(seen, wanted) is expected


def test_every_change_is_told_once() -> None:
    row = [LOST, FINE, None, WRONG, WRONG, RAISES, LOST, FINE, FINE]
    found = find_transitions("abcdefghi", row)
    assert [(t.kind, t.last_before, t.first_after, t.exact) for t in found] == [
        ("regression", "b", "d", False),
        ("symptom", "e", "f", True),
        ("fix", "f", "h", False),
    ]
    assert not is_monotone(found)
    assert is_monotone(found[:2])


def test_the_end_of_another_failure_is_no_fix() -> None:
    row = [LOST, STOPS, STOPS, FINE, RAISES, WRONG, FINE]
    found = find_transitions("abcdefg", row, RAISES)
    assert [t.kind for t in found] == ["symptom", "regression", "symptom", "symptom"]
    assert is_monotone(found)
    assert [t.kind for t in find_transitions("abcdefg", row)] == ["fix", "regression", "symptom", "fix"]


@settings(deadline=None)
@given(st.lists(st.sampled_from([FINE, LOST, WRONG, RAISES, None]), max_size=20))
def test_transitions_lead_from_one_to_the_next(row: list[VersionOutcome | None]) -> None:
    found = find_transitions([str(place) for place in range(len(row))], row)
    assert all(
        a.after == b.before and int(a.first_after) <= int(b.last_before) for a, b in itertools.pairwise(found)
    )
    known = [item for item in row if item is not None and item is not LOST]
    assert len(found) == sum(a != b for a, b in itertools.pairwise(known))


def test_a_journal_keeps_what_was_seen(tmp_path: Path) -> None:
    journal = ProbeJournal(tmp_path, {"case": "x"})
    assert journal.get_probe("1.2.0") is None
    journal.add_probe("1.2.0", WRONG, 0.5)
    journal.add_probe("1.2.0", FINE, 0.5, turn=1)
    again = ProbeJournal(tmp_path, {"case": "x"})
    assert (again.get_probe("1.2.0"), again.get_probe("1.2.0", 1), again.get_probe("1.2.0", 2)) == (
        WRONG,
        FINE,
        None,
    )
    assert ProbeJournal(tmp_path, {"case": "y"}).get_probe("1.2.0") is None


def test_a_journal_keeps_conclusions(tmp_path: Path) -> None:
    journal = ProbeJournal(tmp_path, {})
    assert journal.get_conclusion("passes-1.0") is None
    journal.add_conclusion("passes-1.0", {"guilty_passes": ["Fuse"]})
    assert ProbeJournal(tmp_path, {}).get_conclusion("passes-1.0") == {"guilty_passes": ["Fuse"]}
    (journal.folder / "conclusions.jsonl").write_text("[1]")
    assert ProbeJournal(tmp_path, {}).get_conclusion("passes-1.0") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', "\xff"])
def test_a_damaged_probe_counts_as_none(tmp_path: Path, text: str) -> None:
    journal = ProbeJournal(tmp_path, {})
    journal.add_probe("1.0", WRONG, 0.1)
    (journal.folder / "probes.jsonl").write_text(text, encoding="latin-1")
    again = ProbeJournal(tmp_path, {})
    assert again.get_probe("1.0") is None
    again.add_probe("1.0", FINE, 0.1)
    assert ProbeJournal(tmp_path, {}).get_probe("1.0") == FINE


def test_hostile_versions_stay_in_the_folder(tmp_path: Path) -> None:
    journal = ProbeJournal(tmp_path / "root", {})
    journal.add_probe("../../evil", WRONG, 0.1)
    assert journal.get_probe("../../evil") == WRONG
    assert not list(tmp_path.glob("evil*"))
    assert len(list(journal.folder.iterdir())) == 2


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path) -> None:
    """The process is killed in its fifth probe: the first four are there, the fifth is not."""
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from opsieve.bisect.sources.outcome import ProbeJournal\n"
        "from opsieve.bisect.sources.outcome import VersionOutcome\n"
        "journal = ProbeJournal(Path(sys.argv[1]), {})\n"
        "for turn in range(9):\n"
        "    if turn == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    journal.add_probe('1.0', VersionOutcome('good'), 0.1, turn)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    journal = ProbeJournal(tmp_path, {})
    assert [journal.get_probe("1.0", turn) is not None for turn in range(6)] == [True] * 4 + [False] * 2


def pad_and_pool() -> Case:
    """Pad_Fusion of onnxruntime 1.20 and newer folds a padding with zeros into MaxPool, which pads with minus
    infinity.
    """
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["p"]),
        helper.make_node("MaxPool", ["p"], ["y"], kernel_shape=[2, 2]),
    ]
    pads = helper.make_tensor("pads", TensorProto.INT64, [8], [0, 0, 1, 1, 0, 0, 1, 1])
    value = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 3, 3]),
    ]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [pads])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    onnx.checker.check_model(model)
    return Case(OnnxProgram(model.SerializeToString()), {"x": np.full((1, 1, 2, 2), -1.5, np.float32)})


def test_the_attribute_command_names_the_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(pad_and_pool(), tmp_path / "case")
    _, out, _ = opsieve("attribute", tmp_path / "case", "--json", capsys=capsys)
    told = json.loads(out)
    assert (told["answer"], told["passes"]) == ("pass", ["Pad_Fusion"])
    assert {"answer", "passes", "levels", "probes", "seconds_cpu"} <= set(told)
    off = ["--target", "onnxruntime:disabled_optimizers=Pad_Fusion"]
    code, _, err = opsieve("attribute", tmp_path / "case", *off, capsys=capsys)
    assert code == 3
    assert "no failure to work on: " in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["case"], "exactly one of --releases"),
        (["--releases", "onnxruntime"], "name the CASE"),
        (["nowhere.onnx", "--releases", "onnxruntime"], "cannot read"),
        (["--commits", "nowhere", "--good", "a", "--bad", "b", "--check", "c"], "not a git repository"),
        (["--commits", ".", "--good", "a"], "name --good and --bad"),
        (["x", "--releases", "onnxruntime", "--chance", "2"], "--repro-rate"),
    ],
)
def test_bad_usage_gets_one_sentence(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = opsieve("bisect", *arguments, capsys=capsys)
    assert code == 2
    assert word in err
    assert len(err.strip().splitlines()) == 1


def test_one_wheel_holds_several_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "store"))
    case = str(ROOT / "samples" / "onnx-compose-branch-initializer-error")
    asked = ["bisect", case, "--releases", "onnx", "--offline", "-t"]
    assert "leave --offline out" in opsieve(*asked, "onnx-compose", capsys=capsys)[2]
    assert "is the package of" in opsieve(*asked, "onnxslim", capsys=capsys)[2]


def test_an_old_release_has_an_onnx_of_its_time() -> None:
    backend = resolve("onnx-graphsurgeon").backend
    assert (backend.companions("0.5.8"), backend.companions("0.6.1")) == (("onnx==1.18.0",), ())
    assert resolve("onnxslim").backend.companions("0.0.1") == ()


def test_names_of_packages_and_releases() -> None:
    assert find_backend("onnxruntime") == "onnxruntime"
    with pytest.raises(BadInput, match="no backend runs"):
        find_backend("left-pad")
    assert find_place("1.1", ["1.0", "1.1"], "--bad") == 1
    with pytest.raises(BadInput, match=r"the next one is 1\.2"):
        find_place("1.1", ["1.0", "1.2"], "--bad")


class CountingStore(ReleaseStore):
    """A store that counts how often the index is asked."""

    asked = 0

    def available(
        self, package: str, index: PackageIndex = CONFIGURED, preliminary: bool = False
    ) -> list[str]:
        self.asked += 1
        return ["1.2", "1.10"]


def test_a_named_index_wins_over_the_configured_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The same numbers may be other builds, such as torch without CUDA.
    public = tmp_path / "simple" / "onnxslim"
    public.parent.mkdir()
    names = [wheel(public, "onnxslim", version).name for version in ("1.0", "1.1", "1.2")]
    (public / "index.html").write_text("".join(f'<a href="{name}">{name}</a>' for name in names))
    wheel(tmp_path / "cpu", "onnxslim", "1.1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", public.parent.as_uri())
    monkeypatch.setenv("OPSIEVE_PROBES", str(tmp_path / "probes"))
    request = BisectRequest(None, indexes=(str(tmp_path / "cpu"),))
    row = assemble_row(request, "onnxslim", resolve("onnxslim"), print)
    places = {each.number: each.release.index.place for each in row.versions if each.release}
    assert places == {"1.0": "", "1.1": str(tmp_path / "cpu"), "1.2": ""}


def test_what_the_index_said_is_kept_for_an_hour(tmp_path: Path) -> None:
    store = CountingStore(tmp_path / "store")
    kept = tmp_path / "listed" / "thing.json"
    for _ in range(3):
        assert list_releases("thing", False, store, tmp_path) == ["1.2", "1.10"]
    assert store.asked == 1
    os.utime(kept, (0, 0))
    assert list_releases("thing", False, store, tmp_path) == ["1.2", "1.10"]
    kept.write_text('{"no": "list"}')
    assert list_releases("thing", False, store, tmp_path) == ["1.2", "1.10"]
    kept.write_text('["not a release"]')
    assert list_releases("thing", False, store, tmp_path) == ["1.2", "1.10"]
    assert store.asked == 4


def test_a_case_is_its_model_and_its_values() -> None:
    case = pad_and_pool()
    other = Case(case.program, {"x": np.ones((1, 1, 2, 2), np.float32)})
    expected = Case(case.program, case.inputs, {"y": np.zeros((1, 1, 3, 3), np.float32)})
    assert len({hash_case(item) for item in (case, other, expected)}) == 3
    assert hash_case(case) == hash_case(pad_and_pool())


def test_probes_under_other_limits_are_of_another_question(tmp_path: Path) -> None:
    assert describe_limits(Limits()) == {}  # journals of before there were limits to choose
    short, small = describe_limits(Limits(seconds=2.0)), describe_limits(Limits(memory=128 << 20))
    assert short != small
    ProbeJournal(tmp_path, short).add_probe("1.2.0", FINE, 0.5)
    assert ProbeJournal(tmp_path, small).get_probe("1.2.0") is None
    assert ProbeJournal(tmp_path, {}).get_probe("1.2.0") is None


@pytest.mark.slow
def test_released_wheels(tmp_path: Path) -> None:
    case = pad_and_pool()
    versions = ["1.18.1", "1.19.0", "1.19.2", "1.20.0", "1.20.1"]
    with Workers() as workers:
        source = Releases(case, resolve("onnxruntime"), workers, tmp_path, say=lambda sentence: None)
        found = source.search_versions(versions, None, None)
        assert found.outcome is not None
        assert [versions[place] for place in found.outcome.first] == ["1.20.0"]
        swept = Releases(
            case, resolve("onnxruntime"), workers, tmp_path, say=lambda sentence: None
        ).sweep_versions(versions)
    assert [(t.kind, t.last_before, t.first_after) for t in find_transitions(versions, swept.seen)] == [
        ("regression", "1.19.2", "1.20.0")
    ]
    assert swept.recalled == len(versions) - found.seen.count(None)
