"""Relax modules through workers: built, run, refused."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opsieve.backends.compilers.tvm_relax_preconditions import PRECONDITIONS, find_precondition
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.programs import add_script, read_script
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.registry import read_program
from opsieve.gen.irs.relax.declaration import number, numbers
from opsieve.gen.irs.relax.passes import RULES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.tree import (
    Bind,
    BindingBlock,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    RelaxOperator,
    Scalar,
    Seq,
    Var,
)
from opsieve.gen.irs.relax.types import PrimType, RelaxTensorType, Sym
from opsieve.gen.irs.relax.writing import to_json


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers()
    yield found
    found.close()


def doubled(other: str = "float32", by: Constant | None = None) -> Module:
    kind = RelaxTensorType("float32", (Sym("n"), 3))
    x, y = Var("x", kind), Var("y", kind)
    call = Call(RelaxOperator("relax.multiply"), (x, by or number(other, 2)), kind)
    body = Seq((BindingBlock((Bind(y, call),)),), y)
    return Module((("main", Function((x,), body, kind, True, (("global_symbol", "main"),))),))


def test_a_module_is_built_and_run_with_its_passes(workers: Workers) -> None:
    program = RelaxProgram(
        to_json(doubled()).encode(), ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps:1", "FuseTIR")
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for target in ("tvm", "tvm:check=all"):
        [seen] = workers.observe_many(resolve(target), [Test(program, {"x": x})])
        assert (seen.outcome, seen.message) == ("ok", "")
        assert seen.outputs is not None
        np.testing.assert_array_equal(seen.outputs["output_0"], 2 * x)


def test_what_is_wrong_is_refused_with_tvms_reason(workers: Workers) -> None:
    program = RelaxProgram(to_json(doubled(other="float64")).encode())
    unknown = RelaxProgram(to_json(doubled()).encode(), ("NoSuchPass",))
    values = {"x": np.ones((2, 3), np.float32)}
    wrong, missing = workers.observe_many(resolve("tvm"), [Test(program, values), Test(unknown, values)])
    assert wrong.outcome == "rejected"
    assert "not well-formed" in wrong.message
    assert missing.outcome == "environment"
    assert "tvm has no pass 'NoSuchPass'" in missing.message


def test_the_text_of_a_module_shows_its_constants_where_they_are_read(workers: Workers) -> None:
    program = RelaxProgram(to_json(doubled(by=numbers("float32", (3,), [0.5, -1, 3]))).encode())
    printed = add_script(Case(program, {"x": np.ones((2, 3), np.float32)}), workers).program
    assert isinstance(printed, RelaxProgram)
    assert "R.multiply(x, R.const([0.5, -1.0, 3.0], 'float32'))" in printed.script
    assert "metadata" not in printed.script
    assert printed.script_is_exact


def branching() -> Module:
    kind, truth = RelaxTensorType("float32", (2,)), RelaxTensorType("bool", ())
    c, x, y = Var("c", truth), Var("x", kind), Var("y", kind)
    body = Seq((BindingBlock((Bind(y, If(c, Seq((), x), Seq((), x), kind)),)),), y)
    return Module((("main", Function((c, x), body, kind, True, (("global_symbol", "main"),))),))


def test_what_a_pass_documents_that_it_wants_is_no_error(workers: Workers) -> None:
    program = RelaxProgram(to_json(branching()).encode(), ("MergeCompositeFunctions",))
    [seen] = workers.observe_many(
        resolve("tvm"), [Test(program, {"c": np.array(True), "x": np.ones(2, np.float32)})]
    )
    assert seen.outcome == "unsupported"
    assert 'composite functions created by FuseOpsByPattern"' in seen.message
    assert (
        find_precondition("MergeCompositeFunctions", "Variable gv0 could not be found in any group")
        is not None
    )
    assert find_precondition("MergeCompositeFunctions", "out of range") is None
    assert find_precondition("FuseOps", "Do not have a default for relax.expr.If") is None


def test_passes_of_tir_run_on_a_module_and_a_new_signature_is_unsupported(workers: Workers) -> None:
    values = {"x": np.ones((2, 3), np.float32)}
    mixed = RelaxProgram(to_json(doubled()).encode(), ("LegalizeOps", "tirx.StmtSimplify"))
    lazy = RelaxProgram(to_json(doubled()).encode(), ("LazyGetInput",))
    first, second = workers.observe_many(resolve("tvm"), [Test(mixed, values), Test(lazy, values)])
    assert (first.outcome, first.message) == ("ok", "")
    assert second.outcome == "unsupported"
    assert "the passes change what main takes" in second.message


def test_weights_that_passes_move_are_fed_where_they_are_wanted(workers: Workers) -> None:
    x, w, v = (np.full((2, 3), value, np.float32) for value in (1, 10, 100))
    tests = [
        Test(RelaxProgram(to_json(parametrised()).encode(), passes), {"x": x, "w": w, "v": v})
        for passes in (
            ("LiftTransformParams",),
            ("BundleModelParams",),
            ("LiftTransformParams", "LiftTransformParams"),
            ("LiftTransformParams", "BundleModelParams"),
        )
    ]
    seen_all = list(workers.observe_many(resolve("tvm"), tests))
    for seen in seen_all[:3]:
        assert seen.outputs is not None, seen.message
        np.testing.assert_array_equal(seen.outputs["output_0"], x - (w + v) + w)
    # Bundling makes one tuple of what the new function takes, too.
    assert seen_all[3].outcome == "unsupported"


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("name", ["LiftTransformParams", "BundleModelParams"])
def test_a_script_feeds_the_weights_that_a_pass_moves(name: str, tmp_path: Path) -> None:
    target = resolve("tvm")
    program = RelaxProgram(to_json(parametrised()).encode(), (name,))
    source = target.backend.script_of_module(program, False, target.options)
    (tmp_path / "module.json").write_text(to_json(parametrised()))
    feed = "{name: np.full((2, 3), value, np.float32) for name, value in dict(x=1, w=10, v=100).items()}"
    last = f"print(run(open('module.json').read(), {feed})['output_0'].ravel().tolist())"
    done = subprocess.run(
        [sys.executable, "-c", f"import numpy as np\n{source}\n{last}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[-2] == str([-99.0] * 6)


def parametrised() -> Module:
    """A module of one input and two weights, `x - (w + v) + w`: their sum can be computed once for all inputs."""
    kind = RelaxTensorType("float32", (2, 3))
    x, w, v, out = (Var(name, kind) for name in ("x", "w", "v", "out"))
    y, z = Var("y", kind, dataflow=True), Var("z", kind, dataflow=True)

    def call(name: str, *args: Var) -> Call:
        return Call(RelaxOperator(f"relax.{name}"), args, kind)

    bound = (Bind(y, call("add", w, v)), Bind(z, call("subtract", x, y)), Bind(out, call("add", z, w)))
    attrs = (("global_symbol", "main"), ("num_input", 1))
    body = Seq((BindingBlock(bound, dataflow=True),), out)
    return Module((("main", Function((x, w, v), body, kind, True, attrs)),))


def test_every_pass_with_a_precondition_is_one_that_sequences_have() -> None:
    assert set(PRECONDITIONS) <= {rule.name for rule in RULES}


SCRIPT = """\
import tvm
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.add(x, R.const([1.0, 2.0], "float32"))
        return y
"""


def test_a_script_of_ones_own_is_read_in_a_worker_alone(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text(SCRIPT.replace("R.add(x,", "R.add(z,"))
    program, _ = read_script(tmp_path / "mine.py", workers)
    assert (program.ir, program.name, program.operators()) == ("relax", "mine", ["relax.add"])
    [seen] = workers.observe_many(resolve("tvm"), [Test(program, {"x": np.zeros(2, np.float32)})])
    assert seen.outputs is not None
    np.testing.assert_array_equal(seen.outputs["output_0"], [1, 2])
    with pytest.raises(BadInput, match=r"tvm cannot make a program of .*broken\.py"):
        read_script(tmp_path / "broken.py", workers)
    (tmp_path / "other.py").write_text("import onnx\n")
    with pytest.raises(BadInput, match=r"other\.py' imports no compiler .*onnx\.save.* import that file"):
        read_script(tmp_path / "other.py", workers)
    with pytest.raises(BadInput, match="is code, which opsieve does not run"):
        read_program(tmp_path / "mine.py")


def test_what_cannot_be_read_back_is_said_with_the_parser_s_sentence_alone(workers: Workers) -> None:
    kind, count = RelaxTensorType("float32", (2,)), PrimType("int64")
    p, times, x, y = Var("p", kind), Var("times", count), Var("x", kind), Var("y", kind)
    sub = Function((p, times), Seq((), p), kind)
    call = Call(GlobalVar("sub", sub.type), (x, Scalar(3)), kind)
    main = Function((x,), Seq((BindingBlock((Bind(y, call),)),), y), kind, True, (("global_symbol", "main"),))
    program = RelaxProgram(to_json(Module((("sub", sub), ("main", main)))).encode())
    [seen] = workers.observe_many(resolve("tvm:check=text"), [Test(program, {"x": np.ones(2, np.float32)})])
    assert seen.message.startswith(
        "what TVM prints cannot be read back: DiagnosticError: error: Do not know how to"
    )
    assert "-->" not in seen.message
    assert seen.message.endswith("]")
