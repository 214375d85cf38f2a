"""The vocabulary of metamorphic relations: rewrites by name, of programs of every form.

A relation is written `NAME` (wherever it fits) or `NAME@N` (in about half of the places, others for each N;
which ones depends on the names of values there, so that most stay chosen while a program is reduced). Equal
relations make equal programs of equal programs.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from onnx import NodeProto

from opsieve.gen.declarations.catalogue import declared
from opsieve.gen.declarations.properties import dropout, random_numbers
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.irs.tvm.nodes import MalformedGraph
from opsieve.gen.irs.tvm.program import RelaxProgram
from opsieve.gen.model.program import OnnxProgram, Program
from opsieve.gen.model.structure import all_nodes
from opsieve.gen.model.tensors import Value
from opsieve.gen.rewrites import nodes as node_rewrites
from opsieve.gen.rewrites.batches import split_batch
from opsieve.gen.rewrites.nodes import Rewrite, rewriting

ONNX_REWRITES: Mapping[str, Rewrite] = {
    "insert-identities": node_rewrites.insert_identities,
    "duplicate": node_rewrites.duplicate,
    "lift-constants": node_rewrites.lift_constants,
    "freeze-inputs": node_rewrites.freeze_inputs,
    "split-batch": split_batch,
    "swap-operands": node_rewrites.swap_operands,
    "reorder": node_rewrites.reorder,
    "add-outputs": node_rewrites.add_outputs,
}
# Of one function, whole: gen/irs/relax/rewrites.py, which is loaded when one is used.
RELAX_REWRITES = ("closure", "wrapped", "returned")
_WRITTEN = re.compile(r"([a-z-]{1,40})(?:@([1-9][0-9]{0,3}))?")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A program that means the same, and the values that it is fed."""

    program: Program
    inputs: dict[str, Value]


def names_for(form: str) -> tuple[str, ...]:
    """The names of the rewrites of programs of a form; () where there are none."""
    return {"onnx": tuple(ONNX_REWRITES), "relax": RELAX_REWRITES}.get(form, ())


def check_relation(written: str) -> None:
    """BadInput where no relation is written so."""
    _parsed(written)


def relation_of(form: str, number: int) -> str:
    """The relation that the test of a number is put to: all rewrites in turn, everywhere first, then in
    places.
    """
    names = names_for(form)
    if not names:
        return ""
    turn, place = divmod(number, len(names))
    return names[place] if turn % 3 == 0 else f"{names[place]}@{turn % 1000}"


def rewritten(program: Program, inputs: Mapping[str, Value], written: str) -> Rewritten | None:
    """The program after a rewrite; None where it fits nowhere, or the program was made to be wrong. BadInput
    for an unknown one.
    """
    name, seed = _parsed(written)
    if program.fault is not None or name not in names_for(program.form):
        return None
    if isinstance(program, OnnxProgram):
        return _onnx(program, inputs, name, seed)
    assert isinstance(program, RelaxProgram)
    changed = _relax(program, name, seed)
    if changed is None:
        return None
    # The rewrites give parameters new names and keep their order.
    return Rewritten(
        changed, {new: inputs[old] for old, new in zip(program.inputs(), changed.inputs(), strict=True)}
    )


def _parsed(written: str) -> tuple[str, str]:
    found = _WRITTEN.fullmatch(written)
    every = (*ONNX_REWRITES, *RELAX_REWRITES)
    if found is None or found[1] not in every:
        raise BadInput(
            f"there is no rewrite {shown(written, 60)}; there are {', '.join(every)}, and NAME@N for some"
            " places"
        )
    return found[1], found[2] or ""


def _onnx(program: OnnxProgram, inputs: Mapping[str, Value], name: str, seed: str) -> Rewritten | None:
    model = program.proto
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    if any(_is_random(node) for node in all_nodes(nodes)):
        return None

    def chosen(place: str) -> bool:
        return not seed or hashlib.sha256(f"{seed} {place}".encode()).digest()[0] % 2 == 0

    at = rewriting(model, inputs, chosen)
    ONNX_REWRITES[name](at)
    if not at.rewritten:
        return None
    return Rewritten(
        OnnxProgram(at.finished().SerializeToString(deterministic=True), program.name), at.inputs
    )


def _is_random(node: NodeProto) -> bool:
    """Whether its results are no function of its inputs: a rewrite may change how often or in which order
    numbers are drawn.
    """
    operator = declared(node.domain, node.op_type)
    undefined = () if operator is None else operator.undefined
    # the third says: in training
    return random_numbers in undefined or (dropout in undefined and len(node.input) > 2)


def _relax(program: RelaxProgram, name: str, seed: str) -> RelaxProgram | None:
    from opsieve.gen.irs.relax.reading import from_json
    from opsieve.gen.irs.relax.rewrites import REWRITES
    from opsieve.gen.irs.relax.walk import functions
    from opsieve.gen.irs.relax.writing import to_json

    try:
        module = from_json(program.module.decode())
    except (MalformedGraph, UnicodeDecodeError):  # it holds what the trees of gen/irs/relax do not
        return None
    places = [each for each, _ in functions(module)]
    if not places:
        return None
    place = places[(int(seed) if seed else len(places) - 1) % len(places)]
    return replace(
        program, module=to_json(REWRITES[name](module, place)).encode(), script="", script_is_exact=False
    )
