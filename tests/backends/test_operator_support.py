"""What a compiler has: probed on the fake one and on onnxruntime, kept, gone on with, and asked while
programs are made.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opsieve.backends.observation import Observation
from opsieve.backends.probing.growing_support import GrowingSupport, SignatureProber, make_growing
from opsieve.backends.probing.operator_support import (
    ProbeAnswer,
    Support,
    explain_support,
    get_beginning,
    get_kin,
    make_signature,
    name_tables,
    share_support,
)
from opsieve.backends.probing.prober import Prober, list_probes, probe_targets
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.catalogue import operators
from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.batches import Batches
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.graph.graph import BodyGraph, Node
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.strategies.registry import generate

ONLY = ("Relu", "Erf", "Cast", "Concat")
LACKING = resolve("fake:unsupported@Erf")


def test_what_is_refused_is_told_and_not_generated(workers: Workers, tmp_path: Path) -> None:
    (support,) = probe_targets(workers, [LACKING], ONLY, ("float32", "int64"), tmp_path)
    assert {told.split()[0] for told in support.reasons} == {"Erf"}
    assert {told.split()[0] for told in support.known} == set(ONLY)
    assert all(line.startswith("Erf-") and "Erf" in line for line in explain_support(support))
    met: Counter[str] = Counter()
    for seed in range(30):
        request = GenRequest(
            nodes=8,
            only=frozenset(ONLY),
            dtypes=frozenset({"float32", "int64"}),
            supports=share_support([support]),
        )
        met.update(
            node.op_type for node in all_nodes(generate("isra", seed, request).program.proto.graph.node)
        )
    assert met["Relu"] > 20
    assert met["Concat"] > 20
    assert not met["Erf"]


def test_what_is_there_and_fails_is_told_and_left_out_for_sound_programs_only(
    workers: Workers, tmp_path: Path
) -> None:
    """An error, and another shape than the declared one, which is an error of whoever reads the result."""
    failing = resolve("fake:error@Erf+shape@Relu")
    (support,) = probe_targets(workers, [failing], ONLY, ("float32",), tmp_path)
    assert not support.reasons
    assert {told.split()[0] for told in support.broken} == {"Erf", "Relu"}
    assert any(line.startswith("Relu-") and "broken: gives [" in line for line in explain_support(support))
    sound = support.without_broken()
    assert name_tables([sound]) != name_tables([support])
    x = [Tensor("x", "float32", (2, 3))]
    for name in ONLY:
        attrs = {"Cast": {"to": 7}, "Concat": {"axis": 0}}.get(name, {})
        for found in (support, share_support([support, support])):
            assert found is not None
            assert found(operators()[name], x, attrs, 18)
        for found in (sound, share_support([sound, sound])):
            assert found is not None
            assert found(operators()[name], x, attrs, 18) == (name in ("Cast", "Concat"))


def test_signatures_that_differ_in_further_inputs_are_kin_where_an_attribute_chooses_the_kernel() -> None:
    assert get_kin("Resize 19 int8,-,float32 mode=cubic") == get_kin("Resize 19 int8,int64 mode=cubic")
    assert get_kin("MaxPool 12 float32 auto_pad=VALID dilated") != get_kin(
        "MaxPool 12 float32 auto_pad=VALID"
    )
    assert get_kin("MaxPool 12 float32 auto_pad=VALID dilated") == get_kin(
        "MaxPool 12 int8 auto_pad=VALID dilated"
    )
    assert get_kin("Pow 15 float32,int32") != get_kin("Pow 15 float32,float32")


def test_of_an_unknown_target_what_comes_up_is_asked_once_and_in_any_order(
    workers: Workers, tmp_path: Path
) -> None:
    nothing = Support(LACKING.display, "1", {}, {}, frozenset(), frozenset())

    def made(seeds: Iterable[int], folder: str, of: Workers = workers) -> tuple[dict[int, str], Counter[str]]:
        support, asked = make_growing(nothing, of, LACKING, tmp_path / folder), Counter[str]()
        assert isinstance(support, GrowingSupport)
        assert isinstance(support.asked, SignatureProber)
        support = replace(support, asked=Recorded(support.asked, asked))
        request = GenRequest(nodes=8, only=frozenset(ONLY), supports=support)
        programs = {seed: generate("isra", seed, request).program for seed in seeds}
        assert not any(
            node.op_type == "Erf" for each in programs.values() for node in all_nodes(each.proto.graph.node)
        )
        assert max(asked.values()) == 1
        return {seed: each.digest for seed, each in programs.items()}, asked

    here, asked = made(range(8), "one")
    assert made(reversed(range(8)), "another")[0] == here
    assert any(key.startswith("Erf") for key in asked)
    # What onnxruntime and TVM have in their tables is asked about once for each operator and form.
    assert sum(key.startswith("operator Relu") for key in asked) <= 2
    assert make_growing(support(), workers, LACKING) == support()
    # What was answered is kept for the next one, which makes the same programs without asking.
    assert made(range(8), "one", NobodyThere())[0] == here


class NobodyThere(Workers):
    """Workers that must not be asked."""

    def observe_many(
        self, target: ResolvedTarget, tests: Sequence[Test], *, fresh: bool = False, repeat: int = 0
    ) -> Iterator[Observation]:
        raise AssertionError("what is known was asked again")


class Recorded:
    """Counts what a prober is asked."""

    def __init__(self, prober: SignatureProber, asked: Counter[str]):
        self.prober, self.asked = prober, asked

    def probe_signature(self, key: str) -> Sequence[ProbeAnswer]:
        self.asked[key] += 1
        return self.prober.probe_signature(key)

    def probe_operator(self, key: str) -> Sequence[ProbeAnswer]:
        self.asked[f"operator {get_beginning(key)}"] += 1
        return self.prober.probe_operator(key)


def test_a_probe_goes_on_where_it_was_left_even_after_half_a_line(workers: Workers, tmp_path: Path) -> None:
    wanted = list_probes(ONLY, ("float32", "int64", "bool"))
    first = Prober(workers, LACKING, tmp_path)
    next(iter(first.run_probes(wanted[:3])))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b'\n["Cast 25 bo')
    second = Prober(workers, LACKING, tmp_path)
    assert len(second.list_missing(wanted)) == len(wanted) - 3
    assert list(second.run_probes(wanted))[-1] == len(wanted)
    assert not Prober(workers, LACKING, tmp_path).list_missing(wanted)
    whole = Prober(workers, LACKING, tmp_path / "other")
    list(whole.run_probes(wanted))
    assert whole.get_support(wanted) == second.get_support(wanted)
    assert name_tables([whole.get_support(wanted)]) == name_tables([second.get_support(wanted)])


def support(
    refused: str = "", known: str = "Relu 14 float32", dtypes: frozenset[str] | None = None
) -> Support:
    reasons = {told: "no" for told in refused.split(";") if told}
    doubtful = frozenset(" ".join(told.split()[:2]) for told in reasons)
    return Support("fake", "1", reasons, {}, frozenset({*known.split(";"), *reasons}), doubtful, dtypes)


def allowed(found: Support, dtype: str) -> bool:
    return found(operators()["Relu"], [Tensor("x", dtype, (2, 3))], {}, 18)


def test_what_was_not_met_is_allowed_unless_others_of_its_operator_were_refused() -> None:
    assert allowed(support(), "float32")
    assert allowed(support(), "int8")
    one = support("Relu 14 float16")
    assert allowed(one, "float32")
    assert not allowed(one, "float16")
    assert not allowed(one, "int8")
    assert not allowed(support(dtypes=frozenset({"float32"})), "int8")
    every = share_support([support(), one])
    assert every is not None
    x = [Tensor("x", "float16", (2,))]
    assert not every(operators()["Relu"], x, {}, 18)
    assert share_support([]) is None


def test_a_signature_holds_what_chooses_a_kernel() -> None:
    x, n = Tensor("x", "float32", (2, 3)), Tensor("n", "int64", (1,))
    there = operators()
    assert make_signature(there["Cast"], [x], {"to": 10}, 13) == "Cast 13 float32 to=10"
    assert make_signature(there["Concat"], [x, x, x], {"axis": 0}, 13) == "Concat 13 float32"
    assert make_signature(there["Slice"], [x, n, n, None, n], {}, 13) == "Slice 13 float32,int64,int64,int64"
    body = BodyGraph((), [Node("Identity", "", [x], [x], {}, "n")], [x])
    assert (
        make_signature(there["SequenceMap"], [x], {"body": body}, 18)
        == "SequenceMap 17 float32 body=Identity"
    )
    attrs = {"auto_pad": "SAME_UPPER", "dilations": [1, 2]}
    assert (
        make_signature(there["Conv"], [x, x], attrs, 18)
        == "Conv 11 float32,float32 auto_pad=SAME_UPPER dilated"
    )


def test_onnxruntime_runs_what_its_table_allows(workers: Workers, tmp_path: Path) -> None:
    ort = resolve("onnxruntime:disable_all")
    only = frozenset({"OneHot", "EyeLike", "Where", "BatchNormalization", "RNN", "Resize", "Mod", "Sin"})
    supports = probe_targets(workers, [ort], sorted(only), None, tmp_path)
    assert any(told.startswith("OneHot") for told in supports[0].reasons)
    request = GenRequest(nodes=6, only=only, supports=share_support(supports))
    tests = [
        Test(case.program, case.inputs) for case in (generate("isra", seed, request) for seed in range(150))
    ]
    outcomes = Counter(answer.outcome for answer in workers.observe_many(ort, tests))
    assert outcomes["unsupported"] <= 1
    without = [generate("isra", seed, GenRequest(nodes=6, only=only)) for seed in range(60)]
    refused = [
        answer.outcome
        for answer in workers.observe_many(ort, [Test(case.program, case.inputs) for case in without])
        if answer.outcome == "unsupported"
    ]
    assert len(refused) > 10


def test_sequences_beside_bfloat16_are_read(workers: Workers) -> None:
    for seed in range(200):
        case = generate("isra", seed, GenRequest(nodes=12, only=frozenset({"SequenceConstruct", "Identity"})))
        kinds = {output.type.WhichOneof("value") for output in case.program.proto.graph.output}
        if "sequence_type" in kinds and any(str(value.dtype) == "bfloat16" for value in case.inputs.values()):
            plain = [
                o for o in case.program.proto.graph.output if o.type.WhichOneof("value") == "sequence_type"
            ]
            if all(o.type.sequence_type.elem_type.tensor_type.elem_type in (1, 7) for o in plain):
                answer = workers.observe(resolve("onnxruntime"), case.program, case.inputs)
                assert (answer.outcome, answer.message) == ("ok", "")
                assert answer.outputs is not None
                assert isinstance(answer.outputs[plain[0].name], list)
                return
    pytest.fail("no seed has such a program")


def test_equal_tables_make_equal_requests_and_a_batch_is_grown_once() -> None:
    """A strategy that learns within its batch finds the batch again, whoever read the tables and however many
    there are.
    """
    grown: list[int] = []
    batches = Batches(8, list, lambda request, seed, memory: grown.append(seed))
    for seed in range(24):
        read_anew = (support("Erf 13 float16"), support("Relu 14 int8"))
        batches.make_at(GenRequest(supports=share_support(read_anew), target=name_tables(read_anew)), seed)
    assert grown == list(range(24))
    assert support("Erf 13 float16") != support("Erf 13 float32")
    assert support() != support().without_broken()
    assert share_support((support(), support("Erf 13 float16"))) != share_support(
        (support(), support("Erf 13 float32"))
    )


def test_what_only_the_optimiser_takes_away_is_no_support(workers: Workers, tmp_path: Path) -> None:
    """onnxruntime has no kernel for Shape of int4, and folds it where it optimises."""
    prober = Prober(workers, resolve("onnxruntime"), tmp_path, shipped=False)
    wanted = prober.list_wanted(("Shape",), ("int4", "float32"))
    list(prober.run_probes(wanted))
    outcomes = {
        answer.probe.rpartition(" ")[2]: answer.outcome
        for answer in prober.make_table().answers
        if answer.signature
    }
    assert outcomes == {"float32": "ok", "int4": "unsupported"}
