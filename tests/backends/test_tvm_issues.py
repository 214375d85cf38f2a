"""Scripts of bugs that people reported to apache/tvm and that 0.27.0.post1 still has: imported as they are, each
fails for the reported reason; and three that it no longer has.
"""

from pathlib import Path

import pytest

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.programs import Choice, read_script
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.registry import make_inputs

HEAD = """\
import tvm
from tvm import relax
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main("""

NESTED = """x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            a = R.add(x, y)
            pair = (x, a)
            nested = (pair, y)
            inner = nested[0]
            out = inner[0]
            R.output(out)
        return out
"""
SLICE = """x: R.Tensor((1, 4, 6), "float32")) -> R.Tensor(dtype="float32", ndim=3):
        with R.dataflow():
            gv = R.strided_slice(x, [2], [4], [2], [1], assume_inbound=False)
            R.output(gv)
        return gv
"""
VECTOR = """x: R.Tensor((8, 16), "float32"), a: R.Tensor((16,), "float32"), b: R.Tensor((16,), "float32")):
        with R.dataflow():
            p = R.matmul(x, a)
            q = R.matmul(x, b)
            out = R.add(p, q)
            R.output(out)
        return out
"""
BRANCH = """cond: R.Tensor((), "bool"), x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        if cond:
            flat = R.reshape(x, R.shape([32]))
            y = R.reshape(flat, R.shape([4, 8]))
        else:
            flat = R.reshape(x, R.shape([32]))
            y = R.reshape(flat, R.shape([4, 8]))
        return y
"""
ALIAS = """x: R.Tensor((5, 8), "float32")) -> R.Tensor((5, 8), "float32"):
        src = R.add(x, R.const(0.25, "float32"))
        left = R.match_cast(src, R.Tensor((5, 8), "float32"))
        right = R.add(x, R.const(0.125, "float32"))
        out = R.add(left, right)
        return out
"""
MIXED = """x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            lv = R.nn.conv2d(x, w)
            lv1 = R.nn.relu(lv)
            gv = R.add(lv1, lv1)
            R.output(gv)
        return gv
"""
OPEN = """x: R.Tensor((2, 6), "float32"), s: R.Tensor((2,), "int64")) -> R.Tensor("float32"):
        shape = R.tensor_to_shape(s)
        y = R.reshape(x, shape)
        out = R.exp(y)
        return out
"""
WEIGHTS = """x: R.Tensor((4,), "int32"), w: R.Tensor((4,), "int32"), v: R.Tensor((4,), "int32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            p = R.add(w, v)
            y = R.subtract(x, p)
            out = R.add(y, w)
            R.output(out)
        return out
"""


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize(
    ("body", "passes", "target", "verdict", "reason"),
    [
        pytest.param(NESTED, "", "tvm:target", "fail", 'global_name != "fused"', id="20194"),
        pytest.param(SLICE, "", "tvm", "fail", "Begin=4, End=2", id="17768"),
        pytest.param(VECTOR, "CombineParallelMatmul", "tvm", "fail", "Index 1 out of bounds", id="20197"),
        pytest.param(BRANCH, "", "tvm", "fail", "signal 11", id="20191"),
        pytest.param(OPEN, "", "tvm", "fail", "R.exp(y)", id="17964"),
        pytest.param(WEIGHTS, "LiftTransformParams", "tvm", "pass", "agrees", id="17207"),
        pytest.param(ALIAS, "", "tvm", "pass", "agrees", id="20190"),
        pytest.param(MIXED, "ToMixedPrecision,LegalizeOps", "tvm", "pass", "agrees", id="17254"),
    ],
)
def test_a_reported_script_is_judged_for_the_reported_reason(
    body: str, passes: str, target: str, verdict: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "issue.py").write_text(HEAD + body)
    with Workers() as workers:
        program, _ = read_script(tmp_path / "issue.py", workers, Choice(passes=passes))
        lab = ObservationCache(workers)
        inputs = make_inputs(program, 0)
        found = judge_program(program, inputs, resolve(target), lab).verdict
    assert (found.verdict, reason in found.reason) == (verdict, True), found.reason
