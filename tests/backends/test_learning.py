"""Inference of declarations from what is accepted and refused: against rules that the test knows."""

import ctypes
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from commands import opsieve as run
from onnx import parser

from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.observation import Observation
from opsieve.backends.probing.documented_shapes import read_definitions, read_shapes
from opsieve.backends.probing.domain_schemas import DomainSchema, SchemaSlot, read_schemas
from opsieve.backends.probing.learning import learn_operator
from opsieve.backends.probing.learning_session import FILLS, Asker, LearnRequest
from opsieve.backends.probing.message_hints import MessageHints
from opsieve.backends.probing.trials import Trial, TrialAnswer, TrialInput
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.inside import child, wire
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations.catalogue import known_operators
from opsieve.gen.declarations.learned_file import read_learned
from opsieve.gen.irs.onnx.program import OnnxProgram

_MODEL = """
<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
g (float[2, 2] x) => (float[2, 2] y) { z = com.microsoft.Inverse(x) y = Mul(z, z) }
"""
Rule = Callable[[Trial], tuple[tuple[str, tuple[int, ...]], ...] | None]
T = ("float16", "float32")
REFUSED = TrialAnswer(None, "refused")


def schema(
    inputs: int, attributes: dict[str, str] | None = None, required: frozenset[str] = frozenset()
) -> DomainSchema:
    slots = tuple(SchemaSlot(f"x{place}", "T", False, False) for place in range(inputs))
    outputs = (SchemaSlot("y", "T", False, False),)
    return DomainSchema("Op", 1, slots, outputs, {"T": T}, attributes or {}, required, {}, True)


def asked(rule: Rule) -> Callable[[DomainSchema, Sequence[Trial]], list[TrialAnswer]]:
    def answer(trial: Trial) -> TrialAnswer:
        found = rule(trial)
        return TrialAnswer(found, "" if found else "refused")

    return lambda _, trials: [answer(trial) for trial in trials]


def product(trial: Trial) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """A product of matrices of one dtype."""
    a, b = trial.inputs
    assert a is not None
    assert b is not None
    fits = len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0] and a.dtype == b.dtype
    return ((a.dtype, (a.shape[0], b.shape[1])),) if fits else None


def test_the_shape_rule_of_a_product_is_found() -> None:
    found = learn_operator(schema(2), "acme", asked(product)).operator
    assert found is not None
    for form in found.forms:
        a, b = form.inputs
        assert a is not None
        assert b is not None
        assert a.sizes[1] == b.sizes[0]
        assert len({a.sizes[0], a.sizes[1], b.sizes[1]}) == 3
        assert form.outputs[0].sizes == (a.sizes[0], b.sizes[1])
    assert {form.outputs[0].dtype for form in found.forms} == set(T)


def halves(trial: Trial) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """The last size is a multiple of the heads, which have to be given."""
    x, heads = trial.inputs[0], trial.attributes.get("heads", 0)
    assert x is not None
    fits = len(x.shape) == 2 and heads > 1 and x.shape[1] % heads == 0
    return ((x.dtype, (x.shape[0], x.shape[1] // heads)),) if fits else None


def test_a_size_that_is_a_multiple_of_an_attribute_is_one() -> None:
    found = learn_operator(schema(1, {"heads": "INT"}, frozenset(("heads",))), "acme", asked(halves)).operator
    assert found is not None
    for form in found.forms:
        x = form.inputs[0]
        assert x is not None
        (heads,) = form.attributes["heads"]
        assert not x.sizes[1].first or x.sizes[1].factor % heads == 0
        assert x.sizes[0].first


def heads(trial: Trial) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...] | None]:
    """What an attention kernel checks: sizes that stand in each other and in an attribute, one condition
    after the other.
    """
    query, past = trial.inputs[0], trial.inputs[1] if len(trial.inputs) > 1 else None
    number = trial.attributes.get("num_heads", 0)
    if query is None or len(query.shape) != 3:
        return "query shall have 3 dimensions", None
    if past is None or len(past.shape) != 4:
        return "past_key shall have 4 dimensions", None
    if past.shape[1] != number or not number:
        return f"past_key dimension 1 should be same as number of heads, got {past.shape[1]}", None
    if query.shape[2] != number * past.shape[3] or past.shape[3] % 4:
        return f"hidden_size ({query.shape[2]}) must be num_heads * head_size", None
    return "", ((query.dtype, query.shape),)


def test_shapes_of_the_documentation_are_tried_and_sizes_that_it_ties() -> None:
    slots = (
        SchemaSlot(
            "query", "T", False, False, text="Query with shape (batch_size, sequence_length, hidden_size)"
        ),
        SchemaSlot(
            "past_key",
            "T",
            True,
            False,
            text="4-D: (batch_size, num_heads, past_length, head_size), of shape BNSH",
        ),
        SchemaSlot("places", "T", True, False, text="1-D tensor of 2 elements"),
    )
    definitions = read_definitions(["where hidden_size = num_heads * head_size as usual"])
    assert definitions == {"hidden_size": ("num_heads * head_size",)}
    outputs = (SchemaSlot("y", "T", False, False),)
    attributes, required = {"num_heads": "INT"}, frozenset(("num_heads",))
    asked_of = DomainSchema(
        "Op", 1, slots, outputs, {"T": T}, attributes, required, {}, True, {}, definitions
    )

    def answers(_: DomainSchema, trials: Sequence[Trial]) -> list[TrialAnswer]:
        return [TrialAnswer(outs, reason) for reason, outs in map(heads, trials)]

    found = learn_operator(asked_of, "acme", answers)
    assert found.operator is not None
    assert found.asked < 2500
    bare = DomainSchema("Op", 1, slots[2:], outputs, {"T": T}, {}, frozenset(), {}, True)
    assert (
        learn_operator(bare, "acme", asked(lambda trial: ((T[0], (1,)),) if trial.inputs else None)).operator
        is not None
    )


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (
            "2D tensor with shape (max_len, head_size / 2) or (max_len, dim / 2)",
            [("max_len", "head_size / 2"), ("max_len", "dim / 2")],
        ),
        ("It has shape `[num_directions, 4*hidden_size]`.", [("num_directions", "4*hidden_size")]),
        ("shape (num_rois,) with each element denoting the index (of an image)", [("num_rois",)]),
        ("packed tensor of shape (N, ceil(K / block_size))", [("N", "ceil(K / block_size)")]),
        ("Scalar tensor", [(), ("1",)]),
        ("1-D tensor of 2 elements: [height, width]", [("2",)]),
        ("must be a 1-D int64 tensor of length 2.", [("2",)]),
        ("of shape (__import__('os').system('x'), lambda: 0)", []),
        ("shape (" + "(" * 3000, []),
    ],
)
def test_shapes_are_read_from_descriptions(text: str, shapes: list[tuple[str, ...]]) -> None:
    assert list(read_shapes(text)) == shapes


def test_the_graph_that_an_operator_wants_is_found_by_what_it_says_of_others() -> None:
    def wanted(trial: Trial) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...] | None]:
        """What a kernel that calls a graph checks: how many values it has, their names, a type and a size."""
        body = trial.attributes["decoder"]
        if len(body.inputs) != 1 or len(body.outputs) != 2:
            return "subgraph: number of inputs shall be 1, number of outputs 2", None
        for side, values, names in (
            ("input", body.inputs, ("ids",)),
            ("output", body.outputs, ("scores", "state")),
        ):
            for place, (value, name) in enumerate(zip(values, names, strict=True)):
                if value.name != name:
                    return f"subgraph {side} {place} shall be named as {name}, got: {value.name}", None
        if body.inputs[0].dtype != "float16":
            return "subgraph input 0 (ids) shall have float16 type", None
        if len(body.outputs[0].sizes) != 3 or body.outputs[0].sizes[2] != 7:
            return "subgraph scores dimension 2 shall have length of 7", None
        return "", ((T[0], (1,)),)

    asked_of = replace(schema(1, {"decoder": "GRAPH"}, frozenset(("decoder",))), name="Search")

    def answers(_: DomainSchema, trials: Sequence[Trial]) -> list[TrialAnswer]:
        return [TrialAnswer(outs, reason) for reason, outs in map(wanted, trials)]

    found = learn_operator(asked_of, "acme", answers)
    assert found.operator is not None
    (body,) = found.operator.forms[0].attributes["decoder"]
    assert [value.name for value in body.outputs] == ["scores", "state"]


@pytest.mark.parametrize(
    ("reason", "interval"),
    [
        ("memory sequence lengths value must in (0, 5], while 7", (1, 5)),
        ("block_col_indices[0][0]=4 is out of valid range [0, 2)", (0, 1)),
        ("All values must be > 0 and < 4. seq_length=4", (1, 3)),
        ("it is not positive integer scalar", (1, 4)),
        ("between (3, 3)", None),
        ("got shape (2, 3)", None),
    ],
)
def test_between_which_numbers_elements_have_to_lie_is_read_from_messages(
    reason: str, interval: tuple[int, int] | None
) -> None:
    assert MessageHints(reason, (), schema(1), ()).interval == interval


def test_of_a_compiler_that_dies_nothing_is_learnt_but_how_often() -> None:
    found = learn_operator(schema(1), "acme", lambda _, trials: [TrialAnswer(None, "", True)] * len(trials))
    assert found.operator is None
    assert found.died == found.asked > 0
    assert found.asked < 600


def test_forms_whose_results_differ_from_run_to_run_are_kept_only_where_there_are_no_others() -> None:
    """Results of matrices are numbers drawn, those of vectors always the same."""

    def answers(always: bool) -> Callable[[DomainSchema, Sequence[Trial]], list[TrialAnswer]]:
        def answer(trial: Trial) -> TrialAnswer:
            x = trial.inputs[0]
            assert x is not None
            return TrialAnswer(((T[0], x.shape),), varies=always or len(x.shape) > 1)

        return lambda _, trials: list(map(answer, trials))

    some, none = (learn_operator(schema(1), "acme", answers(always)).operator for always in (False, True))
    assert some is not None
    assert none is not None
    assert not any(form.varies for form in some.forms)
    assert all(form.varies for form in none.forms)


def test_a_value_that_the_documentation_does_not_name_is_one_that_it_does_where_they_give_the_same() -> None:
    """`heads` counts, and each value gives another result; `last` is a flag of which 1 is documented, and
    `mode` is read for one word.
    """

    def answer(trial: Trial) -> TrialAnswer:
        x, last = trial.inputs[0], trial.attributes.get("last", 0)
        assert x is not None
        number, mode = trial.attributes.get("heads", 1), trial.attributes.get("mode", "") == "linear"
        return (
            TrialAnswer(((T[0], x.shape),), digest=f"{number} {bool(last)} {mode}") if number > 1 else REFUSED
        )

    kinds = {"heads": "INT", "last": "INT", "mode": "STRING"}
    asked_of = replace(
        schema(1, kinds, frozenset(kinds)), words={"mode": ("linear", "nearest")}, numbers={"last": (-1, 1)}
    )
    found = learn_operator(asked_of, "acme", lambda _, trials: list(map(answer, trials))).operator
    assert found is not None
    values = {name: {form.attributes[name][0] for form in found.forms} for name in kinds}
    assert values["last"] <= {-1, 0, 1}
    assert values["mode"] <= {"linear", "nearest"}
    assert all(value > 1 for value in values["heads"])


class _Memory:
    """Workers of a compiler that answers from the bytes that new memory holds: `held` gives what it computes
    of an instance's seed.
    """

    def __init__(self, held: Callable[[int | None, int], float]) -> None:
        self.held, self.asked = held, 0

    def observe_many(self, target: ResolvedTarget, tests: Sequence[Test]) -> list[Observation]:
        outs = []
        for test in tests:
            self.asked += 1
            value = np.array([self.held(test.fill, self.asked)], np.float32)
            outs.append(Observation(target.display, "", "ok", outputs={"y": value}))
        return outs


@pytest.mark.parametrize(
    ("held", "accepted", "varies"),
    [
        (lambda fill, asked: 1.0, True, False),
        (lambda fill, asked: float(fill or 0), False, False),  # it reads what nobody wrote
        (lambda fill, asked: float(asked), True, True),  # it draws numbers
    ],
)
def test_an_instance_whose_results_hang_on_memory_that_nobody_wrote_is_refused(
    held: Callable[[int | None, int], float], accepted: bool, varies: bool
) -> None:
    asker = Asker(LearnRequest("com.microsoft", resolve("onnxruntime")), _Memory(held))  # type: ignore[arg-type]  # only what is called of workers
    trial = Trial((TrialInput("float32", (2,), -1, 1),))
    (answer,) = asker.run_trials(schema(1), [trial])
    assert (answer.outputs is not None) == accepted
    assert answer.varies == varies
    assert accepted or "memory" in answer.reason


def test_memory_around_inputs_holds_the_byte_that_a_test_names() -> None:
    for array in (np.arange(5, dtype=np.float32), np.zeros((0, 3), np.int64), np.array(2.5, np.float16)):
        made = wire.surround_value(array, 0x7F)
        assert made.dtype == array.dtype
        assert made.shape == array.shape
        assert made.tobytes() == array.tobytes()
        assert made.ctypes.data % wire.ALIGN == 0 or not made.size
        whole = made
        while whole.base is not None:
            whole = whole.base
        assert whole.nbytes > array.nbytes
        assert np.count_nonzero(whole == 0x7F) >= whole.nbytes - array.nbytes
    words = np.array(["a"], object)
    assert wire.surround_value(words, 0) is words
    assert wire.surround_value([words], 0) == [words]


def test_new_memory_holds_the_byte_that_a_test_names() -> None:
    libc, size = ctypes.CDLL(None), 1 << 18
    if not hasattr(libc, "mallopt"):
        pytest.skip("no memory is filled without glibc")
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    server = cast("child.TestServer", SimpleNamespace(libc=libc, wire=wire))
    for byte in FILLS:
        made = child.TestServer.fill_memory(server, {"x": np.ones(3, np.float32)}, byte)
        place = libc.malloc(size)
        held = ctypes.string_at(place, size)
        libc.free(place)
        child.TestServer.fill_memory(server, {}, None)
        assert held == bytes([byte]) * size
        assert (made["x"] == 1).all()


def test_what_a_compiler_dies_of_is_left_alone() -> None:
    """It dies where the second input is left out, which the schema allows, once the first one is a vector."""

    def dies(trial: Trial) -> TrialAnswer:
        x = trial.inputs[0]
        assert x is not None
        if len(x.shape) != 1:
            return TrialAnswer(None, "x0 shall have 1 dimension")
        if len(trial.inputs) < 2:
            return TrialAnswer(None, "", True)
        return (
            TrialAnswer(((T[0], x.shape),))
            if x.shape[0] == 32
            else TrialAnswer(None, "x0 dimension 0 is wrong")
        )

    slots = (SchemaSlot("x0", "T", False, False), SchemaSlot("x1", "T", True, False))
    asked_of = replace(schema(1), inputs=slots)
    found = [
        learn_operator(asked_of, "acme", lambda _, trials: [dies(trial) for trial in trials], seed)
        for seed in range(3)
    ]
    assert all(each.operator is not None for each in found)
    assert sum(each.died for each in found) < 60  # 26; 173 where nothing is left alone


def test_what_is_never_accepted_is_told_with_what_was_said() -> None:
    found = learn_operator(schema(2), "acme", asked(lambda _: None))
    assert found.operator is None
    assert "refused" in found.reason


def test_schemas_of_onnx_and_of_onnxruntime() -> None:
    assert "LabelEncoder" in {each.name for each in read_schemas("ai.onnx.ml")}
    own = {each.name: each for each in read_schemas("com.microsoft")}
    assert own["BiasGelu"].kernel
    assert own["BiasGelu"].types["T"]
    assert own["QLinearAdd"].inputs[2].optional


def test_the_reference_computes_programs_where_the_environment_names_a_file_of_declarations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of references know declarations too, and see no files of the user."""
    file = tmp_path / "acme.toml"
    file.write_text('domain = "acme"\n')
    monkeypatch.setenv("OPSIEVE_OPERATORS", str(file))
    known_operators()  # here it is read, and there it cannot be
    file.unlink()
    program = OnnxProgram(parser.parse_model(_MODEL).SerializeToString(), "inverse")
    with Workers() as workers:
        seen = workers.observe(FLOAT64, program, {"x": np.eye(2, dtype=np.float32)})
    assert seen.outcome == "ok", seen.message


def test_an_operator_of_onnxruntime_is_learnt_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path))
    file = tmp_path / "contrib.toml"
    for _ in range(2):  # the second time nothing is asked
        code, out, _ = run(
            "learn",
            "com.microsoft",
            "--ops",
            "BiasGelu,SparseToDenseMatMul,Tokenizer",
            "-o",
            str(file),
            "--json",
            capsys=capsys,
        )
        assert code == 0
        facts = json.loads(out)["operators"]["BiasGelu"]
        assert facts["accepted"] >= 0.95 * facts["tried"] > 0
    learned, sparse, texts = read_learned(file)
    assert {form.outputs[0].dtype for form in sparse.forms} == {
        form.inputs[1].dtype for form in sparse.forms if form.inputs[1]
    }
    assert all(form.inputs[0] and form.inputs[0].sparse for form in sparse.forms)
    assert {form.outputs[0].dtype for form in texts.forms} == {"string"}
    assert all(
        form.inputs[0] and form.inputs[1] and form.inputs[1].sizes == form.inputs[0].sizes[-1:]
        for form in learned.forms
    )
    assert run("learn", "acme.none", capsys=capsys)[0] == 2
    for place in (tmp_path, tmp_path / "none" / "x.toml"):
        code, _, said = run("learn", "com.microsoft", "-o", str(place), capsys=capsys)
        assert code == 2
        assert "cannot write" in said
    assert run("learn", "com.microsoft", "--ops", "Nothing", capsys=capsys)[0] == 2
