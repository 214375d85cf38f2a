"""Campaigns on the fake compiler and onnxruntime: what they find, that they can be killed, and that equal
seeds give equal stores.
"""

import functools
import hashlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from commands import opsieve
from thread_lanes import spawn as thread_spawn
from waiting import wait_until

from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.probing.operator_support import Support
from opsieve.backends.probing.prober import Prober
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.campaign.lane_spawn import Spawn, spawn_lane
from opsieve.triage.campaign.plan import USUAL, CampaignPlan, make_seed, make_support, parse_plan
from opsieve.triage.campaign.schedule.costs import read_stated
from opsieve.triage.store.finished_test import Campaign, FinishedTest
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.store import Store

SEEDED = {  # many operators, so that some are met whatever the generator makes of a seed
    "wrong": ("Softmax", "PRelu", "Mean", "Softplus", "Cast", "Neg", "Relu", "Abs"),
    "crash": ("Identity", "Flatten", "Transpose"),
    "error": ("ReduceMax", "ReduceMin", "Greater", "Less", "Squeeze", "Range", "Reshape"),
    "unsupported": ("BitShift", "SplitToSequence", "Unsqueeze", "And", "Xor"),
}
FAKE = "fake:" + "+".join(f"{kind}@{name}" for kind, names in SEEDED.items() for name in names)
TARGETS = ("--target", FAKE, "--target", "onnxruntime", "--no-probe", "--nodes", "6", "--strategy", "isra")
PLAN = CampaignPlan("isra", replace(USUAL, nodes=6, between=None))
WHOLE = 24  # tests of the campaign that others are compared with


@functools.cache
def plan() -> CampaignPlan:
    """What the command line makes of `TARGETS`: nobody knows what the fake compiler has, onnxruntime's table
    comes with the package.
    """
    targets = [resolve(FAKE), resolve("onnxruntime")]
    with Workers() as workers:
        table = Prober(workers, targets[1]).make_table()
    return replace(PLAN, supports=(make_support(table),), costs=read_stated(targets))


def contents(folder: Path) -> tuple[dict[str, str], list[object]]:
    """Programs by their place, and all that the index tells but times."""
    programs = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("cases/*/*/model.onnx")
    }
    index = sqlite3.connect(folder / INDEX)
    assert index.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    told = [
        index.execute(sql).fetchall()
        for sql in (
            "SELECT * FROM tests ORDER BY number",
            "SELECT test, target, verdict, kind, fingerprint, folder FROM failures ORDER BY test, target",
            "SELECT key, count, kept FROM fingerprints ORDER BY key",
            "SELECT target, verdict, count FROM totals ORDER BY target, verdict",
        )
    ]
    index.close()
    assert list((folder / "staging").iterdir()) == []
    return programs, told


def fuzz(folder: Path, tests: int, lanes: int = 1, start: Spawn = spawn_lane) -> None:
    with Store(folder) as store:
        campaign = make_campaign(3, [resolve(FAKE), resolve("onnxruntime")], plan())
        store.begin_campaign(campaign)
        for _ in run_campaign(
            store, campaign, plan(), Limits(seconds=20), lanes=lanes, tests=tests, start=start
        ):
            pass


def test_equal_seeds_give_equal_stores_whatever_the_lanes_and_the_interruptions(
    tmp_path: Path, whole: Path
) -> None:
    fuzz(tmp_path, 13, start=thread_spawn)
    fuzz(tmp_path, WHOLE, lanes=2, start=thread_spawn)
    programs, told = contents(whole)
    assert programs
    assert contents(tmp_path) == (programs, told)


@pytest.mark.slow
def test_a_target_of_which_nothing_is_known_is_given_what_it_has(tmp_path: Path) -> None:
    """It is asked while programs are made: `plan()` begins with no table of it, and its stores hold programs
    that it refuses.
    """
    unknown = Support(resolve(FAKE).display, "1", {}, {}, frozenset(), frozenset())
    growing = replace(PLAN, supports=(unknown, *plan().supports), costs=plan().costs)
    campaign = make_campaign(3, [resolve(FAKE), resolve("onnxruntime")], growing)
    seen = []
    for name, lanes in (("one", 1), ("two", 2)):
        with Store(tmp_path / name) as store:
            store.begin_campaign(campaign)
            limits = Limits(seconds=20)
            for _ in run_campaign(
                store, campaign, growing, limits, lanes=lanes, tests=WHOLE, start=thread_spawn
            ):
                pass
            assert set(store.count_verdicts(campaign)[FAKE]) >= {"pass", "fail"}
            assert "unsupported" not in store.count_verdicts(campaign)[FAKE]
        seen.append(contents(tmp_path / name))
    assert seen[0] == seen[1]


def test_what_is_found_is_what_was_seeded(
    tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path / "s")
    code, out, _ = opsieve(
        "fuzz", "--tests", "32", "--store", tmp_path / "s", "--resume", "--json", capsys=capsys
    )
    told = json.loads(out)
    assert code == 1
    assert set(told["failures"]) >= {"crash", "error", "mismatch"}
    assert (told["tests"], told["tests_now"]) == (32, 32 - WHOLE)
    assert told["unsupported"] > 0
    assert told["environment"] == 0
    assert 0 < told["clusters"] <= told["fingerprints"]
    assert told["targets"]["onnxruntime"]["verdicts"]["pass"] > 16
    assert sum(told["targets"]["onnxruntime"]["verdicts"].values()) == 32
    assert {"tests_per_second", "clusters", "store"} <= told.keys()
    for kind in ("crash", "error", "mismatch"):
        folder = next((tmp_path / "s" / "cases").glob(f"fake-{kind}-*/1"))
        code, out, _ = opsieve("run", folder, "--target", FAKE, "--json", capsys=capsys)
        assert code == 1
        assert json.loads(out)["results"][0]["fingerprint"] == folder.parent.name


def test_a_campaign_that_is_there_is_not_begun_anew_and_a_version_that_changed_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = (
        "fuzz",
        "--target",
        "fake",
        "--no-probe",
        "--strategy",
        "isra",
        "--nodes",
        "6",
        "--tests",
        "4",
        "--seed",
        "4",
        "--store",
        tmp_path / "s",
    )
    assert opsieve(*same, capsys=capsys)[0] in (0, 1)
    code, _, err = opsieve(*same, capsys=capsys)
    assert code == 2
    assert "--resume" in err
    code, out, err = opsieve(
        "fuzz", "--tests", "8", "--store", tmp_path / "s", "--resume", "--json", capsys=capsys
    )
    assert (json.loads(out)["tests"], json.loads(out)["tests_now"]) == (8, 4)
    assert "when the campaign began" not in err
    index = sqlite3.connect(tmp_path / "s" / INDEX)
    index.execute('UPDATE campaigns SET versions = \'{"fake": "0.0.7"}\'')
    index.commit()
    index.close()
    code, _, err = opsieve("fuzz", "--tests", "9", "--store", tmp_path / "s", "--resume", capsys=capsys)
    assert code in (0, 1)
    assert "fake was 0.0.7 when the campaign began and is " in err
    code, _, err = opsieve("fuzz", "--store", tmp_path / "s", "--resume", "--nodes", "9", capsys=capsys)
    assert code == 2
    assert "cannot change --strategy, --nodes, --values" in err
    code, _, err = opsieve("fuzz", "--store", tmp_path / "t", "--resume", capsys=capsys)
    assert code == 2
    assert "there is no store" in err
    assert not (tmp_path / "t").exists()


@pytest.mark.slow(seconds=3)
def test_when_the_time_is_up_slow_tests_are_not_waited_for_and_are_done_by_the_next_run(
    tmp_path: Path,
) -> None:
    slow = resolve("fake:hang@Cast+hang@Reshape")
    with Store(tmp_path / "s") as store:
        campaign = make_campaign(3, [slow], PLAN)
        store.begin_campaign(campaign)
        limits = Limits(seconds=0.3)
        for _ in run_campaign(store, campaign, PLAN, limits, lanes=2, seconds=0.2):
            pass
        first = store.count_done(campaign)
        assert first < 16  # two lanes have not begun what three chunks would be
        for _ in run_campaign(store, campaign, PLAN, limits, tests=first + 3):
            pass
        assert store.count_done(campaign) == first + 3
        verdicts = store.count_verdicts(campaign)[campaign.targets[0]]
        assert sum(verdicts.values()) == first + 3


def started(folder: Path, *more: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "opsieve",
        "fuzz",
        *TARGETS,
        "--seed",
        "3",
        "--store",
        str(folder),
        *more,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_done(folder: Path, tests: int, process: "subprocess.Popen[str]") -> None:
    """Wait until the index says that so many tests are done."""

    def recorded() -> int:
        if not (folder / INDEX).exists():
            return -1
        index = sqlite3.connect(folder / INDEX)
        try:
            return int(index.execute("SELECT count(*) FROM tests").fetchone()[0])
        except sqlite3.OperationalError:
            return -1  # it is being made
        finally:
            index.close()

    wait_until(lambda: recorded() >= tests, process)


@pytest.mark.slow(seconds=6)
def test_killed_and_ended_in_the_middle_it_goes_on_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """SIGKILL, then SIGTERM, which ends it as an interrupt does: with a summary."""
    first = started(tmp_path / "ended", "--tests", "2000", "-j", "2")
    until_done(tmp_path / "ended", 4, first)
    first.kill()
    first.communicate()
    with Store(tmp_path / "ended") as store:
        begun = store.list_campaigns()[0]
        there = store.count_done(begun)
    same = make_campaign(3, [resolve(FAKE), resolve("onnxruntime")], plan())
    assert begun == same, "the sources of gen changed while the tests ran: this process has the old ones"

    command = [
        sys.executable,
        "-m",
        "opsieve",
        "fuzz",
        "--store",
        str(tmp_path / "ended"),
        "--resume",
        "--json",
    ]
    second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_done(tmp_path / "ended", there + 1, second)
    second.send_signal(signal.SIGTERM)
    out, err = second.communicate(timeout=60)
    assert (second.returncode, "--resume" in err, "Traceback" in err) == (130, True, False)
    tests = json.loads(out)["tests"] + 3
    for name in ("ended", "whole"):
        fuzz(tmp_path / name, tests, start=thread_spawn)
    assert contents(tmp_path / "ended") == contents(tmp_path / "whole")


@pytest.mark.slow  # in make test SIGTERM, above; SIGINT of other commands
def test_an_interrupt_ends_it_with_a_summary(tmp_path: Path) -> None:
    process = started(tmp_path / "s", "--json", "-j", "2")
    until_done(tmp_path / "s", 16, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["tests"] >= 16
    assert "--resume" in err
    assert "Traceback" not in err
    contents(tmp_path / "s")


def test_a_target_that_is_not_there_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = opsieve("fuzz", "--target", "nothing", "--store", tmp_path / "s", capsys=capsys)
    assert code == 2
    assert "nothing" in err


@pytest.mark.parametrize("strategy", ["tir", "relax-passes"])
def test_a_strategy_whose_programs_no_target_takes_is_refused(
    strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = opsieve(
        "fuzz", "--target", "fake", "--strategy", strategy, "--store", tmp_path / "s", capsys=capsys
    )
    assert code == 2
    assert "no target accepts" in err


def test_special_values_are_refused_for_what_takes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        "fuzz",
        "-t",
        "tvm",
        "--strategy",
        "relax",
        "--values",
        "special",
        "--tests",
        "1",
        "--store",
        tmp_path,
    )
    code, _, err = opsieve(*command, capsys=capsys)
    assert code == 2
    assert (
        err
        == "opsieve: --values special needs ONNX models, and the strategy relax generates others: omit --values\n"
    )


def test_a_store_in_use_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(tmp_path / "s"):
        code, _, err = opsieve("fuzz", "--no-probe", "--tests", "1", "--store", tmp_path / "s", capsys=capsys)
    assert code == 2
    assert "another opsieve" in err


def test_tests_have_seeds_of_their_own() -> None:
    assert len({make_seed(campaign, number) for campaign in range(20) for number in range(50)}) == 1000
    assert all(0 <= make_seed(0, number) < 2**63 for number in range(50))


def test_a_campaign_of_another_generator_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for generator in ("small-1", "mix edition=0123456789ab nodes=5-30"):
        with Store(tmp_path / generator[:3]) as store:
            store.begin_campaign(Campaign("c0ffee", generator, 7, (FAKE,)))
        code, _, err = opsieve("fuzz", "--store", tmp_path / generator[:3], "--resume", capsys=capsys)
        assert code == 2
        assert "another generator" in err
        assert "start a new one" in err


def test_a_campaign_of_an_older_opsieve_goes_on_where_its_programs_are_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = replace(PLAN, edition="0123456789ab")
    campaign = make_campaign(7, [resolve("fake")], older)
    with Store(tmp_path) as store:
        store.begin_campaign(campaign, {})
        cases = {number: older.make_case(7, number) for number in range(3)}
        store.record_tests(campaign, [FinishedTest(number, case, {}, ()) for number, case in cases.items()])
    code, out, err = opsieve("fuzz", "--store", tmp_path, "--resume", "--tests", "5", "--json", capsys=capsys)
    assert (code in (0, 1), json.loads(out)["tests"]) == (True, 5), err
    assert "3 of its programs, generated again, are the same" in err
    with sqlite3.connect(tmp_path / INDEX) as index:
        index.execute("UPDATE tests SET digest = 'another' WHERE number = 1")
    code, _, err = opsieve("fuzz", "--store", tmp_path, "--resume", "--tests", "6", capsys=capsys)
    assert code == 2
    assert "another generator" in err


def test_a_plan_is_read_back_from_its_text() -> None:
    for plan in (
        CampaignPlan(),
        PLAN,
        CampaignPlan("isra", GenRequest(nodes=3, dtypes=frozenset({"float32", "int8"}), opset=18)),
        CampaignPlan(metamorphic=True, further=OracleChoice(("slowdown", "nondeterminism"))),
    ):
        assert parse_plan(plan.generator) == (plan, False)


def test_programs_of_a_campaign_follow_each_other_and_each_can_be_made_alone() -> None:
    numbers = [0, 1, 255, 256, 300]
    alone = {number: CampaignPlan().make_case(7, number).program.model for number in reversed(numbers)}
    assert {number: CampaignPlan().make_case(7, number).program.model for number in numbers} == alone
    assert make_seed(7, 5) == make_seed(7, 0) + 5


def test_a_resumed_campaign_stops_where_the_disk_is_full(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        campaign = make_campaign(3, [resolve(FAKE)], PLAN)
        store.begin_campaign(campaign)
        store._database.execute(
            f"PRAGMA max_page_count = {store._database.execute('PRAGMA page_count').fetchone()[0]}"
        )
        with pytest.raises(BadInput, match="full"):
            for _ in run_campaign(store, campaign, PLAN, Limits(seconds=20), tests=400, start=thread_spawn):
                pass


def test_a_campaign_has_the_operators_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (
        "-t",
        "fake:error@Gelu",
        "--ops",
        "com.microsoft::Gelu,Add",
        "--dtypes",
        "float32",
        "--seed",
        "3",
    )
    code, out, _ = opsieve(
        "fuzz", *options, "--tests", "40", "--store", tmp_path / "s", "--json", capsys=capsys
    )
    assert (code, json.loads(out)["tests"]) == (1, 40)
    models = [onnx.load(path) for path in (tmp_path / "s" / "cases").glob("*/*/model.onnx")]
    met = {(node.domain, node.op_type) for model in models for node in model.graph.node}
    assert {("com.microsoft", "Gelu")} < met <= {("com.microsoft", "Gelu"), ("", "Add"), ("", "Constant")}
    code, _, err = opsieve("fuzz", "--store", tmp_path / "s", "--resume", "--ops", "Add", capsys=capsys)
    assert (code, "cannot change" in err) == (2, True)
    for wrong, sentence in (("Gelo", "no operator matches"), ("-*", "leave no operator")):
        code, _, err = opsieve("fuzz", "-t", "fake", "--ops", wrong, "--store", tmp_path / "n", capsys=capsys)
        assert (code, sentence in err) == (2, True)
    code, _, err = opsieve(
        "fuzz", "-t", "tvm", "--strategy", "tir", "--ops", "Add", "--store", tmp_path / "n", capsys=capsys
    )
    assert (code, "omit them" in err) == (2, True)
    assert not (tmp_path / "n").exists()
