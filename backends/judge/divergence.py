"""Find the first node of a program whose output is wrong given correct inputs.

The target returns the values between its nodes, as further outputs. Extra outputs can change what it
optimises, so values are read in groups. A group counts only if the outputs stay the same bit for bit;
otherwise it is halved. Each value is then compared twice: with the value that the reference computes of the
whole program, and with the value that it computes from the target's own inputs of that node. Only a value
that differs both times is the node's own fault.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from onnx import ModelProto

from opsieve.backends import registry, verdict
from opsieve.backends.compare import POLICY, Policy, compare, error, identical, type_text
from opsieve.backends.judge import judging_session, localise, pieces
from opsieve.backends.judge.discontinuity_points import MADE, find_upstream, sever
from opsieve.backends.judge.oracles import FLOAT64, NATIVE, Lab, Values
from opsieve.gen.irs.onnx import edits, view
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program

# Of the target; values that are left then count as hidden
_MOST_RUNS = 128

State = Literal["right", "wrong", "inherited", "hidden"]


@dataclass(frozen=True, slots=True)
class LocatedValue:
    """One value of the program: the results of the target and of the reference at the worst element.

    `state` is `right`; `wrong` (given the target's own inputs, too); `inherited` (only because an input is
    off); or `hidden` (reading it changes what is optimised, so the target's value is unknown). `error` is the
    largest difference over the largest expected magnitude; -1 of a hidden value.
    """

    name: str
    operator: str
    state: State
    target: str
    reference: str
    index: tuple[int, ...]
    error: float
    on_path: bool


@dataclass(frozen=True, slots=True)
class Divergence:
    """The values of a program in their order, and the `first` whose node is at fault, "" for none.

    `nodes` are the operators that can be at fault: the one that makes `first`, and those before it whose
    values are hidden. `runs` counts the runs of the target. `problem`
    says why values are missing.
    """

    values: tuple[LocatedValue, ...] = ()
    first: str = ""
    nodes: tuple[str, ...] = ()
    runs: int = 0
    problem: str = ""


def locate_divergence(
    program: Program,
    inputs: Values,
    target: registry.ResolvedTarget,
    outputs: Values,
    lab: Lab,
    policy: Policy = POLICY,
) -> Divergence:
    """Locate where the `outputs` of a target begin to differ from the reference."""
    model = ir_of(program).graph(program)
    names = [] if model is None else list(dict.fromkeys(pieces.list_made_values(model)))
    if model is None or not names:
        return Divergence(problem="values are located in graphs of ONNX alone")
    tapped = OnnxProgram(edits.tap_model(model, names).SerializeToString(), program.name)
    # float64 first: its own rounding errors are below those of any target.
    truth = next(
        (seen for by in (FLOAT64, NATIVE) if (seen := lab.observe(by, tapped, inputs).outputs)), None
    )
    if truth is None:
        return Divergence(problem="the reference cannot evaluate the values of this model")
    runs = 0

    def read_values(wanted: Sequence[str]) -> dict[str, Any]:
        """Read values in one run, or half of them at a time if reading all changes the outputs."""
        nonlocal runs
        if runs == _MOST_RUNS or not wanted:
            return {}
        runs += 1
        program = OnnxProgram(edits.tap_model(model, wanted).SerializeToString())
        given = lab.observe(target, program, inputs).outputs
        # Otherwise the extra outputs changed what was optimised: the values are those of another build.
        if given is not None and all(identical(given.get(name), outputs[name]) for name in outputs):
            return {name: given[name] for name in wanted if name in given}
        half = len(wanted) // 2
        return {**read_values(wanted[:half]), **read_values(wanted[half:])} if half else {}

    chunks = [names[at : at + pieces.MOST_VALUES] for at in range(0, len(names), pieces.MOST_VALUES)]
    own = {name: value for chunk in chunks for name, value in read_values(chunk).items()}
    dtypes = localise.get_dtypes(own)
    off = compare(own, {name: truth[name] for name in own}, dtypes, policy).mismatches
    wrong = {name for name in _find_wrong(model, inputs, own, dtypes, lab, policy) if name in off}
    failing = [value.name for value in model.graph.output if value.name in off]
    upstream = find_upstream(model.graph, failing or list(wrong))
    # A wrong value that feeds no failing output is another fault, or a harmless one.
    first = next((name for name in names if name in wrong and name in upstream), "")
    begin = names.index(first) if first else len(names)
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    values = tuple(
        _describe_value(
            name, makers[name], own, truth, off, wrong, name in upstream and name in names[begin:]
        )
        for name in names
    )
    nodes = tuple(makers[name] for name in _iter_hidden_before(model, first, own))
    return Divergence(values, first, nodes, runs)


def _describe_value(
    name: str,
    operator: str,
    own: Values,
    truth: Values,
    off: Mapping[str, verdict.Mismatch],
    wrong: set[str],
    later: bool,
) -> LocatedValue:
    """Describe a value; `later` if it is behind the first wrong one, on the way to an output."""
    known, index = name in own, off[name].index if name in off else ()
    state: State = (
        "hidden" if not known else "wrong" if name in wrong else "inherited" if name in off else "right"
    )
    shown = _format_value(own.get(name), index), _format_value(truth[name], index)
    far = error(own[name], truth[name]) if known else -1.0
    return LocatedValue(name, operator, state, *shown, index, far, later and state != "right")


def _find_wrong(
    model: ModelProto,
    inputs: Values,
    own: Values,
    dtypes: Mapping[str, str],
    lab: Lab,
    policy: Policy,
) -> set[str]:
    """Find the values that the reference contradicts given the target's own inputs, in either precision."""
    severed = OnnxProgram(sever(model, list(own), ()).SerializeToString())
    wrong = set(own)
    for reference in (FLOAT64, NATIVE):
        answer = lab.observe(reference, severed, {**inputs, **own})
        made = answer.outputs or {}
        right = {name: made[name + MADE] for name in own if name + MADE in made}
        terms = {
            name.removesuffix(MADE): many
            for name, many in judging_session.find_sum_lengths(answer.hazards).items()
        }
        # Wrong in both precisions: one alone may differ by its own rounding.
        wrong &= set(compare(own, right, dtypes, policy, terms).mismatches) if right else wrong
    return wrong


def _iter_hidden_before(model: ModelProto, first: str, own: Values) -> Iterator[str]:
    """Yield the hidden values on which `first` depends, in their order, then `first`."""
    needed = {first} - {""}
    for node in reversed(model.graph.node):
        if any(name in needed and (name == first or name not in own) for name in node.output):
            needed.update(view.list_captured(node))
    for name in pieces.list_made_values(model):
        if name in needed and (name == first or name not in own):
            yield name


def _format_value(value: Any, index: tuple[int, ...]) -> str:
    """Format the element at `index`, or the first one; "" for a value that is not known."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)) or not (array := np.asarray(value)).size or len(index) > array.ndim:
        return type_text(value)
    element = array[index] if len(index) == array.ndim else array.flat[0]
    return f"{float(element):.7g}" if array.dtype.kind in "fV" else str(element)[:40]
