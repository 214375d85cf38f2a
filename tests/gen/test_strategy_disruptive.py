"""Programs with one fault: what is broken, that it is broken, that all is tried; and the oracle of who
accepts them.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from in_process import TableLab
from operator_soak import LENIENT

from opsieve.backends.judge.acceptance import CHECKER, judge_broken
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import NATIVE
from opsieve.backends.observation import Observation
from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.catalogue import choices, operators
from opsieve.gen.errors import BadInput
from opsieve.gen.generation.random_graph import GenRequest, build_single_node
from opsieve.gen.graph.writing import serialize
from opsieve.gen.irs.onnx.model_file import check
from opsieve.gen.irs.onnx.program import OnnxProgram, read_broken_mark
from opsieve.gen.model.program import KINDS, Broken
from opsieve.gen.strategies.disruptive import BATCH, disruptive, find_false_relations, list_violations
from opsieve.gen.strategies.registry import generate

FAKE = resolve("fake")
FAULT = Broken("Conv", "relation", "0 by group")
# Kinds that onnx's checker itself looks at; of the others it leaves some to whoever runs the program, and
# behind a Compress it knows no sizes.
CHECKED = frozenset(KINDS) - {"relation", "rank", "attribute-value", "output-shape"}


def fault(seed: int, nodes: int = 4) -> tuple[Broken, str]:
    case = disruptive(GenRequest(nodes=nodes), seed)
    found = read_broken_mark(case.program.proto)
    assert found is not None
    return found, check(case.program.model)


def test_programs_are_invalid_and_say_what_is_broken() -> None:
    refused: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for seed in range(4 * BATCH):
        found, complaint = fault(seed)
        seen[found.kind] += 1
        refused[found.kind] += bool(complaint)
        assert complaint or found.kind not in CHECKED, (seed, found)
    assert seen.keys() == set(KINDS)
    # Of some twenty of a kind; ONNX does not look at the words of every attribute.
    assert all(refused[kind] > 0.25 * seen[kind] for kind in KINDS), (refused, seen)


def test_within_a_batch_all_kinds_are_tried_about_as_often() -> None:
    kinds = Counter(fault(seed)[0].kind for seed in range(BATCH))
    assert min(kinds[kind] for kind in KINDS) >= 0.5 * BATCH / len(KINDS)
    pairs = Counter(fault(seed)[0] for seed in range(BATCH))
    assert max(pairs.values()) == 1  # nothing twice while there is something else


def test_a_program_depends_on_its_seed_alone() -> None:
    in_order = [disruptive(GenRequest(nodes=4), seed).program.model for seed in range(70)]
    for seed in (69, 3, 40, 64, 0, 63):
        case = generate("disruptive", seed, GenRequest(nodes=4))
        assert case.program.model == in_order[seed]
        assert case.origin.generator == "disruptive"
        assert case.origin.seed == seed


def test_without_the_fault_the_program_is_sound() -> None:
    """Only what is broken is wrong: a fault in what is declared of an output goes away when that is taken
    back.
    """
    for seed in range(BATCH):
        case = disruptive(GenRequest(nodes=4), seed)
        found = read_broken_mark(case.program.proto)
        if found is not None and found.kind == "unknown-attribute":
            model = case.program.proto
            for node in model.graph.node:
                for place, attribute in enumerate(node.attribute):
                    if attribute.name == "not_an_attribute":
                        del node.attribute[place]
            assert check(model.SerializeToString()) == "", found


def test_nothing_to_break_is_said() -> None:
    with pytest.raises(BadInput, match="let more in"):
        disruptive(GenRequest(nodes=2, only=frozenset(("Optional",))), 1)


def test_a_program_of_another_strategy_is_not_broken() -> None:
    assert read_broken_mark(generate("isra", 1).program.proto) is None


@given(st.sampled_from(sorted(operators())), st.integers(0, 10_000))
@settings(deadline=None)
def test_breaking_a_relation_leaves_the_others_true(name: str, seed: int) -> None:
    for choice in choices(21, frozenset((name,))):
        builder = build_single_node(choice, 21, seed)
        if (
            builder is None
            or builder.nodes[-1].domain
            or choice.op.family in ("control", "container", "text")
        ):
            continue
        node, op = builder.nodes[-1], choice.op
        assert find_false_relations(op, node.ins, node.attrs) == [], name
        for violation in list_violations(builder, node, op):
            if violation.kind == "relation":
                assert find_false_relations(op, violation.ins, violation.attrs) == [
                    int(violation.place.split()[0])
                ]


@given(st.sampled_from(sorted(name for name in operators() if "::" not in name)), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_what_is_not_broken_passes_the_checker(name: str, seed: int) -> None:
    for choice in choices(21, frozenset((name,))):
        builder = build_single_node(choice, 21, seed)
        if builder is not None:
            outputs = [out for node in builder.nodes for out in node.outs if out.name]
            assert check(serialize(builder, outputs, "sound")[0]) == "", name


def says(outcome: Any, **more: Any) -> Observation:
    outputs = {"y": np.zeros(1)} if outcome == "ok" else None
    return Observation("fake", "1", outcome, outputs=outputs, message="words", **more)


def verdict(answers: dict[str, Any], found: Broken = FAULT) -> tuple[str, str | None]:
    lab = TableLab({str(CHECKER): says("ok"), str(NATIVE): says("ok"), **answers})
    told, seen = judge_broken(OnnxProgram(b""), {}, FAKE, lab, found)
    assert seen[0].target == "fake"
    assert told.reason.startswith("fake")
    return told.verdict, told.kind


@pytest.mark.parametrize("outcome", ["error", "rejected"])
def test_a_refusal_passes(outcome: str) -> None:
    assert verdict({"fake": says(outcome)}) == ("pass", None)


@pytest.mark.parametrize(
    ("outcome", "kind"), [("crash", "crash"), ("hang", "hang"), ("out-of-memory", "memory")]
)
def test_dying_of_an_invalid_program_is_a_failure(outcome: str, kind: str) -> None:
    assert verdict({"fake": says(outcome)}) == ("fail", kind)
    once = [says(outcome), says("rejected")]
    assert verdict({"fake": lambda turn: once[min(turn, 1)]}) == ("flaky", kind)


def test_running_what_somebody_finds_invalid_is_a_failure() -> None:
    for objector in (CHECKER, NATIVE):
        assert verdict({"fake": says("ok"), str(objector): says("rejected")}) == ("fail", "accepts-invalid")
    assert verdict({"fake": says("ok")}) == ("undecided", None)


def test_lenience_is_told_and_no_failure() -> None:
    for kind in ("output-shape", "output-dtype", "unknown-attribute", "extra-input", "dtype"):
        found = Broken("Conv", kind, "any")
        assert verdict({"fake": says("ok"), str(CHECKER): says("rejected")}, found) == ("undecided", None)


def test_lacks_are_not_refusals() -> None:
    assert verdict({"fake": says("unsupported")})[0] == "unsupported"
    assert verdict({"fake": says("environment")})[0] == "environment"
    assert verdict({"fake": says("environment")}, Broken("Conv", "unknown-attribute", "any"))[0] == "pass"


def test_the_judge_knows_a_program_with_a_fault() -> None:
    case = disruptive(GenRequest(nodes=3), 0)
    lab = TableLab({str(CHECKER): says("rejected"), "fake": says("rejected")})
    judged = judge_program(case.program, case.inputs, FAKE, lab)
    assert judged.verdict.verdict == "pass"
    assert lab.asked == ["fake"]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


def test_near_misses_are_refused_by_the_checker_or_onnxruntime(workers: Workers) -> None:
    """What a declaration's `requires` calls wrong is wrong, but for operators where onnxruntime is known to
    be lenient.
    """
    cases = [disruptive(GenRequest(nodes=3, opset=18), seed) for seed in range(12 * BATCH)]
    found = [
        (case, told)
        for case in cases
        if (told := read_broken_mark(case.program.proto)) and told.kind == "relation"
    ]
    left = [(case, told) for case, told in found if not check(case.program.model)]
    tests = [Test(case.program, case.inputs) for case, _ in left]
    answers = workers.observe_many(resolve("onnxruntime"), tests)
    taken = [told for (_, told), answer in zip(left, answers, strict=True) if answer.outcome == "ok"]
    assert len(found) > 40
    assert not [told for told in taken if told.operator not in LENIENT]
