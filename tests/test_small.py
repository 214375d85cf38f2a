"""The small generator: valid models with defined results, the same for the same seed."""

import hashlib
import subprocess
import sys
from collections import Counter

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from opsieve.backends.target import Target
from opsieve.backends.workers import Workers
from opsieve.gen.case import Case
from opsieve.gen.small import MAX_NODES, MIN_NODES, generate
from opsieve.gen.small_graph import LARGEST, Draw

SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS)
@settings(deadline=None, max_examples=150)
def test_models_are_valid_and_their_types_are_as_declared(seed: int) -> None:
    model = generate(seed).program.proto
    onnx.checker.check_model(model, full_check=True)
    assert MIN_NODES <= len(model.graph.node) <= MAX_NODES
    assert model.graph.output


@given(SEEDS)
@settings(deadline=None, max_examples=200)
def test_results_have_the_declared_shapes_and_are_finite_and_moderate(workers: Workers, seed: int) -> None:
    # onnx's own evaluator is no judge of this: its MaxPool mixes up uneven pads where the strides are 1.
    case = generate(seed, max_nodes=12)
    model = case.program.proto
    seen = workers.observe(Target.parse("onnxruntime:disable_all"), case.program, case.inputs)
    assert seen.outputs is not None, seen.message
    for info in model.graph.output:
        result = seen.outputs[info.name]
        assert result.shape == tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        assert result.dtype == onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        assert np.isfinite(result.astype(np.float64)).all()
        assert not result.size or np.abs(result.astype(np.float64)).max() <= LARGEST[str(result.dtype)] * 1.01


def test_many_operators_and_all_types_are_met() -> None:
    models = [generate(seed).program.proto for seed in range(150)]
    met = Counter(node.op_type for model in models for node in model.graph.node)
    assert len(met) >= 60
    types = {
        value.type.tensor_type.elem_type for model in models for value in (*model.graph.input, *model.graph.output)
    }
    assert {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT64, onnx.TensorProto.BOOL} <= types


def test_bounds_on_the_number_of_nodes_are_kept() -> None:
    sizes = {len(generate(seed, 10, 11).program.proto.graph.node) for seed in range(40)}
    assert sizes == {10, 11}


def digest(cases: list[Case]) -> str:
    told = hashlib.sha256()
    for case in cases:
        told.update(case.program.model)
        for name, value in case.inputs.items():
            told.update(name.encode() + np.asarray(value).tobytes())
    return told.hexdigest()


def test_equal_seeds_give_equal_bytes_in_every_process() -> None:
    code = "from test_small import digest, generate\nimport sys\nprint(digest([generate(seed) for seed in range(20)]), end='')"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(__file__).rpartition("/")[0]},
        ).stdout
        for seed in ("0", "77")
    }
    assert told == {digest([generate(seed) for seed in range(20)])}
    assert len({generate(seed).program.digest for seed in range(200)}) == 200


@given(SEEDS, st.integers(1, 9))
@settings(deadline=None, max_examples=50)
def test_some_gives_different_items_in_order(seed: int, count: int) -> None:
    chosen = Draw(seed).some(range(9), count)
    assert len(chosen) == count
    assert chosen == sorted(set(chosen))
