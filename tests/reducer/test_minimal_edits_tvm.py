"""An edit of a TIR function or a Relax module changes what it states: every statement and every binding that
it does not touch stays as it is.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from slow_params import keep_quick

from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.relax import tree as R
from opsieve.gen.irs.relax.walk import all_bindings, functions, reads
from opsieve.gen.irs.tir import nodes as N
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import encode
from opsieve.gen.irs.tvm.program import TvmProgram
from opsieve.gen.strategies.registry import generate
from opsieve.reducer.irs.relax.edits import read_tree
from opsieve.reducer.irs.tvm import tir_edits
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmSubject
from opsieve.reducer.irs.tvm_reduction import RelaxReduction, TirReduction

# What an edit of a whole module touches; it states that it changes every binding.
WHOLE = {"sizes", "types", "bodies", "main", "result"}


def start(kind: str, seed: int) -> TvmSubject:
    case = generate(kind, seed, GenRequest(nodes=6))
    assert isinstance(case.program, TvmProgram)
    return TvmSubject(case.program, dict(case.inputs))


def lost_statements(before: TvmSubject, edit: TvmEdit, after: TvmSubject) -> list[str]:
    """The statements that neither hold nor are what the edit touches, and that are gone."""
    there = {tir_edits._content(node) for node in tir_edits._nodes(after)}
    return [
        node.type
        for node in tir_edits._nodes(before)
        if node.type in N.STATEMENTS
        and edit.touches.isdisjoint(map(tir_edits._content, N.walk(node)))
        and tir_edits._content(node) not in there
    ]


def changed_bindings(before: TvmSubject, edit: TvmEdit, after: TvmSubject) -> Iterator[str]:
    """The bindings that are not touched, read nothing that is, and have another operation. A call may lose an
    argument whose parameter goes, and a variable its dataflow block.
    """
    if edit.touches & WHOLE:
        return
    now = {name: operation for name, operation, _ in list_operations(after)}
    for name, operation, read in list_operations(before):
        if name in now and {name, *read}.isdisjoint(edit.touches) and now[name] != operation:
            yield name


def list_operations(subject: TvmSubject) -> list[tuple[str, object, set[str]]]:
    bindings = [
        binding
        for _, function in functions(read_tree(subject.program.data).module)
        for binding in all_bindings(function.body)
    ]
    return [
        (
            each.var.name,
            (value.op.name, value.attrs) if isinstance(value, R.Call) else type(value),
            reads(value),
        )
        for each in bindings
        for value in (each.value,)
    ]


@pytest.mark.parametrize("seed", keep_quick(range(3), 1))
def test_an_edit_of_a_tir_function_changes_only_what_it_states(seed: int) -> None:
    before = start("tir", seed)
    tried = 0
    for each in TirReduction().passes():
        for edit in list(each.edits(before))[:30]:
            after = edit.apply(before)
            if after is None:
                continue
            tried += 1
            assert not lost_statements(before, edit, after), edit.label
            is_pass = each.name == "pass sequence"
            assert is_pass or after.program.passes == before.program.passes
            assert each.name != "values" or after.program.data == before.program.data
    assert tried


def test_the_edits_of_a_large_tir_function_hash_as_few_nodes_each_as_those_of_a_small_one() -> None:
    """Each edit once looked at every node of its type, so a function twice as large took four times as long."""

    def hashed_for_each_edit(count: int) -> float:
        buffer = N.buffer("a", (count,), "float32")
        stores = [N.store(buffer, N.real(place), N.integer(place)) for place in range(count)]
        program = TirProgram(encode(N.module(N.function([buffer], N.sequence(*stores)))).encode())
        before = TvmSubject(program, {"a": np.zeros(count, np.float32)})
        tir_edits._content.cache_clear()
        edits = [edit for each in TirReduction().passes() for edit in each.edits(before)]
        seen = tir_edits._content.cache_info()
        return (seen.hits + seen.misses) / len(edits)

    assert hashed_for_each_edit(40) < 1.5 * hashed_for_each_edit(10)


def test_the_edits_of_a_tir_function_are_found_again_after_many_other_functions() -> None:
    """Two caches of different sizes once disagreed about which nodes a function has."""

    def list_edits(number: int) -> list[str]:
        buffer = N.buffer("a", (1,), "float32")
        stores = [N.store(buffer, N.real(number + each), N.integer(0)) for each in (0.25, 0.5)]
        program = TirProgram(encode(N.module(N.function([buffer], N.sequence(*stores)))).encode())
        subject = TvmSubject(program, {"a": np.zeros(1, np.float32)})
        return [edit.label for edit in tir_edits.drop_statements(subject)]

    first = list_edits(0)
    for number in range(1, 80):
        list_edits(number)
    assert list_edits(0) == first


@pytest.mark.parametrize("seed", keep_quick(range(4), 2))
def test_an_edit_of_a_relax_module_changes_only_what_it_states(seed: int) -> None:
    before = start("relax", seed)
    tried = 0
    for each in RelaxReduction().passes():
        for edit in list(each.edits(before))[:8]:
            after = edit.apply(before)
            if after is None:
                continue
            tried += 1
            assert not list(changed_bindings(before, edit, after)), edit.label
            is_refit = bool(edit.touches & WHOLE) or each.name in ("values", "functions", "signatures")
            for name in after.inputs.keys() & before.inputs.keys() if not is_refit else ():
                assert np.array_equal(np.asarray(after.inputs[name]), np.asarray(before.inputs[name])), (
                    edit.label
                )
    assert tried
