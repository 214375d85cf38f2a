"""Numbers that go down together: what is proposed satisfies every rule and ONNX, and reaches the smallest
instance.
"""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model
from operator_soak import forms, instances

from opsieve.gen.analysis.shrink_numbers import NumberPlace, RuledNode, System
from opsieve.gen.analysis.validity import check_model
from opsieve.gen.declarations.catalogue import first_dtypes, operators
from opsieve.gen.declarations.declaration import Operator
from opsieve.gen.generation.random_graph import GenRequest, finish
from opsieve.gen.irs.onnx.model_file import check
from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.structure import check_structure
from opsieve.reducer.passes.attributes import PASS as ATTRIBUTES
from opsieve.reducer.passes.ranks import PASS as RANKS
from opsieve.reducer.passes.tied_numbers import PASS as TOGETHER
from opsieve.reducer.problem.order import OnnxEdit, OnnxPass, simpler

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def subjects(op: Operator, count: int) -> Iterator[Subject]:
    """Single instances of an operator, of the newest form."""
    opset = forms(op)[-1]
    dtypes = sorted(first_dtypes(op, opset))
    for _, builder in instances(op, "float32" if "float32" in dtypes else dtypes[0], opset, count):
        if builder is not None:
            made = finish(builder, GenRequest(), "single", 1)
            yield Subject(made.program.proto, made.inputs, {})


def proposed(start: Subject, most: int) -> Iterator[tuple[OnnxEdit, Subject]]:
    """What the pass makes of a subject, the first of its edits."""
    for edit in list(TOGETHER.edits(start))[:most]:
        found = edit.apply(start)
        if found is not None:
            yield edit, found


def unsound(op: Operator, count: int, most: int) -> list[tuple[str, str]]:
    """Proposals that are not simpler, or that ONNX's checker with strict inference refuses; where it is no
    operator of ONNX, our rules.
    """
    wrong = []
    for start in subjects(op, count):
        for edit, found in proposed(start, most):
            assert simpler(found, start), edit.label
            check_structure(found.model)
            complaint = check_model(found.model, found.inputs).fault or check(found.model.SerializeToString())
            if complaint:
                wrong.append((edit.label, complaint))
    return wrong


def test_what_is_proposed_stays_valid() -> None:
    assert [
        (name, found) for name in list(operators())[::3] for found in unsound(operators()[name], 1, 4)
    ] == []


@pytest.mark.slow
def test_all_that_is_proposed_stays_valid() -> None:
    assert [(name, found) for name in operators() for found in unsound(operators()[name], 6, 100)] == []


def subject(text: str, **shapes: tuple[int, ...]) -> Subject:
    model = parse_model(HEAD + text)
    arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    fed = {name: arrays.pop(name) for name in [info.name for info in model.graph.input]}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    assert check(model.SerializeToString()) == ""
    return Subject(model, fed, {})


def smallest(start: Subject, *passes: OnnxPass) -> Subject:
    """By the first simpler edit of the passes, again and again."""
    current, moved = start, True
    while moved:
        moved = False
        for each in passes:
            for edit in each.edits(current):
                found = edit.apply(current)
                if found is not None and simpler(found, current):
                    assert check(found.model.SerializeToString()) == ""
                    current, moved = found, True
                    break
    return current


def sizes(end: Subject) -> dict[str, tuple[int, ...]]:
    held = {name: array.shape for name, array in end.inputs.items()}
    return held | {tensor.name: tuple(tensor.dims) for tensor in end.model.graph.initializer}


def test_a_convolution_loses_kernel_weights_paddings_and_groups_together() -> None:
    start = subject(
        """g (float[2,6,9,8] x) => (float[2,9,5,8] y) {
            y = Conv <group: int = 3, kernel_shape: ints = [3,3], pads: ints = [1,1,1,1], strides: ints = [2,1]> (x, w, b) }""",
        x=(2, 6, 9, 8),
        w=(9, 2, 3, 3),
        b=(9,),
    )
    end = smallest(start, TOGETHER, ATTRIBUTES, RANKS)
    assert sizes(end) == {"x": (1, 1, 1), "w": (1, 1, 1)}
    assert not end.model.graph.node[0].attribute


def test_a_hidden_size_takes_the_weights_of_all_gates_along() -> None:
    start = subject(
        "g (float[5,2,7] x) => (float[5,1,2,6] y) { y = LSTM <hidden_size: int = 6> (x, w, r, b) }",
        x=(5, 2, 7),
        w=(1, 24, 7),
        r=(1, 24, 6),
        b=(1, 48),
    )
    end = smallest(start, TOGETHER)
    assert sizes(end) == {"x": (1, 1, 1), "w": (1, 4, 1), "r": (1, 4, 1), "b": (1, 8)}


def test_a_node_behind_follows_what_goes_down_before_it() -> None:
    start = subject(
        """g (float[3,4,6,6] x) => (float[3,2,4,4] y) { a = Conv (x, w) y = Add (a, c) }""",
        x=(3, 4, 6, 6),
        w=(2, 4, 3, 3),
        c=(3, 2, 4, 4),
    )
    found = {edit.label: sizes(found) for edit, found in proposed(start, 100)}
    # A smaller kernel gives more; what it is added to cannot grow, so the image goes down.
    narrow = found["set axis 2 of 'w' to 1 and 1 more"]
    assert (narrow["w"], narrow["x"], narrow["c"]) == ((2, 4, 1, 3), (3, 4, 4, 6), (3, 2, 4, 4))
    assert all(side == 1 for shape in sizes(smallest(start, TOGETHER)).values() for side in shape)


def test_a_dimension_inside_goes_with_its_windows_and_paddings() -> None:
    start = subject(
        """g (float[1,1,1,4] x) => (float[1,1,1,5] y) <int64[8] p = {0,0,0,1,0,0,0,1}> {
            a = Pad (x, p) y = MaxPool <kernel_shape: ints = [1,2], pads: ints = [0,0,0,0]> (a) }""",
        x=(1, 1, 1, 4),
    )
    lowered = [found for edit in RANKS.edits(start) if (found := edit.apply(start)) is not None]
    assert any(sizes(found) == {"x": (1, 1, 4), "p": (6,)} for found in lowered)
    assert all(check(found.model.SerializeToString()) == "" for found in lowered)


def test_attributes_of_a_split_in_use_do_not_bring_the_process_down() -> None:
    """Inference of onnx 1.23 aborts on fewer parts than outputs."""
    start = subject(
        "g (float[6] x) => (float[3] y, float[3] z) { y, z = Split <num_outputs: int = 2> (x) }", x=(6,)
    )
    tried = [edit for edit in ATTRIBUTES.edits(start) if "num_outputs to" in edit.label]
    assert tried
    assert all(edit.apply(start) is None for edit in tried)


def system(operator: str, attrs: dict[str, object], *shapes: tuple[int, ...]) -> System:
    names = [f"i{place}" for place in range(len(shapes))]
    leaves = {name: ("float32", shape, None) for name, shape in zip(names, shapes, strict=True)}
    return System([RuledNode(operator, tuple(names), ("y",), attrs)], leaves, 18)


def test_what_is_tied_follows_and_nothing_else() -> None:
    found = system("MatMul", {}, (2, 6), (6, 5)).together(NumberPlace("size", "i0", "", 1), 2)
    assert found == {NumberPlace("size", "i0", "", 1): 2, NumberPlace("size", "i1", "", 0): 2}
    alone = system("MatMul", {}, (2, 6), (6, 5)).together(NumberPlace("size", "i0", "", 0), 1)
    assert alone == {NumberPlace("size", "i0", "", 0): 1}


def test_of_what_is_invalid_already_or_not_known_nothing_is_promised() -> None:
    assert not system("MatMul", {}, (2, 6), (7, 5)).sound
    unknown = system("Unheard", {}, (2, 6))
    assert unknown.sound
    assert unknown.together(NumberPlace("size", "i0", "", 1), 1) == {NumberPlace("size", "i0", "", 1): 1}
