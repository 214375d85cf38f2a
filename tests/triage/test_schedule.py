"""What a campaign decides by what was recorded: which programs slow targets are asked about, the same
whatever the lanes and interruptions.
"""

import json
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from test_campaign import FAKE, contents, plan
from thread_lanes import spawn

from opsieve.backends.probing.growing_support import GrowingSupport
from opsieve.backends.probing.operator_support import Support
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.errors import BadInput
from opsieve.gen.strategies.mix import BATCH
from opsieve.triage.campaign.campaign import make_campaign, run_campaign
from opsieve.triage.campaign.lane_spawn import Spawn
from opsieve.triage.campaign.plan import CampaignPlan, parse_plan
from opsieve.triage.campaign.schedule.cost_table import USUAL, load_costs, measure_costs
from opsieve.triage.campaign.schedule.costs import ALONE, FIRST, LENT, Costs, Pace, parse_costs, read_stated
from opsieve.triage.store.store import Store

COSTS = Costs(({"onnx": 10.0}, {"onnx": 100.0}))


def paced_plan() -> CampaignPlan:
    return replace(plan(), costs=COSTS)


def fuzz(folder: Path, tests: int, lanes: int = 1, start: Spawn = spawn) -> None:
    """A campaign with onnxruntime as the slow target."""
    with Store(folder) as store:
        campaign = make_campaign(3, [resolve(FAKE), resolve("onnxruntime")], paced_plan())
        store.begin_campaign(campaign)
        for _ in run_campaign(
            store, campaign, paced_plan(), Limits(seconds=20), lanes=lanes, tests=tests, start=start
        ):
            pass


def asked_about(folder: Path, target: str) -> list[int]:
    with sqlite3.connect(folder / "index.sqlite") as index:
        rows = index.execute("SELECT number, verdicts FROM tests ORDER BY number").fetchall()
    return [number for number, verdicts in rows if target in json.loads(verdicts)]


@pytest.mark.slow(seconds=3)
def test_a_slow_target_is_asked_about_some_programs_the_same_whatever_lanes_and_interruptions(
    tmp_path: Path,
) -> None:
    fuzz(tmp_path / "whole", 20)
    fuzz(tmp_path / "parts", 13, lanes=2)
    fuzz(tmp_path / "parts", 20)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    asked = asked_about(tmp_path / "whole", "onnxruntime")
    assert asked[:FIRST] == list(range(ALONE, ALONE + FIRST))
    assert asked_about(tmp_path / "whole", resolve(FAKE).display) == list(range(20))
    with sqlite3.connect(tmp_path / "whole" / "index.sqlite") as index:
        assert (
            index.execute("SELECT count(*) FROM learnt WHERE name LIKE 'met|onnxruntime|%'").fetchone()[0]
            > 10
        )


def simulated(tests: int, seed: int = 1) -> tuple[Pace, list[int], list[set[str]]]:
    """A slow target beside a quick one, on programs of a thousand features of which some are frequent."""
    pace, rng = Pace(("quick", "slow"), COSTS, {}), random.Random(seed)
    asked, programs = [], []
    for number in range(tests):
        has = {f"op{min(int(rng.expovariate(0.02)), 999)}" for _ in range(12)}
        programs.append(has)
        if pace.choose_slow(number, "onnx", has, ("quick",), (), ())[0]:
            asked.append(number)
    return pace, asked, programs


def test_a_slow_target_has_its_share_of_time_and_what_is_new_to_it() -> None:
    tests = 2000
    _, asked, programs = simulated(tests)
    spent = len(asked) * COSTS.get_cost(1, "onnx")
    assert 0.9 < spent / (tests * COSTS.get_cost(0, "onnx")) < 1.1
    met = set().union(*(programs[number] for number in asked))
    chosen_blindly = set().union(*(programs[number] for number in range(0, tests, tests // len(asked))))
    assert len(met) > 1.05 * len(chosen_blindly)


def test_targets_of_equal_tables_have_one_turn_and_suit_each_other() -> None:
    def table(target: str, *known: str) -> Support:
        return Support(target, "1", {}, {}, frozenset(known), frozenset())

    supports = (table("a", "Relu"), table("b", "Relu"), table("c", "Abs"))
    made = CampaignPlan(supports=supports)
    assert [sorted(made.list_unsuited(number)) for number in range(0, 4 * BATCH, BATCH)] == [
        [],
        ["c"],
        ["a", "b"],
        [],
    ]
    assert made.make_request(BATCH).supports == supports[0]
    alike = CampaignPlan(supports=supports[:2])
    assert alike.make_request(0).supports == alike.make_request(BATCH).supports
    unknown = [GrowingSupport(name, "1", {}, {}, frozenset(), frozenset()) for name in "ab"]
    assert CampaignPlan(supports=tuple(unknown)).list_unsuited(BATCH) == {"b"}


def test_a_target_that_takes_long_owes_the_others_little_at_the_start() -> None:
    costs = Costs(({"onnx": 10.0}, {"onnx": 900.0}))
    pace, asked = Pace(("quick", "slow"), costs, {}), []
    for number in range(300):
        has = {f"op{number} {place}" for place in range(50)}
        if pace.choose_slow(number, "onnx", has, ("quick",), (), ())[0]:
            asked.append(number)
    assert asked[:2] == [ALONE, ALONE + 1]
    assert 900 * len(asked) < 10 * 300 + LENT + 900
    assert asked[2] > 100


def test_a_large_program_counts_as_several() -> None:
    spent = {}
    for features in (50, 200):
        pace, rng = Pace(("quick", "slow"), COSTS, {}), random.Random(1)
        asked = 0
        for number in range(600):
            # Half of the programs are small; the large ones promise more, so that the slow target has hardly
            # any other.
            size = features if rng.random() < 0.5 else 25
            has = {f"op{number} {place}" for place in range(size)}
            asked += bool(pace.choose_slow(number, "onnx", has, ("quick",), (), ())[0])
        spent[features] = asked
    assert spent[200] < spent[50]


def test_what_fails_elsewhere_in_a_new_way_is_asked_as_soon_as_something_is_saved_but_not_for_ever() -> None:
    pace = Pace(("quick", "slow"), COSTS, {})
    had = []
    for number in range(400):
        failed = ("fake-wrong-1",) if number % 20 == 13 and number > 100 else ()
        if pace.choose_slow(number, "onnx", {"Relu"}, ("quick",), failed, ())[0] and failed:
            had.append(number)
    assert had[0] == 113
    assert 3 <= len(had) < 8


def test_what_is_kept_of_decisions_is_enough_to_go_on() -> None:
    pace, rng = Pace(("quick", "slow"), COSTS, {}), random.Random(2)
    learnt: dict[str, str] = {}
    other = pace
    for number in range(300):
        has = {f"op{rng.randrange(60)}" for _ in range(5)}
        failed = [f"key{rng.randrange(4)}"] if rng.random() < 0.1 else []
        left_out = ("slow",) if rng.random() < 0.2 else ()
        asked, changes = pace.choose_slow(number, "onnx", has, ("quick",), failed, left_out)
        assert (
            other.choose_slow(number, "onnx", has, ("quick",), failed, left_out)[0] == asked
            if other is not pace
            else True
        )
        learnt |= changes
        if number % 50 == 0:
            other = Pace(("quick", "slow"), COSTS, learnt)


def test_a_target_that_alone_takes_a_form_pays_for_it() -> None:
    costs = Costs(({"onnx": 10.0}, {"onnx": 100.0, "relax": 50.0}))
    pace = Pace(("quick", "slow"), costs, {})
    for number in range(2 * FIRST, 2 * FIRST + 40):
        if number % 4 == 0:
            assert pace.choose_slow(number, "relax", {f"r{number}"}, ("slow",), (), ())[0] == ()
        else:
            assert pace.choose_slow(number, "onnx", {f"o{number}"}, ("quick",), (), ())[0] == ()


def test_costs_are_text_of_the_plan_and_bad_ones_are_told() -> None:
    made = paced_plan()
    assert parse_plan(made.generator)[0].costs == COSTS
    assert parse_costs(str(COSTS)) == COSTS
    assert (COSTS.quick, COSTS.slow) == ((0,), (1,))
    assert Costs(({"relax": 9.0}, {"onnx": 5.0})).quick == (1,)
    for text in ("", "onnx", "onnx:x", "onnx:-1", "onnx:1+"):
        with pytest.raises(BadInput, match="states no costs"):
            parse_costs(text)


def test_measured_costs_take_the_place_of_stated_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path))
    tested = [Test(case.program, case.inputs) for case in (paced_plan().make_case(0, n) for n in range(6))]
    stated = [resolve(name) for name in ("onnxruntime", "openvino")]
    assert read_stated(stated) == Costs(({"onnx": USUAL}, {"onnx": 80.0}))
    with Workers() as workers:
        found = measure_costs(workers, [resolve("onnxoptimizer")], tested)
    assert load_costs() == found
    assert read_stated([resolve("onnxoptimizer")]) == Costs(({"onnx": found["onnxoptimizer"]},))
    (kept,) = tmp_path.rglob("*.json")
    kept.write_text('{"openvino": -3, "onnxruntime": 12}')
    assert read_stated(stated) == Costs(({"onnx": 12.0}, {"onnx": 80.0}))
    kept.write_text("[")
    assert load_costs() == {}


def test_a_compiler_that_ran_no_test_has_no_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path))
    with Workers() as workers, pytest.raises(BadInput, match="ran no test"):
        measure_costs(workers, [resolve("onnxruntime")], [])
    assert not load_costs()


@pytest.mark.parametrize(
    "name", ["openvino", "tract", "tinygrad", "torch", "inductor", "torch-exporter", "tvm"]
)
def test_every_slow_compiler_states_what_a_test_costs(name: str) -> None:
    assert resolve(name).facts.milliseconds["onnx"] > USUAL
