"""What a campaign decides of its batches: shares of strategies by what they yield, and what targets are known
to fail at.
"""

import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_campaign import PLAN
from test_schedule import asked_about
from tvm_programs import tir_program

from opsieve.backends.registry import resolve
from opsieve.backends.verdict import Verdict
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.gen.strategies.mix import BATCH, find_place
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.campaign.plan import CampaignPlan, make_seed
from opsieve.triage.campaign.schedule.batch import (
    OFTEN,
    STILL,
    UNSUPPORTED,
    BatchDecision,
    KnownFailures,
    Lacks,
    choose_skipped_feature,
    list_features,
    read_decision,
)
from opsieve.triage.campaign.schedule.costs import FLOOR, MOST, Costs, Shares
from opsieve.triage.campaign.schedule.schedule import (
    BACK,
    Schedule,
    forget_changed,
    get_shares,
    resume_schedule,
)
from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure, NonBug
from opsieve.triage.store.store import Store

COSTS = Costs(({"onnx": 10.0},))
CAMPAIGN = Campaign("c0ffee", "mix", 3, ("fake",))
MIX = CampaignPlan(costs=COSTS)


def failed(key: str) -> FoundFailure:
    return FoundFailure("fake", Verdict("fail", "differs", "mismatch", "run"), Fingerprint(5, key, ()), ())


def made_tests(first: int, upto: int, schedule: Schedule) -> Iterator[FinishedTest]:
    """Tests in which only hirfuzz finds something, each time something new, and all with BitShift fail
    alike.
    """
    for number in range(first, upto):
        rng = random.Random(number)
        decided = schedule.get_decision(number // BATCH)
        assert decided is not None
        strategy, _ = find_place(make_seed(3, number), decided.strategy_shares)
        has = {
            "Relu",
            "out float32",
            *(rng.choice(("Add", "BitShift", "Cast", "Neg", "Sign")) for _ in range(2)),
        }
        findings = [failed("fake-shift")] if "BitShift" in has else []
        if strategy == "hirfuzz" and rng.random() < 0.2:
            findings.append(failed(f"fake-{number}"))
        yield FinishedTest(number, None, {"fake": ("pass", 0.1)}, findings, features=tuple(sorted(has)))


def test_a_strategy_that_finds_more_has_more_of_the_programs_and_each_keeps_a_part() -> None:
    schedule, learnt = Schedule(CAMPAIGN, MIX, {}), dict[str, str]()
    usual = schedule.get_decision(0)
    assert usual is not None
    for test in made_tests(0, 6 * BATCH, schedule):
        learnt |= schedule.note_test(test) | schedule.take_changes()
    decided = schedule.get_decision(5 + BACK)
    assert decided is not None
    assert decided.shares["hirfuzz"] > 1.3 * usual.shares["hirfuzz"]
    for name in usual.shares:
        assert FLOOR * usual.shares[name] <= decided.shares[name] + 0.01 <= MOST * usual.shares[name] + 0.02
    assert schedule.get_decision(6 + BACK) is None
    assert decided.known == {"fake": {"BitShift": "fake-shift"}}
    assert read_decision(learnt[f"batch|{5 + BACK}"]) == decided


@pytest.mark.parametrize("stopped", [1, BATCH - 1, BATCH, 2 * BATCH + 77])
def test_a_resumed_schedule_decides_as_one_that_went_on(stopped: int) -> None:
    whole, resumed, learnt = Schedule(CAMPAIGN, MIX, {}), Schedule(CAMPAIGN, MIX, {}), dict[str, str]()
    for test in made_tests(0, stopped, resumed):
        learnt |= resumed.note_test(test) | resumed.take_changes()
    resumed = Schedule(CAMPAIGN, MIX, json.loads(json.dumps(learnt)))
    for test in made_tests(stopped, 3 * BATCH, resumed):
        resumed.note_test(test)
    for test in made_tests(0, 3 * BATCH, whole):
        whole.note_test(test)
    assert resumed.get_decision(2 + BACK) == whole.get_decision(2 + BACK)
    assert resumed.list_facts() == whole.list_facts()


def test_other_forms_have_a_share_of_the_time_of_targets_that_take_them() -> None:
    costs = Costs(({"onnx": 10.0}, {"onnx": 1000.0, "relax": 500.0}))
    usual = Shares(costs, {}).get_usual()
    assert sum(usual.values()) == pytest.approx(1000, abs=0.1)
    relax = sum(usual[name] for name in ("relax", "relax-passes"))
    assert 0.1 < relax * 500 / (1000 * 10) < 0.3  # of what the slow target has for the same programs
    alone = Shares(Costs(({"onnx": 1000.0, "relax": 500.0},)), {}).get_usual()
    assert sum(alone[name] for name in ("relax", "relax-passes")) > 200
    places = [find_place(make_seed(3, number), tuple(usual.items()))[0] for number in range(40 * BATCH)]
    assert places.count("relax") / len(places) == pytest.approx(usual["relax"] / 1000, rel=0.3)
    assert not {"relax", "tir"} & Shares(COSTS, {}).get_usual().keys()
    special = replace(MIX, request=replace(MIX.request, values="special"), costs=costs)
    made = Schedule(replace(CAMPAIGN, targets=("fake", "tvm")), special, {}).get_decision(0)
    assert made is not None
    assert made.shares
    assert "relax" not in made.shares


def test_forms_that_yield_get_more_of_the_time_and_those_that_yield_nothing_keep_a_quarter() -> None:
    shares = Shares(Costs(({"onnx": 1000.0, "relax": 500.0, "tir": 100.0},)), {})
    usual = shares.get_usual()
    for number in range(200):
        shares.note_test("relax-passes", 500.0, [f"error-{number}"], reached=False)
        shares.note_test("tir", 100.0, [], reached=False)
        shares.note_test("isra", 1000.0, ["always-the-same"], reached=False)
    decided = shares.compute_shares()
    costs = {"relax": 500.0, "relax-passes": 500.0, "tir": 100.0}

    def time_of(given: dict[str, float], name: str) -> float:
        return (
            given[name]
            * costs.get(name, 1000.0)
            / sum(given[each] * costs.get(each, 1000.0) for each in given)
        )

    assert time_of(decided, "relax-passes") > 2 * time_of(usual, "relax-passes")
    for name in ("tir", "isra", "relax"):
        assert time_of(decided, name) >= 0.999 * FLOOR * time_of(usual, name)
    assert time_of(decided, "tir") < time_of(usual, "tir")


@pytest.mark.parametrize("finder", ["nnsmith", "function-rewrite", "isra"])
def test_a_strategy_that_alone_finds_failures_has_at_most_four_times_its_share(finder: str) -> None:
    shares = Shares(COSTS, {})
    usual = shares.get_usual()
    for number in range(60 * BATCH // 16):
        for name in usual:
            shares.note_test(name, 10.0, [f"failure-{number}"] if name == finder else [], False)
    decided = shares.compute_shares()
    assert sum(decided.values()) == pytest.approx(1000, abs=0.1)
    for name, share in decided.items():
        assert FLOOR * usual[name] - 0.01 <= share <= MOST * usual[name] + 0.01, name
    assert decided[finder] == max(decided.values()) or decided[finder] == pytest.approx(
        MOST * usual[finder], abs=0.01
    )


def test_what_fails_alike_is_known_by_what_most_of_it_holds_and_forgotten_when_it_no_longer_fails() -> None:
    known, rng = KnownFailures({}), random.Random(5)

    def tests(count: int, broken: bool) -> None:
        for _ in range(count):
            has = {"Relu", "Add", *(rng.choice("ABCDEFGH") for _ in range(3))}
            has |= {"A > Relu"} if "A" in has else set()
            known.note_test("t", has, ["t-error-1"] if broken and "A" in has else [])
            known.note_test("other", has, [])

    tests(OFTEN - 1, broken=True)
    assert known.list_known() == {}
    tests(60, broken=True)
    assert known.list_known() == {"t": {"A": "t-error-1"}}
    tests(300, broken=False)
    assert known.list_known() == {}


def test_a_failure_of_nearly_every_program_or_of_no_feature_is_not_known() -> None:
    known, rng = KnownFailures({}), random.Random(5)
    for _ in range(200):
        has = {"Relu", *(rng.choice("ABCDEFGH") for _ in range(3))}
        known.note_test(
            "t", has, [key for key, share in (("t-all", 0.9), ("t-seldom", 0.2)) if rng.random() < share]
        )
    assert known.list_known() == {}


def test_the_passes_that_a_program_asks_for_are_features() -> None:
    features = list_features(tir_program("tirx.NarrowDataType:32", "=tirx.UnrollLoop.auto_max_step:3"))
    assert [name for name in features if name.startswith("pass ")] == ["pass tirx.NarrowDataType"]
    known = {"tvm": {"pass tirx.NarrowDataType": "tvm-crash-1"}}
    assert any(choose_skipped_feature(1, number, "tvm", features, known) for number in range(50))


def test_one_program_in_eight_still_goes_there() -> None:
    known = {"t": {"Add": "key"}}
    without = [
        number for number in range(4000) if choose_skipped_feature(1, number, "t", {"Add", "Relu"}, known)
    ]
    assert len(without) / 4000 == pytest.approx(1 - 1 / STILL, abs=0.02)
    assert not any(choose_skipped_feature(1, number, "other", {"Add"}, known) for number in range(50))
    assert not any(choose_skipped_feature(1, number, "t", {"Relu"}, known) for number in range(50))


def test_lanes_do_what_was_decided_and_a_new_version_is_asked_again(tmp_path: Path) -> None:
    plan = replace(PLAN, strategy="mix", costs=Costs(({"onnx": 10.0}, {"onnx": 10.0})))
    decided = BatchDecision({"isra": 600.0, "pattern": 400.0}, {"fake": {"out float32": "fake-error-1"}})
    with Store(tmp_path) as store:
        campaign = make_campaign(3, [resolve("fake"), resolve("onnxruntime")], plan)
        store.begin_campaign(campaign, {"fake": "1", "onnxruntime": "1"})
        store.write_state(campaign, {"batch|0": decided.to_text()})
        for _ in run_campaign(store, campaign, plan, Limits(seconds=20), tests=24):
            pass
        learnt = store.read_state(campaign)
        assert {json.loads(learnt["yield"])["tests"].keys() <= {"isra", "pattern"}} == {True}
        digests = store.sample_digests(campaign, 64)
        assert all(
            plan.make_case(3, number, get_shares(learnt, number)).program.digest == digest
            for number, digest in digests.items()
        )
        asked = asked_about(tmp_path, "fake")
        assert 0 < len(asked) < 20
        assert asked_about(tmp_path, "onnxruntime") == list(range(24))
        facts = Schedule(campaign, plan, learnt).list_facts()
        assert facts["known_failures"] == []  # decided of the first batch alone
        assert int(learnt["left-out|fake|out float32"]) == 24 - len(asked)
        forget_changed(store, campaign, plan, {"fake": "2", "onnxruntime": "1"})
        assert read_decision(store.read_state(campaign)["batch|0"]).known == {}
        with sqlite3.connect(tmp_path / "index.sqlite") as index:
            versions = dict(index.execute("SELECT name, value FROM learnt WHERE name LIKE 'version|%'"))
        assert versions == {"version|fake": "2"}


def test_what_a_target_refuses_is_learnt_and_what_it_takes_is_not_lacked() -> None:
    schedule, learnt = Schedule(CAMPAIGN, MIX, {}), dict[str, str]()
    for number in range(BATCH):
        has = ("Add", "Cast") if number % 3 else ("Add", "BitShift")
        lack = [NonBug("fake", "unsupported", f"{has[1]}: no kernel", "no kernel")]
        taken = number % 3 and number % 2  # Cast of some types
        verdict = "pass" if taken else "unsupported"
        test = FinishedTest(number, None, {"fake": (verdict, 0.1)}, (), () if taken else lack, features=has)
        learnt |= schedule.note_test(test) | schedule.take_changes()
    for kept in (schedule, Schedule(CAMPAIGN, MIX, learnt)):
        decided = kept.get_decision(BACK)
        assert decided is not None
        assert decided.known == {"fake": {"BitShift": UNSUPPORTED}}
        assert kept.list_facts()["lacks"] == [{"target": "fake", "feature": "BitShift", "left_out": 0}]
    assert schedule.note_new_version("fake").keys() >= {"lack|fake|BitShift", f"batch|{BACK}"}


def test_words_that_blame_no_operator_or_several_teach_nothing() -> None:
    lacks = Lacks({})
    for what in ("opset 26 is too new", "Add and Cast together", "", "x" * 5000):
        for _ in range(9):
            assert lacks.note_refusal("t", ("Add", "Cast", "Add > Cast"), what) == {}
    assert lacks.list_lacking() == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch|0", "[]"), ("batch|x", "{}"), ("batch|0", '{"shares": {"isra": "x"}, "known": {}}'), ("yield", "nothing"), ("known|fake|k", "[1]"), ("tests|fake", "many"), ("lack|fake|Add", "x"), ("yield", "[" * 10**5),],
)  # fmt: skip
def test_decisions_that_make_no_sense_are_refused_with_a_sentence(
    name: str, value: str, tmp_path: Path
) -> None:
    with Store(tmp_path) as store:
        store.begin_campaign(CAMPAIGN)
        store.write_state(CAMPAIGN, {name: value})
        with pytest.raises(BadInput, match="cannot be read: start a new campaign"):
            resume_schedule(store, CAMPAIGN, MIX)
        assert get_shares(store.read_state(CAMPAIGN), 0) == ()


def test_states_of_rewrites_are_counted_once_and_kept_when_a_campaign_is_resumed() -> None:
    schedule, learnt = Schedule(CAMPAIGN, MIX, {}), dict[str, str]()
    for number, states in enumerate((("MulOne: all met", "MulOne: x broken"), ("MulOne: all met",), ())):
        test = FinishedTest(
            number, None, {"fake": ("pass", 0.1)}, [], program_digest=str(number), states=states
        )
        learnt |= schedule.note_test(test)
    found = {name for name in learnt if name.startswith("state|")}
    assert found == {"state|MulOne: all met", "state|MulOne: x broken"}
    for each in (schedule, Schedule(CAMPAIGN, MIX, json.loads(json.dumps(learnt)))):
        assert each.list_facts()["states"]["met"] == 2
        assert each.list_facts()["states"]["of"] > 800
