"""Strategies: valid programs of the size asked for, the same for the same seed everywhere; the mix; a user's
own.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from hypothesis import example, given, settings, strategies as st
from plugged import installed
from program_bytes import digest
from repository import ROOT, SUPPORT

from opsieve.gen.case.case import load, save
from opsieve.gen.declarations.builder import Budget
from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest, to_record
from opsieve.gen.generation.request import from_record, parse_nodes, select_dtypes, select_operators
from opsieve.gen.graph.parameters import OPERATORS
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies import registry as strategies
from opsieve.gen.strategies.mix import BATCH
from opsieve.gen.strategies.registry import generate
from opsieve_research.coverage import OperatorCoverage
from opsieve_research.graph import operations
from opsieve_research.structure import chains, without_constants

OWN = ("isra", "hirfuzz", "mix")
SEEDS = st.integers(0, 2**40)
DOC = ROOT / "docs" / "how-to" / "write-a-strategy.md"


@given(st.sampled_from(OWN), SEEDS, st.integers(1, 20))
@example("hirfuzz", 755712, 16)  # a body was drawn and not taken
@settings(deadline=None, max_examples=60)
def test_programs_are_valid_and_of_the_size_asked_for(name: str, seed: int, size: int) -> None:
    seed -= seed % BATCH  # the first of its batch: nothing has to be made before it
    model = onnx.load_model_from_string(generate(name, seed, GenRequest(nodes=size)).program.model)
    onnx.checker.check_model(model, full_check=True)
    # Some of `mix` are rewritten to functions.
    graphs = (model.graph.node, *(function.node for function in model.functions))
    made = sum(node.op_type != "Constant" for nodes in graphs for node in all_nodes(nodes))
    assert made >= size


def test_equal_seeds_give_equal_bytes_in_every_process() -> None:
    every = strategies.list_names()
    assert {"disruptive", "function-rewrite", "mutate", "nnsmith", "pattern", *OWN} <= set(every)
    code = f"from program_bytes import digest\nprint(digest({every!r}), end='')"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONHASHSEED": "2"
            if os.environ.get("PYTHONHASHSEED") == "1"
            else "1",  # not that of this process
            "PYTHONPATH": os.pathsep.join((str(SUPPORT), str(Path(__file__).parent))),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout == digest(every)


def test_guidance_covers_more_and_a_program_is_the_same_alone_and_in_order() -> None:
    request = GenRequest(nodes=6, types=True)
    met, typed = {}, {}
    for name in ("isra", "hirfuzz"):
        coverage, found, count = OperatorCoverage(), set[tuple[str, ...]](), 0
        for seed in range(120):
            nodes = operations(generate(name, seed, replace(request, nodes=16)).program.proto)
            coverage.add_operations(nodes)
            nodes = without_constants(nodes)
            labelled = [replace(node, operator=f"{node.operator} {node.outputs[0][0]}") for node in nodes]
            found |= chains(labelled, 3)
            count += len(nodes)
        met[name], typed[name] = coverage.hirfuzz, len(found) / count
    # Both have the same chains that compute parameters.
    assert typed["hirfuzz"] > 1.1 * typed["isra"], typed
    assert met["hirfuzz"]["operator-edge"] > 1.1 * met["isra"]["operator-edge"]
    assert met["hirfuzz"]["operator-dtype"] > met["isra"]["operator-dtype"]
    last = generate("hirfuzz", 40, request).program.model
    generate("hirfuzz", 7, request)
    generate("hirfuzz", 12, GenRequest(nodes=3))
    assert generate("hirfuzz", 40, request).program.model == last


def test_the_mix_gives_each_seed_a_program_of_its_own_and_tells_whose() -> None:
    request = GenRequest(nodes=3)
    cases = [generate("mix", seed, request) for seed in range(2 * BATCH)]
    assert len({case.program.model for case in cases}) == 2 * BATCH
    assert len({(case.origin.generator, case.origin.seed) for case in cases}) == 2 * BATCH
    for case in cases[5:BATCH:50]:
        assert case.origin.seed is not None
        assert generate(case.origin.generator, case.origin.seed, request).program.model == case.program.model


# What a builder adds so that tensors fit.
ADAPTERS = (
    "Abs",
    "Cast",
    "Clip",
    "Expand",
    "Greater",
    "Less",
    "Pad",
    "Reshape",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Where",
)


@pytest.mark.slow(seconds=3)
def test_no_operator_starves_and_none_drowns_the_others() -> None:
    met: Counter[str] = Counter()
    for seed in range(3 * BATCH):
        model = generate("mix", seed, GenRequest(nodes=20)).program.proto
        met.update(node.op_type for node in all_nodes(model.graph.node))
    families: dict[str, list[int]] = {}
    for name, operator in operators().items():
        if not operator.domain and operator.since <= 26 and met[name] and name not in {*ADAPTERS, *OPERATORS}:
            families.setdefault(operator.family, []).append(met[name])
    means = sorted(sum(counts) / len(counts) for counts in families.values())
    # Sums and products stand in most rewrites, of which two of five programs are made.
    assert means[-1] <= 8 * means[0]


WISHES = st.builds(
    GenRequest,
    nodes=st.integers(1, 50),
    only=st.none()
    | st.sets(st.sampled_from(["Add", "Conv", "com.microsoft::Gelu"]), min_size=1).map(frozenset),
    dtypes=st.none() | st.sets(st.sampled_from(["float32", "int4", "bool"]), min_size=1).map(frozenset),
    opset=st.sampled_from([0, 13, 21]),
    bins=st.integers(0, 9),
    types=st.booleans(),
    budget=st.builds(Budget, st.integers(1, 999), st.integers(1, 999), st.integers(1, 999)),
    target=st.sampled_from(["", "onnxruntime 1.31.1 0123456789ab"]),
)


@given(WISHES)
def test_a_wish_is_read_back_from_what_a_case_tells(request: GenRequest) -> None:
    assert from_record(to_record(request)) == request


@pytest.mark.parametrize(
    "record",
    [
        {"nodes": "x"},
        {"nodes": "9-3"},
        {"opset": "5"},
        {"opset": "one"},
        {"budget": "1,2"},
        {"colour": "red"},
    ],
)
def test_a_wish_that_makes_no_sense_is_told(record: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        from_record(record)


def test_a_saved_case_can_be_made_again(tmp_path: Path) -> None:
    request = GenRequest(nodes=6, dtypes=frozenset({"float32", "int8"}), opset=19)
    save(generate("isra", 3, request), tmp_path / "c")
    origin = load(tmp_path / "c").origin
    assert origin.seed is not None
    again = generate(origin.generator, origin.seed, from_record(origin.wish))
    assert again.program.model == (tmp_path / "c" / "model.onnx").read_bytes()


def test_operators_and_dtypes_are_named_by_pattern() -> None:
    assert select_operators([]) is None
    convs = select_operators(["Conv*", "-ConvInteger"])
    assert convs is not None
    assert {"Conv", "ConvTranspose"} <= convs
    assert "ConvInteger" not in convs
    rest = select_operators(["-Conv*"])
    assert rest is not None
    assert "Add" in rest
    assert not rest & convs
    assert not any("::" in name for name in rest)
    assert parse_nodes("5-60") == (5, 60)
    for bad in (["Zzz*"], ["Add", "-Add"]):
        with pytest.raises(BadInput):
            select_operators(bad)
    with pytest.raises(BadInput, match="not an element type"):
        select_dtypes(["float31"])
    model = generate("isra", 1, GenRequest(nodes=12, only=convs, dtypes=frozenset({"float32"}))).program.proto
    kinds = {node.op_type for node in model.graph.node} - {"Constant"}
    assert kinds & convs
    assert kinds <= convs | {"Cast", "Reshape", "Unsqueeze"}


@pytest.mark.parametrize("name", ["declarative", "randoop", "pad-slice"])
def test_baselines_are_strategies_that_refuse_what_they_do_not_know(name: str) -> None:
    case = generate(name, 3, GenRequest(nodes=5))
    assert (case.origin.generator, case.origin.wish) == (name, {"nodes": "5"})
    for request in (
        GenRequest(opset=18),
        GenRequest(only=frozenset({"Add"})),
        GenRequest(dtypes=frozenset({"int8"})),
    ):
        with pytest.raises(BadInput, match="baseline"):
            generate(name, 3, request)


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(BadInput, match=r"there are .*isra.*mix"):
        strategies.load_strategy("wishful")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "def mine(request, seed):\n    return {}[seed]\n",
            r"failed for seed 3: KeyError: 3 \(.*users_own\.py:2\)$",
        ),
        ("def mine(request, seed):\n    return 'x'\n", "returned 'x' for seed 3, which is not a Case$"),
        (
            "mine = 1 / 0\n",
            r"'mine' cannot be loaded \(ZeroDivisionError: .*\): mend or reinstall its package$",
        ),
        ("", r"'mine' cannot be loaded \(AttributeError: .*\): mend or reinstall its package$"),
    ],
    ids=["raises", "returns something else", "cannot be imported", "has no such name"],
)
def test_a_mistake_in_a_users_strategy_is_told_as_theirs(
    body: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, body, '[project.entry-points."opsieve.strategies"]\nmine = "users_own:mine"')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(
        strategies, "_find_entry_points", strategies._find_entry_points.__wrapped__
    )  # looked up anew
    monkeypatch.setattr(strategies, "load_strategy", strategies.load_strategy.__wrapped__)
    monkeypatch.delitem(sys.modules, "users_own", raising=False)
    with pytest.raises(BadInput, match=f"^the strategy .*{said}"):
        generate("mine", 3)


def test_the_text_on_writing_a_generator_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, line = re.findall(r"```(?:python|toml)\n(.*?)```", DOC.read_text(), re.DOTALL)
    installed(tmp_path, code, line)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(
        strategies, "_find_entry_points", strategies._find_entry_points.__wrapped__
    )  # looked up anew
    for seed in range(20):
        case = generate("towers", seed, GenRequest(nodes=15))
        model = onnx.load_model_from_string(case.program.model)
        onnx.checker.check_model(model, full_check=True)
        kinds = Counter(node.op_type for node in model.graph.node)
        assert kinds["MatMul"] >= 2
        assert kinds["Add"] >= 2
