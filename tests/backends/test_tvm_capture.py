"""Python files as a person who works on TVM writes them, imported word by word: each becomes a program that
runs.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.programs import Choice, read_script
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.registry import make_inputs
from opsieve.gen.model.program import Program


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as each:
        yield each


ALL = Choice()


def imported(text: str, workers: Workers, folder: Path, choice: Choice = ALL) -> Program:
    """The program of a file, which TVM compiles and runs."""
    (folder / "mine.py").write_text(text)
    program, _ = read_script(folder / "mine.py", workers, choice)
    [seen] = workers.observe_many(resolve("tvm"), [Test(program, make_inputs(program, 0))])
    assert seen.outcome == "ok", seen.message
    return program


WITH_MAIN = '''\
"""Minimal reproducer, run it with `python mine.py`."""

import numpy as np
import tvm
from tvm import relax
from tvm.script import (
    ir as I,
    relax as R,
)


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            lv = R.add(x, R.const(1.0, "float32"))
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv


def check():
    ex = relax.build(Module, tvm.target.Target("llvm"))
    vm = relax.VirtualMachine(ex, tvm.cpu())
    print(vm["main"](tvm.runtime.tensor(np.ones((2, 3), "float32"))))


if __name__ == "__main__":
    check()
    raise SystemExit(1)
'''

TWO = """\
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.exp(x)
        return y

@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.negative(x)
        return y
"""

BUILDER = """\
import tvm
from tvm import relax, te

N = 8

def add_one(a):
    return te.compute(a.shape, lambda i: a[i] + tvm.tirx.const(1.0, "float32"), name="add_one")

def build_module():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((N,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit(relax.op.sin(x))
            out = bb.emit_output(relax.op.add(lv, x))
        bb.emit_func_output(out)
    return bb.get()
"""

FORWARD = """\
import tvm
from tvm.script import ir as I, relax as R

@I.ir_module
class Net:
    @R.function
    def helper(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        y = R.sqrt(R.abs(x))
        return y

    @R.function
    def forward(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        cls = Net
        y = cls.helper(x)
        z = R.multiply(y, y)
        return z
"""

SEQUENTIAL = """\
import tvm
from tvm import relax

passes = tvm.transform.Sequential([
    relax.transform.LegalizeOps(),
    relax.transform.AnnotateTIROpPattern(),
    tvm.transform.Sequential([relax.transform.FuseOps(), relax.transform.FuseTIR()]),
])
"""

CUSTOM = """\
import tvm
from tvm import relax

@relax.expr_functor.mutator
class NegateToSubtract(relax.PyExprMutator):
    def visit_call_(self, call):
        call = super().visit_call_(call)
        if call.op == tvm.ir.Op.get("relax.negative"):
            return relax.op.subtract(relax.const(0.0, "float32"), call.args[0])
        return call

@tvm.transform.module_pass(opt_level=0, name="NegateToSubtract")
def rewrite(mod, ctx):
    mutator = NegateToSubtract(mod)
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            mutator.builder_.update_func(var, mutator.visit_expr(func))
    return mutator.builder_.get()

pipeline = [rewrite, relax.transform.DeadCodeElimination()]
"""

KERNEL = """\
import tvm
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def scale(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.sblock("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
"""


def test_a_script_that_runs_itself_is_only_imported(workers: Workers, tmp_path: Path) -> None:
    assert imported(WITH_MAIN, workers, tmp_path).operators() == ["relax.add", "relax.nn.relu"]


def test_one_of_several_modules_is_named(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"several modules \(Before, After\): choose one with --module"):
        imported(TWO, workers, tmp_path)
    after = imported(TWO, workers, tmp_path, Choice(module="After"))
    assert after.operators() == ["relax.negative"]
    with pytest.raises(BadInput, match="makes no module Between; it has Before, After"):
        imported(TWO, workers, tmp_path, Choice(module="Between"))


def test_a_function_that_builds_a_module_is_called(workers: Workers, tmp_path: Path) -> None:
    assert imported(BUILDER, workers, tmp_path).operators() == ["relax.sin", "relax.add"]
    named = imported(BUILDER + "\nSPARE = build_module()\n", workers, tmp_path, Choice(module="build_module"))
    assert named.operators() == ["relax.sin", "relax.add"]


def test_another_function_than_main_is_run(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no function `main`.*--entry"):
        imported(FORWARD, workers, tmp_path)
    assert "relax.multiply" in imported(FORWARD, workers, tmp_path, Choice(entry="forward")).operators()
    with pytest.raises(BadInput, match="no function back; it has"):
        imported(FORWARD, workers, tmp_path, Choice(entry="back"))


def test_passes_are_named_or_come_from_a_file(workers: Workers, tmp_path: Path) -> None:
    named = imported(WITH_MAIN, workers, tmp_path, Choice(passes="LegalizeOps, FuseOps:1,FuseTIR"))
    assert named.passes == ("LegalizeOps", "FuseOps:1", "FuseTIR")
    (tmp_path / "passes.py").write_text(SEQUENTIAL)
    several = imported(WITH_MAIN, workers, tmp_path, Choice(passes=str(tmp_path / "passes.py")))
    assert several.passes == ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")


def test_a_pass_of_ones_own_is_run_and_what_it_leaves_is_captured(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CUSTOM)
    choice = Choice(module="After", passes=str(tmp_path / "own.py"))
    program = imported(TWO, workers, tmp_path, choice)
    assert (program.operators(), program.passes) == (["relax.subtract"], ("DeadCodeElimination",))


def test_a_kernel_is_a_program_of_tir(workers: Workers, tmp_path: Path) -> None:
    program = imported(KERNEL, workers, tmp_path)
    assert program.ir == "tir"
    x = np.arange(16, dtype=np.float32)
    [seen] = workers.observe_many(resolve("tvm"), [Test(program, {"A": x, "B": x})])
    assert seen.outputs is not None
    np.testing.assert_array_equal(seen.outputs["B"], 2 * x)


SYMBOLIC = """\
from tvm.script import ir as I, relax as R, tirx as T

@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def twice(a: T.handle, b: T.handle):
        m = T.int64()
        n = T.int64()
        A = T.match_buffer(a, (m, T.int64(4)), "float32")
        B = T.match_buffer(b, (n, T.int64(4)), "float32")
        for i, j in T.grid(m, T.int64(4)):
            with T.sblock("twice"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((3, 4), "float32")) -> R.Tensor(dtype="float32", ndim=2):
        cls = Module
        s = T.int64()
        shape = R.shape_of(x)
        bound = R.match_cast(shape, R.Shape([s, 4]))
        y = R.call_tir(cls.twice, (x,), out_ty=R.Tensor((s, 4), dtype="float32"))
        return y
"""


def test_a_kernel_with_symbols_is_evaluated_by_the_reference(workers: Workers, tmp_path: Path) -> None:
    program = imported(SYMBOLIC, workers, tmp_path)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    [seen] = workers.observe_many(resolve("reference"), [Test(program, {"x": x})])
    assert seen.outputs is not None, seen.message
    np.testing.assert_array_equal(seen.outputs["output_0"], 2 * x)


ILL_FORMED = """\
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")) -> R.Tensor(dtype="float32", ndim=2):
        with R.dataflow():
            shape: R.Shape(ndim=2) = R.tensor_to_shape(R.const([3, 4], "int64"))
            y = R.reshape(x, shape)
            R.output(y)
        return y
"""


def test_a_module_that_is_not_well_formed_is_refused_with_the_reason(
    workers: Workers, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="DataflowVar cannot be used as a dependent type"):
        imported(ILL_FORMED, workers, tmp_path)
