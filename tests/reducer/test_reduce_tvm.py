"""Modules of TVM reduced without TVM: by what stands in them, every step a module that can be read again."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tvm_programs import tir_program

from opsieve.backends.workers.workers import Workers
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.registry import make_inputs
from opsieve.gen.irs.relax import declaration, tree as R, types as T
from opsieve.gen.irs.relax.catalogue import Solutions
from opsieve.gen.irs.relax.declaration import Draw
from opsieve.gen.irs.relax.generator import generate
from opsieve.gen.irs.relax.policies import POLICIES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.irs.tir import nodes as tir
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import Dtype, encode
from opsieve.reducer.engine.certificate import certify, to_fixpoint
from opsieve.reducer.engine.engine import Engine
from opsieve.reducer.engine.form import Rules
from opsieve.reducer.engine.interestingness import CheckResult
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.tvm.subject import TvmForm, TvmPass, TvmSubject
from opsieve.reducer.irs.tvm_reduction import RelaxReduction, TirReduction
from opsieve.reducer.oracle.script_test import ScriptTest
from opsieve.reducer.sessions.reduction import Listeners, reduce_by_check


@dataclass(frozen=True)
class Holds:
    """The failure is there while something can be said of the program."""

    what: Callable[[TvmSubject], bool]

    def evaluate(self, subjects: Sequence[TvmSubject]) -> Iterator[CheckResult]:
        for subject in subjects:
            yield CheckResult("same" if self.what(subject) else "gone")


class Readable:
    """A module that can be read, and is fed what it takes."""

    def complaints(self, subjects: Sequence[TvmSubject]) -> list[str]:
        found = []
        for subject in subjects:
            try:
                found.append(
                    "" if subject.program.inputs().keys() == subject.inputs.keys() else "other inputs"
                )
            except BadInput as error:
                found.append(str(error))
        return found


def reduced(start: TvmSubject, passes: Sequence[TvmPass], what: Callable[[TvmSubject], bool]) -> TvmSubject:
    engine = Engine(start, Rules(TvmForm(), [Holds(what)], Readable()), Journal(""))
    assert engine.begin().kind == "same"
    to_fixpoint(engine, passes)
    assert certify(engine, passes).minimal
    return engine.best


def subject(program: RelaxProgram | TirProgram) -> TvmSubject:
    return TvmSubject(program, make_inputs(program, 0))


def test_two_guilty_passes_of_twelve_are_left_in_their_order() -> None:
    names = [f"tirx.P{number}" for number in range(12)]
    start = subject(tir_program(*names[:7], "tirx.NarrowDataType:32", *names[8:]))

    def fails(now: TvmSubject) -> bool:
        left = [item.partition(":")[0] for item in now.program.passes]
        return {"tirx.P2", "tirx.NarrowDataType"} <= set(left)

    assert reduced(start, TirReduction().passes(), fails).program.passes == ("tirx.P2", "tirx.NarrowDataType")


@pytest.mark.slow(seconds=4)
def test_a_relax_module_ends_in_little_more_than_the_operator_that_fails() -> None:
    solutions = Solutions(Draw(random.Random(1)))
    program = RelaxProgram(
        to_json(generate(0, POLICIES["fusable"](), solutions).module).encode(), ("FoldConstant",)
    )
    wanted = min(program.operators())
    best = reduced(subject(program), RelaxReduction().passes(), lambda now: wanted in now.program.operators())
    assert best.program.passes == ()
    assert best.program.operators().count(wanted) == 1
    assert best.program.size <= max(3, program.size // 2)


def test_a_tir_function_ends_in_the_operator_that_fails() -> None:
    a, b, c = (tir.buffer(name, (8,), "float32") for name in "abc")
    i, j = tir.variable("i"), tir.variable("j")
    guilty = tir.store(b, tir.call("tirx.sqrt", "float32", tir.load(a, i)), i)
    innocent = [tir.store(c, tir.binary("Add", tir.load(a, j), tir.real(number)), j) for number in (1, 2, 3)]
    body = tir.loop(i, tir.integer(8), guilty)
    whole = tir.sequence(*(tir.loop(j, tir.integer(8), item) for item in innocent), body)
    program = TirProgram(encode(tir.module(tir.function([a, b, c], whole))).encode())
    best = reduced(
        subject(program), TirReduction().passes(), lambda now: "tirx.sqrt" in now.program.operators()
    )
    assert sorted(best.program.operators()) == ["tirx.Evaluate", "tirx.sqrt"]
    assert len(best.inputs) == 1


class ReadableReduction(TirReduction):
    """TIR functions reduced without TVM: what can be read is taken for valid."""

    def validator(self, workers: Workers, start: TvmSubject) -> Readable:
        return Readable()


def test_a_script_decides_what_is_interesting_of_a_module(workers: Workers, tmp_path: Path) -> None:
    script = tmp_path / "check"
    script.write_text(
        '#!/bin/sh\ntest -e "$2/input_0.pb" && grep -q BufferStore "$1" && grep -q B "$(dirname'
        ' "$1")/passes.json"\n'
    )
    script.chmod(0o755)
    program = tir_program("tir.A", "tir.B", "tir.C")
    start = TvmSubject(program, make_inputs(program, 0))
    said: list[str] = []
    listeners: Listeners[TvmSubject] = Listeners(say=said.append)
    tests = [ScriptTest(script)]
    result = reduce_by_check(ReadableReduction(), start, tests, workers, None, Journal(""), listeners)
    assert result.best.program.passes == ("tir.B",)
    assert (result.same, result.minimal, result.best.program.size < program.size) == (True, True, True)
    assert said == ["held fixed: that the check exits with 0; seen in 6 of 6 runs"]


@pytest.mark.parametrize("place", ["condition", "index", "other type", "own memory", "attribute", "extent"])
def test_a_guilty_operator_is_left_alone_wherever_it_stands(place: str) -> None:
    """One statement and the operator; the certificate says so too."""
    a, b = tir.buffer("a", (8,)), tir.buffer("b", (8,), "int32")
    i, j = tir.variable("i"), tir.variable("j")
    guilty = tir.binary("FloorMod", tir.binary("Add", i, tir.integer(3)), tir.integer(8))
    bodies = {
        "condition": tir.branch(tir.binary("LT", guilty, tir.integer(2)), tir.store(a, tir.real(1.0), i)),
        "index": tir.store(a, tir.real(2.0), guilty),
        "other type": tir.store(a, tir.call("tirx.exp", "float32", tir.cast(guilty, "float32")), i),
        "own memory": tir.sequence(
            tir.allocate(c := tir.buffer("c", (8,), "int32")), tir.store(c, guilty, i)
        ),
        "attribute": tir.attribute("pragma_scope_hint", guilty, tir.store(b, i, i), tir.integer(0)),
        "extent": tir.loop(j, guilty, tir.store(b, j, i)),
    }
    whole = tir.function([a, b], tir.loop(i, tir.integer(8), bodies[place], tir.PARALLEL))
    start = subject(TirProgram(encode(tir.module(whole)).encode()))
    best = reduced(start, TirReduction().passes(), lambda now: "prim.FloorMod" in now.program.operators())
    assert len(best.program.operators()) == 2
    assert len(best.program.inputs()) == 1


def test_two_edits_of_which_one_is_inside_the_other_are_both_tried() -> None:
    """What is left of a long sum is the one operand that has to stay."""
    a, i = tir.buffer("a", (8,)), tir.variable("i")
    value = tir.call("tirx.sqrt", "float32", tir.load(a, i))
    for number in range(6):
        value = tir.binary("Add", tir.binary("Max", value, tir.real(number)), tir.load(a, i))
    whole = tir.function([a], tir.loop(i, tir.integer(8), tir.store(a, value, i)))
    start = subject(TirProgram(encode(tir.module(whole)).encode()))
    best = reduced(start, TirReduction().passes(), lambda now: "tirx.sqrt" in now.program.operators())
    assert len(best.program.operators()) == 2


def test_what_a_tir_function_is_fed_its_constants_and_its_buffers_become_plain() -> None:
    """Each of these beat a certificate: fed values, constants, a thread's extent, the size of a buffer."""
    a, kept = tir.buffer("a", (8, 4)), tir.buffer("kept", (8,), "int16")
    thread, axis = tir.call("tirx.exp", "float32", tir.real(7)), tir.thread_axis("vthread", tir.integer(6))
    stores = [tir.store(a, thread, tir.integer(3), tir.integer(0)), tir.allocate(kept)]
    body = tir.attribute("thread_extent", tir.integer(6), tir.sequence(*stores), axis)
    program = TirProgram(encode(tir.module(tir.function([a], body))).encode())
    names = {"tirx.AttrStmt", "tirx.exp", "tirx.BufferStore", "tirx.AllocBuffer"}
    best = reduced(subject(program), TirReduction().passes(), lambda now: names <= {*now.program.operators()})
    nodes = list(tir.walk(best.program.entry))
    assert not np.asarray(best.inputs["a"]).any()
    assert [tir.shape(node) for node in nodes if tir.is_buffer(node)] == [(1, 1), (1,)]
    assert {tir.number(node) for node in nodes if node.type == "ir.IntImm"} == {0, 1}
    assert [node["value"] for node in nodes if node.type == "ir.FloatImm"] == [0.0]


def test_the_second_of_two_equal_places_of_a_tir_function_is_tried() -> None:
    a = tir.buffer("a", (1,))
    same = [tir.store(a, tir.call("tirx.exp", "float32", tir.real(0)), tir.integer(0)) for _ in range(2)]
    between = tir.evaluate(tir.call("tirx.sqrt", "float32", tir.real(0)))
    program = TirProgram(
        encode(tir.module(tir.function([a], tir.sequence(same[0], between, same[1])))).encode()
    )

    def first_stays(now: TvmSubject) -> bool:
        found = now.program.operators()
        return (
            found.index("tirx.exp") < found.index("tirx.sqrt")
            if {"tirx.exp", "tirx.sqrt"} <= {*found}
            else False
        )

    best = reduced(subject(program), TirReduction().passes(), first_stays)
    assert best.program.operators().count("tirx.exp") == 1


def test_a_binding_stays_whose_last_reader_goes_and_arguments_become_plain() -> None:
    """An operator without a reader may be needed, and one argument of a call may stand for another."""
    text, small = T.RelaxTensorType("float32", (1,)), T.RelaxTensorType("uint8", (1,))
    x, y, z = R.Var("x", small), R.Var("y", text), R.Var("z", text)
    cast = R.Call(
        R.RelaxOperator("relax.astype"),
        (x,),
        text,
        declaration.attributes("AstypeAttrs", dtype=Dtype("float32")),
    )
    limits = (R.Scalar(1.0, "float32"), R.Scalar(63.0, "float32"))
    clip = R.Call(R.RelaxOperator("relax.clip"), (y, *limits), text)
    body = R.Seq((R.BindingBlock((R.Bind(y, cast), R.Bind(z, clip))),), z)
    program = RelaxProgram(to_json(R.Module((("main", R.Function((x,), body, text)),))).encode())
    wanted = {"relax.astype", "relax.clip"}
    best = reduced(
        subject(program), RelaxReduction().passes(), lambda now: wanted <= {*now.program.operators()}
    )
    main = from_json(best.program.data.decode()).main
    (_, clipped) = (binding.value for binding in main.body.bindings())
    assert main.params == ()
    assert main.body.body == R.Var("y", text)  # nothing reads the result of clip
    assert isinstance(clipped, R.Call)
    assert [arg.value for arg in clipped.args if isinstance(arg, R.Scalar)] == [0.0, 0.0]
