"""Relax modules through workers: built, run, refused."""

from collections.abc import Iterator

import numpy as np
import pytest

from opsieve.backends.registry import resolve
from opsieve.backends.workers.program_text import with_script
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.case.case import Case
from opsieve.gen.forms.tvm_program import RelaxProgram
from opsieve.gen.relax.draw import number, numbers
from opsieve.gen.relax.tree import Bind, BindingBlock, Call, Constant, Function, Module, RelaxOperator, Seq, Var
from opsieve.gen.relax.types import RelaxTensorType, Sym
from opsieve.gen.relax.writing import to_json


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
    program = RelaxProgram(to_json(doubled()).encode(), ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps:1", "FuseTIR"))
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
    printed = with_script(Case(program, {"x": np.ones((2, 3), np.float32)}), workers).program
    assert isinstance(printed, RelaxProgram)
    assert "R.multiply(x, R.const([0.5, -1.0, 3.0], 'float32'))" in printed.script
    assert "metadata" not in printed.script
    assert printed.script_is_exact
