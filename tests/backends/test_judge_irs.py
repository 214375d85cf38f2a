"""Judging of modules of TVM, which no other compiler takes: by its own check, and by builds that agree
against the target.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from in_process import TableLab
from tvm_programs import RELAX, tir_program

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.observation import Observation, Outcome, Stage
from opsieve.backends.registry import resolve
from opsieve.backends.verdict import Verdict
from opsieve.gen.irs.registry import read_program
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.tree import (
    Bind,
    BindingBlock,
    Call,
    Function,
    Module,
    RelaxOperator,
    Seq,
    ShapeValue,
    Var,
)
from opsieve.gen.irs.relax.types import RelaxTensorType
from opsieve.gen.irs.relax.writing import to_json

TARGET, BASE, ZERO = "tvm", "tvm:opt=0,target=llvm-O0", "tvm:opt=0,pipeline=zero"
NOTHING: Outcome = "unsupported"


def gives(*values: float, dtype: Any = np.float32) -> Observation:
    shapes = {
        "output_0": np.zeros((2, 3), dtype),
        "output_1": np.array([values], np.float32),
        "output_2": np.array([1, 2]),
    }
    return Observation("", "1", "ok", "run", shapes)


def ends(outcome: Outcome, stage: Stage = "compile") -> Observation:
    return Observation("", "1", outcome, stage, message="Check failed: it broke")


def verdict(*answers: Observation | Callable[[int], Observation], program: Any = None) -> Verdict:
    """On answers of the target, its baseline and another pipeline; the reference takes no modules."""
    refuses = {f"reference:precision={name}": ends(NOTHING) for name in ("float64", "native")}
    others = {str(resolve(f"tvm:opt=0,pipeline={name}")): answers[-1] for name in ("zero", "target")}
    table = {**refuses, **others, str(resolve(TARGET)): answers[0], str(resolve(BASE)): answers[1]}
    return judge_program(program or read_program(RELAX), {}, resolve(TARGET), TableLab(table)).verdict


@pytest.mark.parametrize(
    ("stage", "expected"), [("compile", "fail"), ("run", "fail"), ("import", "undecided")]
)
def test_an_error_on_a_module_that_tvm_found_valid_is_a_failure(stage: Stage, expected: str) -> None:
    found = verdict(ends("error", stage), ends("error", stage), ends("error", stage))
    assert found.verdict in (expected, "invalid")
    assert (found.verdict == "fail") == (expected == "fail")
    if expected == "fail":
        assert "TVM's own check of the module accepts" in found.reason


def test_a_refusal_of_a_tir_function_is_not_claimed() -> None:
    assert verdict(ends("error"), ends("error"), ends("error"), program=tir_program()).verdict != "fail"


def test_structure_that_two_other_builds_agree_on_is_a_failure() -> None:
    found = verdict(gives(1, 2, 3), gives(1, 2), gives(1, 2))
    assert (found.verdict, found.kind, found.blame) == ("fail", "mismatch", "optimiser")


def test_the_type_that_the_module_declares_binds_every_build() -> None:
    wrong = gives(1, 2, dtype=np.int64)
    found = verdict(wrong, wrong, wrong)
    assert (found.verdict, found.kind, found.rules) == ("fail", "mismatch", ("derived-types",))
    assert "dtype int64 for output 'output_0'" in found.reason
    assert "float32" in found.reason


def test_numbers_that_rounding_may_explain_are_not_claimed() -> None:
    assert verdict(gives(1, 2), gives(1, 5), gives(1, 5)).verdict == "undecided"


def test_one_other_build_alone_is_not_enough() -> None:
    assert verdict(gives(1, 2, 3), gives(1, 2), ends("error")).verdict == "undecided"
    assert verdict(gives(1, 2, 3), gives(1, 2), gives(1, 2, 3)).verdict == "undecided"


def test_builds_of_one_compiler_that_agree_decide_nothing() -> None:
    assert verdict(gives(1, 2), gives(1, 2), gives(7)).verdict == "undecided"


def call_of(operator: str) -> RelaxProgram:
    """A module that returns what an operator yields."""
    kind = RelaxTensorType("float32", (2, 3))
    y = Var("y", kind)
    call = Call(RelaxOperator(operator), (ShapeValue((2, 3)),), kind)
    main = Function((), Seq((BindingBlock((Bind(y, call),)),), y), kind)
    return RelaxProgram(to_json(Module((("main", main),))).encode())


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (call_of("relax.ones"), "fail"),
        (call_of("relax.builtin.alloc_tensor"), "undecided"),
        (tir_program(), "undecided"),
    ],
    ids=["relax", "allocated", "tir"],
)
def test_other_values_in_a_second_run_are_a_fault_only_where_memory_is_always_written(
    program: Any, expected: str
) -> None:
    """A well-formed TIR function, and what calls one, can read what nobody wrote; without the reference nobody
    knows whether this one does.
    """
    found = verdict(lambda turn: gives(1, 2 + turn), gives(7, 7), gives(7, 7), program=program)
    assert (found.verdict, found.kind) == (expected, "nondeterminism")


@pytest.mark.parametrize(
    ("passes", "agrees"), [((), False), (("LegalizeOps",), False), (("ToMixedPrecision",), True)]
)
def test_a_pass_that_computes_in_float16_may_round_as_float16(passes: tuple[str, ...], agrees: bool) -> None:
    program = replace(call_of("relax.ones"), passes=passes)
    right = {"output_0": np.full((2, 3), 1.0)}
    near = {"output_0": np.full((2, 3), 1.002, np.float32)}
    table = {str(resolve(TARGET)): Observation("", "1", "ok", "run", near)}
    table |= {
        f"reference:precision={name}": Observation("", "1", "ok", "run", right)
        for name in ("float64", "native")
    }
    found = judge_program(program, {}, resolve(TARGET), TableLab(table)).verdict.verdict
    assert (found == "pass") == agrees
