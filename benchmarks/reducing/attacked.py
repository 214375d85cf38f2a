"""Results of `reduce`, attacked by the edits that a person tries by hand: is one smaller model left that fails in the same way?

The edits are written for this and share nothing with the passes of the reducer: a conversion dropped and the types around it changed, results replaced by
what was recorded, inputs merged, ranks lowered everywhere, sizes lowered everywhere, one element type for another, attributes dropped together,
each operator alone, and every two of them. A result is beaten by a model that is valid (also by the declarations of its operators), simpler in
the reducer's order whatever its names, and shows the failure by the reducer's own test.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from benchmarks.reducing.two_bugs import GROUPS, SAMPLES
from onnx import helper, numpy_helper

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.analysis.validity import check_model
from opsieve.gen.case.open_case import open_case
from opsieve.gen.model.structure import bodies
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.onnx_edit.canonical_names import renamed
from opsieve.reducer.onnx_reduction import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.oracle.premise import NotReproduced
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.problem.order import simpler
from opsieve.reducer.problem.recording import recorded
from opsieve.reducer.problem.subject import Subject
from opsieve.reducer.reduction import Listeners, Reduction, interestingness_of, reduce_failure

# Folders of a directory of failing cases, by the target that their name begins with.
PREFIXES = {
    "ort_": "onnxruntime",
    "onnxscript_": "onnxscript",
    "onnxslim_": "onnxslim",
    "onnxsim_": "onnxsim",
    "onnxoptimizer_": "onnxoptimizer",
    "tvm_": "tvm",
}
_CONVERTERS = ("Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Identity")
_MOST = 240  # attempts on one result
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Attack:
    """One result: how many edits were tried on it, how many made a smaller valid model, and those that beat it."""

    name: str
    operators: tuple[str, ...]
    tried: int
    valid: int
    beaten: tuple[str, ...]


def attack_all(cases: Sequence[Path], most: int, workers: Workers) -> Iterator[Attack]:
    """Reduce each case and attack what comes out: the samples, then the folders within `cases`."""
    found = [(SAMPLES / name, target) for target, names in GROUPS.items() for name in names]
    for folder in cases:
        for path in sorted(folder.iterdir()):
            found += [(path, target) for prefix, target in PREFIXES.items() if path.name.startswith(prefix)]
    done = 0
    for path, target in found:
        if done == most:
            return
        try:
            attack = _attacked(path, target, workers)
        except NotReproduced as error:
            print(f"{path.name}: left out, {error}"[:200].replace("\n", " "), flush=True)
            continue
        done += 1
        yield attack


def _attacked(path: Path, target: str, workers: Workers) -> Attack:
    case = open_case(path)
    premise = find(case, [resolve(target)], None, workers)
    form = OnnxReduction()
    result: Reduction[Subject] = reduce_failure(
        form, form.subject(case), premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    best = recorded(result.best, premise.target.baseline, workers)
    held: Values = {**best.values, **best.inputs}
    edits = list(edited(best.model, best.inputs, held))
    for (one, model, inputs), _ in zip(edits[:40], range(40), strict=False):
        edits += [(f"{one}, {other}", *rest) for other, *rest in edited(model, inputs, held)]  # type: ignore[misc]
    named = _named(best.model, best.inputs)
    faulty = bool(check_model(best.model, best.inputs).fault)
    seen, candidates = set(), []
    for label, model, inputs in edits:
        subject = _named(model, inputs)
        if subject.program.data in seen or not simpler(subject, named):
            continue
        seen.add(subject.program.data)
        if faulty or not check_model(model, inputs).fault:
            candidates.append((label, subject))
    candidates = candidates[:_MOST]
    complaints = OnnxValidator(workers, best).complaints([subject for _, subject in candidates])
    sound = [each for each, complaint in zip(candidates, complaints, strict=True) if not complaint]
    test = interestingness_of(premise, workers, "fingerprint", form.subject(case))
    answers = list(test.evaluate([subject for _, subject in sound]))
    beaten = tuple(label for (label, _), answer in zip(sound, answers, strict=True) if answer.kind == "same")
    operators = tuple(result.best.program.operators())
    return Attack(path.name, operators, len(candidates), len(sound), beaten)


def _named(model: onnx.ModelProto, inputs: Values) -> Subject:
    """Under canonical names and without the types of results, which are no part of what is compared."""
    bare = onnx.ModelProto.FromString(model.SerializeToString())
    del bare.graph.value_info[:]
    subject = Subject(bare, inputs, {})
    return renamed(subject) or subject


Edited = tuple[str, onnx.ModelProto, Values]


def edited(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Every hand edit of a model, those that cannot be made left out."""
    for make in (_unconverted, _frozen, _merged, _ranks, _sizes, _types, _attributes, _alone, _plain):
        with suppress(KeyError, ValueError, IndexError, TypeError):
            yield from make(model, inputs, held)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for body in bodies(node):
            _rename(body, old, new)


def _tidied(model: onnx.ModelProto, inputs: Values) -> tuple[onnx.ModelProto, Values] | None:
    """Without nodes, initializers and inputs that nothing reads."""
    graph = model.graph
    while True:
        read = {name for node in graph.node for name in _reads(node)} | {info.name for info in graph.output}
        dead = [node for node in graph.node if not read.intersection(node.output)]
        if not dead:
            break
        for node in dead:
            graph.node.remove(node)
    made = {name for node in graph.node for name in node.output}
    for kind in (graph.initializer, graph.input):
        kept = [item for item in kind if item.name in read]  # type: ignore[attr-defined]
        del kind[:]
        kind.extend(kept)  # type: ignore[attr-defined]
    stored = {tensor.name for tensor in graph.initializer}
    outputs = [info for info in graph.output if info.name in made]
    if not outputs:
        return None
    del graph.output[:]
    graph.output.extend(outputs)
    del graph.value_info[:]
    return model, {info.name: inputs[info.name] for info in graph.input if info.name not in stored}


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for body in bodies(node):
        for inner in body.node:
            yield from _reads(inner)
        yield from (info.name for info in body.output)


def _given(label: str, model: onnx.ModelProto, inputs: Values) -> Iterator[Edited]:
    tidy = _tidied(model, inputs)
    if tidy is not None:
        yield (label, *tidy)


def _fed(model: onnx.ModelProto, inputs: Values, name: str, value: Any, new: str) -> tuple[onnx.ModelProto, Values]:
    """A value that is an input from now on; every reader of `name` reads it."""
    changed = _copy(model)
    array = np.asarray(value)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    changed.graph.input.append(helper.make_tensor_value_info(new, kind, array.shape))
    _rename(changed.graph, name, new)
    return changed, {**inputs, new: array}


def _open_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Outputs without a shape and with the type that inference gives them."""
    changed = _copy(model)
    names = [info.name for info in changed.graph.output]
    del changed.graph.output[:]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    with suppress(Exception):
        typed = onnx.shape_inference.infer_shapes(changed)
        for info, found in zip(changed.graph.output, typed.graph.output, strict=True):
            info.CopyFrom(found)
    return changed


def _unconverted(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """A conversion dropped: what it gave is fed, or what it read goes on as it is, with the outputs' types inferred anew."""
    for node in model.graph.node:
        if node.op_type in _CONVERTERS and node.output[0] in held:
            yield from _given(f"feed {node.op_type}", *_fed(model, inputs, node.output[0], held[node.output[0]], "fed"))
            changed = _copy(model)
            changed.graph.node.remove(node)
            _rename(changed.graph, node.output[0], node.input[0])
            for info in changed.graph.output:
                info.name = node.input[0] if info.name == node.output[0] else info.name
            yield from _given(f"without {node.op_type}", _open_outputs(changed), inputs)


def _frozen(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """A result, or an input, stored with its recorded value."""
    for name in [name for node in model.graph.node for name in node.output] + list(inputs):
        if isinstance(held.get(name), np.ndarray):
            changed = _copy(model)
            changed.graph.initializer.append(numpy_helper.from_array(np.asarray(held[name]), "stored"))
            _rename(changed.graph, name, "stored")
            yield from _given(f"store {name}", changed, inputs)


def _merged(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Two inputs, or stored tensors, of one type are one."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    every = {**inputs, **stored}
    for one, other in itertools.permutations(every, 2):
        if np.shape(every[one]) == np.shape(every[other]) and every[one].dtype == every[other].dtype:
            changed = _copy(model)
            _rename(changed.graph, one, other)
            yield from _given(f"{other} for {one}", changed, inputs)


def _reshaped(model: onnx.ModelProto, inputs: Values, label: str, change: Any, only: str = "") -> Iterator[Edited]:
    """Every input and float tensor (or `only` one) as `change` makes it of its array."""
    changed = _copy(model)
    fed = {name: change(value) if only in ("", name) else value for name, value in inputs.items()}
    for info in changed.graph.input:
        if info.name in fed:
            array = np.asarray(fed[info.name])
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            info.CopyFrom(helper.make_tensor_value_info(info.name, kind, array.shape))
    for tensor in changed.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if only == tensor.name or (not only and array.dtype.kind == "f"):
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(array)), tensor.name))
    yield from _given(label, _open_outputs(changed), fed)


def _ranks(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """One dimension less: of everything, and of each by itself."""
    names = ["", *inputs, *(tensor.name for tensor in model.graph.initializer)]
    for only, last in itertools.product(names, (False, True)):
        with suppress(IndexError):
            place = -1 if last else 0
            yield from _reshaped(
                model,
                inputs,
                f"rank of {only or 'all'}",
                lambda array, at=place: np.take(array, 0, axis=at) if np.ndim(array) else array,
                only,
            )


def _sizes(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Every dimension of everything, or of one, cut to at most 1 or 2."""
    names = ["", *inputs, *(tensor.name for tensor in model.graph.initializer)]
    for only, most in itertools.product(names, (1, 2)):
        yield from _reshaped(
            model,
            inputs,
            f"size of {only or 'all'} {most}",
            lambda array, to=most: np.ascontiguousarray(array[tuple(slice(to) for _ in np.shape(array))]),
            only,
        )


def _types(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Another element type for every float, or for every integer."""
    for before, after in (("float64", "float32"), ("float16", "float32"), ("float32", "float16"), ("int64", "int32")):
        yield from _reshaped(
            model,
            inputs,
            f"{after} for {before}",
            lambda array, a=before, b=after: array.astype(b) if array.dtype == a else array,
        )


def _attributes(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """All attributes of a node dropped, and every two of them."""
    for place, node in enumerate(model.graph.node):
        names = [item.name for item in node.attribute if item.type != onnx.AttributeProto.GRAPH]
        groups = [names, *([one, other] for one, other in itertools.combinations(names, 2))]
        for group in filter(None, groups):
            changed = _copy(model)
            kept = [item for item in node.attribute if item.name not in group]
            del changed.graph.node[place].attribute[:]
            changed.graph.node[place].attribute.extend(kept)
            yield from _given(f"{node.op_type} without {' '.join(group)}", _open_outputs(changed), inputs)


def _alone(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Each operator by itself, with what it read, and without its last input."""
    for node, shorter in itertools.product(model.graph.node, (0, 1)):
        if len(model.graph.node) == 1 and not shorter:
            continue
        changed = _copy(model)
        one = onnx.NodeProto.FromString(node.SerializeToString())
        one.input[:] = one.input[: len(one.input) - shorter]
        del changed.graph.node[:], changed.graph.output[:]
        changed.graph.node.append(one)
        changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in one.output if name)
        fed = dict(inputs)
        known = {info.name for info in changed.graph.input} | {item.name for item in changed.graph.initializer}
        for name in _reads(one):
            if name and name not in known:
                changed, fed = _fed(changed, fed, name, held[name], f"{name}_fed")
        yield from _given(f"{node.op_type} alone", _open_outputs(changed), fed)


def _plain(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    """Whatever stands in a model beside what it computes, left out; a newer form of it."""
    changed = _copy(model)
    changed.producer_name = changed.producer_version = changed.doc_string = ""
    del changed.metadata_props[:]
    yield from _given("bare", changed, inputs)


def report(cases: Sequence[Path], most: int) -> None:
    """A line for each result, and how many were beaten."""
    with Workers() as workers:
        attacks = []
        for attack in attack_all(cases, most, workers):
            attacks.append(attack)
            end = f"BEATEN by: {'; '.join(attack.beaten[:3])}" if attack.beaten else "stands"
            operators = " ".join(attack.operators)
            print(f"{attack.name} ({operators}): {attack.tried} edits, {attack.valid} valid, {end}", flush=True)
    beaten = sum(bool(attack.beaten) for attack in attacks)
    tried, valid = sum(attack.tried for attack in attacks), sum(attack.valid for attack in attacks)
    print(f"{len(attacks)} results, {tried} smaller models tried, {valid} of them valid: {beaten} results beaten")
