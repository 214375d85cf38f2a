"""Wrong results of a store, grouped by the pass that makes them before any is reduced."""

from pathlib import Path

import numpy as np
import pytest
from commands import opsieve
from onnx import helper, load
from repository import ROOT
from stores import CAMPAIGN, filled, finding

from opsieve.gen.case.case import Case, load as load_case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.triage.store.finished_test import FinishedTest
from opsieve.triage.store.queries import Queries


@pytest.mark.slow
def test_wrong_results_of_one_pass_are_one_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = load_case(ROOT / "samples" / "onnxslim-unique-folded-wrong-value")
    cases = [sample]
    for operator in ("Neg", "Exp"):
        model = load(ROOT / "samples" / "onnxslim-unique-folded-wrong-value" / "model.onnx")
        model.graph.input.append(helper.make_tensor_value_info("more", 1, [2]))
        model.graph.output.append(helper.make_tensor_value_info("other", 1, [2]))
        model.graph.node.append(helper.make_node(operator, ["more"], ["other"]))
        inputs = {**sample.inputs, "more": np.ones(2, np.float32)}
        cases.append(Case(OnnxProgram(model.SerializeToString()), inputs))
    found = [
        finding("", kind="mismatch", target="onnxslim", operators=sorted(set(case.program.operators())))
        for case in cases
    ]
    tests = [
        FinishedTest(at, case, dict.fromkeys(CAMPAIGN.targets, ("pass", 0.1)), (one,), ())
        for at, (case, one) in enumerate(zip(cases, found, strict=True))
    ]
    store = filled(tmp_path / "store", tests)
    with Queries(store) as read:
        assert read.counts().clusters == 3
    opsieve("triage", store, "--attribute", capsys=capsys)
    with Queries(store) as read:
        (row,) = read.clusters().rows
    assert "by pass" in row.title
