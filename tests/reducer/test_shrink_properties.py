"""Whatever the graph: every edit gives a valid model that is strictly simpler and runs, and the same edits
every time.
"""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx.reference import ReferenceEvaluator
from random_subjects import subjects

from opsieve.backends.reference.reference_ops import OPERATORS
from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.structure import check_structure
from opsieve.reducer.passes.attributes import PASS as ATTRIBUTES
from opsieve.reducer.passes.bodies import PASS as BODIES
from opsieve.reducer.passes.initializers import PASS as VALUES
from opsieve.reducer.passes.model import PASS as MODEL
from opsieve.reducer.passes.onnx import DIMENSIONS, DTYPES
from opsieve.reducer.passes.ranks import PASS as RANKS
from opsieve.reducer.passes.tied_numbers import PASS as TOGETHER
from opsieve.reducer.problem.order import OnnxPass, simpler

MOST = 25  # edits looked at of one subject and pass


def run(subject: Subject) -> None:
    """Evaluate it with opsieve's rules, since onnx's own give pools of partly padded windows a wrong size."""
    with np.errstate(all="ignore"):
        ReferenceEvaluator(subject.model, new_ops=list(OPERATORS)).run(None, subject.inputs)


@pytest.mark.parametrize(
    "each",
    [ATTRIBUTES, DIMENSIONS, RANKS, DTYPES, VALUES, BODIES, MODEL, TOGETHER],
    ids=lambda each: each.name,
)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(start=subjects(), data=st.data())
def test_every_edit_is_valid_simpler_and_runs(each: OnnxPass, start: Subject, data: st.DataObject) -> None:
    before = start.model.SerializeToString(deterministic=True)
    edits = list(each.edits(start))
    assert [edit.label for edit in edits] == [edit.label for edit in each.edits(start)]
    offset = data.draw(st.integers(0, max(0, len(edits) - MOST)))
    for edit in edits[offset : offset + MOST]:
        found = edit.apply(start)
        if found is None:
            continue
        check_structure(found.model)
        onnx.checker.check_model(found.model, full_check=True)
        assert simpler(found, start), edit.label
        assert {info.name for info in found.model.graph.input} == set(found.inputs)
        run(found)
        again = edit.apply(start)
        assert again is not None
        assert again.model.SerializeToString(deterministic=True) == found.model.SerializeToString(
            deterministic=True
        )
        edit.apply(found)  # may apply or not, but never breaks
    assert start.model.SerializeToString(deterministic=True) == before


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(start=subjects())
def test_edits_with_disjoint_touches_can_be_merged(start: Subject) -> None:
    for each in (DIMENSIONS, VALUES, ATTRIBUTES):
        current, touched = start, frozenset[str]()
        for edit in list(each.edits(start))[:MOST]:
            if touched & edit.touches:
                continue
            found = edit.apply(current)
            if found is not None:
                current, touched = found, touched | edit.touches
        onnx.checker.check_model(current.model, full_check=True)
        assert current is start or simpler(current, start)
