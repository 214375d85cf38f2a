"""Siblings of a program: valid like it, different from each other, and made by number alone."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.generation.request import from_record
from opsieve.gen.strategies.registry import generate
from opsieve.triage.campaign.plan import USUAL, CampaignPlan, parse_plan

PLAIN = resolve("onnxruntime:disable_all")
REQUEST = GenRequest(nodes=14)


def canonical(model: onnx.ModelProto) -> str:
    """A model without names, and with constants where initializers are."""
    graph = model.graph
    names: dict[str, str] = {"": ""}
    stored = {
        item.name: item.SerializeToString().replace(item.name.encode(), b"") for item in graph.initializer
    }
    lines = [f"in {info.type}" for info in graph.input]
    names |= {info.name: f"i{place}" for place, info in enumerate(graph.input)}
    for node in graph.node:
        if node.op_type == "Constant":
            stored[node.output[0]] = node.attribute[0].t.SerializeToString()
            continue
        reads = [str(stored[name]) if name in stored else names[name] for name in node.input]
        lines.append(f"{node.op_type} {reads} {sorted(map(str, node.attribute))}")
        names |= {name: f"n{len(names)}.{place}" for place, name in enumerate(node.output) if name}
    return "\n".join([*lines, *(names[info.name] for info in graph.output)])


@pytest.mark.parametrize("dynamic", [0.0, 1.0])
def test_siblings_are_valid_and_their_results_are_finite(workers: Workers, dynamic: float) -> None:
    request = replace(REQUEST, dynamic=dynamic)
    cases = [
        generate("mix", seed, replace(request, sibling=number))
        for seed in range(500, 525)
        for number in (1, 2, 5, 11)
    ]
    seen: Counter[str] = Counter()
    for case, answer in zip(
        cases, workers.observe_many(PLAIN, [Test(case.program, case.inputs) for case in cases]), strict=True
    ):
        onnx.checker.check_model(case.program.proto, full_check=True)
        assert set(case.inputs) == {info.name for info in case.program.proto.graph.input}
        assert answer.outcome in ("ok", "unsupported", "environment"), (case.program.name, answer.message)
        seen[answer.outcome] += 1
        for value in (answer.outputs or {}).values():
            assert not isinstance(value, np.ndarray) or value.dtype.kind != "f" or np.isfinite(value).all()
    assert seen["ok"] > 50


def test_siblings_differ_beyond_names_and_stored_constants() -> None:
    for seed in range(20):
        found = [generate("isra", seed, replace(REQUEST, sibling=number)) for number in range(16)]
        texts = [canonical(case.program.proto) for case in found]
        assert len(set(texts)) == len(texts), seed


def test_a_sibling_is_made_by_its_seed_and_number_alone() -> None:
    request = replace(REQUEST, siblings=8)
    cases = [generate("mix", 77, replace(request, sibling=number)) for number in range(8)]
    assert cases[0].program.data == generate("mix", 77, request).program.data
    for case in reversed(cases):
        generate("isra", 3, REQUEST)  # the parts of another program are kept now
        again = generate(case.origin.generator, case.origin.seed or 0, from_record(case.origin.wish))
        assert again.program.data == case.program.data
        assert all(np.array_equal(again.inputs[name], value) for name, value in case.inputs.items())


def test_a_campaign_gives_each_test_a_program_of_its_own() -> None:
    plan = CampaignPlan(request=replace(USUAL, siblings=4))
    shares = (("isra", 3.0), ("chains", 1.0))
    for chosen in ((), shares):
        cases = [plan.make_case(9, number, chosen) for number in range(24)]
        assert len({case.program.data for case in cases}) == 24
        assert plan.make_case(9, 17, chosen).program.data == cases[17].program.data
    assert parse_plan(plan.generator)[0].request.siblings == 4


def test_a_record_with_an_impossible_number_is_refused() -> None:
    for wish in ({"sibling": "-1"}, {"siblings": "0"}, {"sibling": "x"}):
        with pytest.raises(BadInput, match="cannot be read"):
            from_record(wish)
