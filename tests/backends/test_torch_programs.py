"""PyTorch programs on eager torch, on inductor and on `fake`: captured, judged, reduced and exported. Workers
alone import torch.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opsieve.backends.judge.judge import judge_case
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.questions.programs import Choice, read_script
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.passes.pass_source import blame_passes
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.torch.program import TorchProgram

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs the extra torch: torch is not installed"
)

SCRIPT = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, y):
        z = torch.relu(x @ y) * self.scale + 1
        x.mul_(2)
        first, last = torch.split(z, 2)
        return {"s": first.sum(), "h": last.to(torch.float16), "v": z.transpose(0, 1), "x": x[1:]}

model = Block()
inputs = (torch.arange(12.0).reshape(4, 3), torch.eye(3))

@torch.compile
def other(x):
    return x + x.sum()
"""


def captured(workers: Workers, folder: Path, source: str, choice: str = "") -> Case:
    (folder / "mine.py").write_text(source)
    program, inputs = read_script(folder / "mine.py", workers, Choice(module=choice))
    return Case(program, dict(inputs))


def outputs(workers: Workers, target: str, case: Case) -> dict[str, Any]:
    seen = workers.observe(resolve(target), case.program, case.inputs)
    assert seen.outputs is not None, f"{seen.outcome} in {seen.stage}: {seen.message}"
    return seen.outputs


@pytest.mark.slow
def test_a_script_is_captured_with_its_inputs_and_run(workers: Workers, tmp_path: Path) -> None:
    case = captured(workers, tmp_path, SCRIPT)
    assert isinstance(case.program, TorchProgram)
    assert case.inputs["x"].tolist() == np.arange(12).reshape(4, 3).tolist()  # type: ignore[union-attr]
    plain = outputs(workers, "torch", case)
    assert set(plain) == set(case.program.outputs())
    # What is written to, a view of an input, and strides are among the results.
    assert plain["x.after"][0].tolist() == [0, 2, 4]
    assert plain["output_3.layout"].tolist() == [3, 1, 0]
    assert plain["output_2.layout"].tolist() == [1, 3, -1]
    assert plain["output_1"].dtype == np.float16
    wide = outputs(workers, "reference:float64", case)
    assert wide["output_1"].dtype == np.float64
    assert wide["output_2.layout"].tolist() == [1, 3, -1]
    other = captured(
        workers,
        tmp_path,
        SCRIPT.replace(
            "inputs = (torch.arange(12.0).reshape(4, 3), torch.eye(3))", "inputs = (torch.ones(3),)"
        ),
        "other",
    )
    assert [each.operator for each in other.program.graph.calls] == ["aten.sum.default", "aten.add.Tensor"]  # type: ignore[attr-defined]


@pytest.mark.slow(seconds=15)
def test_shared_memory_of_outputs_and_inputs_afterwards_are_results(workers: Workers, tmp_path: Path) -> None:
    source = "import torch\ndef f(x, y):\n  z = x + y\n  return z, z * 2, z.view(-1), y[1:]\n"
    case = captured(workers, tmp_path, source + "inputs = torch.ones(2, 3), torch.ones(2, 3)\n")
    for target in ("torch", "inductor:aot_eager"):
        got = outputs(workers, target, case)
        assert set(got) == set(case.program.outputs())
        # Inputs have the places 0 and 1, so the first output has 2.
        assert [int(got[f"output_{place}.layout"][-1]) for place in range(4)] == [-1, -1, 2, 1]
        assert (got["x.after"] == case.inputs["x"]).all()


CONDITIONAL = """
import torch

def f(x):
    y = torch.cond(x.sum() > 0, lambda a: (a.sin(), a + 1), lambda a: (a.relu(), a * 2), (x * 3,))
    return y[0] + y[1]

inputs = (torch.full((3,), SIGN),)
"""


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("sign", ["1.0", "-1.0"])
def test_both_sides_of_a_condition_are_captured_and_compiled(
    workers: Workers, tmp_path: Path, sign: str
) -> None:
    case = captured(workers, tmp_path, CONDITIONAL.replace("SIGN", sign))
    assert "higher_order.cond" in case.program.operators()
    x = float(sign) * 3
    expected = np.sin(x) + x + 1 if x > 0 else x * 2
    for target in ("reference:float64", "torch", "inductor:aot_eager", "inductor"):
        np.testing.assert_allclose(outputs(workers, target, case)["output_0"], np.full(3, expected), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["eager", "aot_eager", "inductor"])
def test_each_level_agrees_with_eager_torch(workers: Workers, tmp_path: Path, level: str) -> None:
    case = captured(workers, tmp_path, SCRIPT)
    verdict = judge_case(case, resolve(f"inductor:level={level}"), ObservationCache(workers)).verdict
    assert (verdict.verdict, verdict.reason) == ("pass", verdict.reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import torch\nraise ValueError('nothing here')", "the file ends with ValueError: nothing here"),
        ("import torch\ndef f(x): return x", "no example inputs"),
        ("import torch\ninputs = ()", "has no program"),
        ("print('hello')", "imports no compiler"),
    ],
)
def test_a_script_without_a_program_is_refused(
    workers: Workers, tmp_path: Path, source: str, reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        captured(workers, tmp_path, source)


REINPLACED = """
import torch

def f(x, i):
    x.index_fill_(0, i, 9.0)
    y = x.clone()
    x.clamp_(-0.5, 0.5)
    return y

inputs = (torch.randn(4, 5), torch.tensor([1, 3]))
"""


@pytest.mark.slow(seconds=60)
def test_a_fault_of_inductor_is_attributed_to_its_pass(workers: Workers, tmp_path: Path) -> None:
    case = captured(workers, tmp_path, REINPLACED)
    target = resolve("inductor")
    if workers.version(target) != "2.13.0+cpu":
        pytest.skip("the fault (pytorch 198096) is in torch 2.13.0")
    found = blame_passes(case, target, ObservationCache(workers)).attribution
    assert (found.answer, found.passes) == ("pass", ("reinplace_inplaceable_ops",))


RAISING_PASS = """
import torch.fx
from torch.fx.passes.graph_transform_observer import GraphTransformObserver
from opsieve.backends.compilers.torch.knobs import wrap_passes

def raising(graph):
    raise ValueError

module = torch.fx.symbolic_trace(lambda x: x + 1)
with wrap_passes("", True):
    GraphTransformObserver(module, "quiet").apply_graph_pass(lambda graph: None)
    GraphTransformObserver(module, "raising").apply_graph_pass(raising)
"""


@pytest.mark.slow(seconds=15)
def test_a_pass_that_raises_has_acted() -> None:
    # Such as that of pytorch 188223, which was not suspected before the parts that hold it.
    done = subprocess.run([sys.executable, "-c", RAISING_PASS], capture_output=True, text=True, check=False)
    acted = [line for line in done.stderr.splitlines() if line.startswith("opsieve pass acted")]
    assert acted == ["opsieve pass acted raising"], done.stderr


@pytest.mark.slow
def test_a_planted_fault_is_reduced_to_its_pattern_and_exported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)

    def opsieve(*words: str) -> str:
        command = [sys.executable, "-m", "opsieve", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    opsieve("import", "--script", "mine.py", "-o", "cases")
    (case,) = (tmp_path / "cases").iterdir()
    said = opsieve("reduce", str(case), "-t", "fake:wrong@aten.relu>aten.mul", "-o", "small")
    assert "1-minimal" in said, said
    program = TorchProgram.read(tmp_path / "small" / "graph.json")
    assert program.operators() == ["aten.relu.default", "aten.mul.Tensor"], program.script
    script = subprocess.run([sys.executable, "small/repro.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (script.returncode, "BUG: " in script.stdout) == (1, True), script.stdout + script.stderr
