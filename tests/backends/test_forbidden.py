"""Programs that break a rule of an operator's page by their values alone: the reference names the rule, and
who refuses them is not blamed.
"""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import NATIVE
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.onnx.program import OnnxProgram

F = np.float32
X = np.arange(12, dtype=F).reshape(3, 4)
WIDE = np.ones((1, 1, 4, 4), F)
# What the graph says, what is fed, a part of the rule that is named.
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("(float[3,4] x, int64 i) => (seq(float[3,4]) y) { s = SequenceConstruct(x) y = SequenceInsert(s, x, i) }", {"x": X, "i": np.array(3)}, "position 3"),
    ("(float[3,4] x, int64 i) => (float[a,b] y) { s = SequenceConstruct(x) y = SequenceAt(s, i) }", {"x": X, "i": np.array(1)}, "position 1"),
    ("(float[3,4] x, int64[1] p) => (float[a,b] y) <int64[1] s = {0}, int64[1] e = {3}> { y = Slice(x, s, e, p) }", {"x": X, "p": np.array([2])}, "axis 2"),
    ("(float[3,4] x, int64[1] p) => (float[a,b] y) <int64[1] s = {0}, int64[1] e = {3}> { y = Slice(x, s, e, s, p) }", {"x": X, "p": np.array([0])}, "step is 0"),
    ("(float[3,4] x, int64[1] k) => (float[3,a] y, int64[3,b] z) { y, z = TopK(x, k) }", {"x": X, "k": np.array([-1])}, "-1 of 4"),
    ("(float[3,4] x, float r) => (float[3,4] y) { y = Dropout(x, r) }", {"x": X, "r": np.array(-1.2, F)}, "a ratio of -1.2"),
    ("(float[3,4] x, int64[1] a) => (float[b] y) { y = Squeeze(x, a) }", {"x": X, "a": np.array([0])}, "not 1"),
    ("(float[3,4] x, int64[2] a) => (float[b,c,d,e] y) { y = Unsqueeze(x, a) }", {"x": X, "a": np.array([1, 1])}, "twice"),
    ("(float[3,4] x, int64[1] a) => (float[b,c] y) { y = ReduceSum(x, a) }", {"x": X, "a": np.array([2])}, "axis 2"),
    ("(float[3,4] x, int64[2] s) => (float[a,4] y, float[b,4] z) { y, z = Split<axis=0>(x, s) }", {"x": X, "s": np.array([1, 1])}, "up to 2 where"),
    ("(float[3,4] x, int64[2] s) => (float[a,4] y, float[b,4] z) { y, z = Split<axis=0>(x, s) }", {"x": X, "s": np.array([4, -1])}, "negative"),
    ("(float[3,4] x, int64[2] s) => (seq(float[a,4]) y) { y = SplitToSequence<axis=0>(x, s) }", {"x": X, "s": np.array([1, 1])}, "up to 2 where"),
    ("(float[3,4] x, int64[4] p) => (float[a,b] y) { y = Pad(x, p) }", {"x": X, "p": np.array([-4, 0, 0, 0])}, "taken away"),
    ("(int64[2] i, int64 d) => (float[a,b] y) <float[2] v = {0, 1}> { y = OneHot(i, d, v) }", {"i": np.array([0, 1]), "d": np.array(-1)}, "depth"),
    ("(int64 d) => (int64[a] y) <int64 s = {0}, int64 e = {5}> { y = Range(s, e, d) }", {"d": np.array(0)}, "delta"),
    ("(float[1,1,4,4] x, float[4] s) => (float[a,b,c,d] y) { y = Resize(x, \"\", s) }", {"x": WIDE, "s": F([1, 1, 0, 1])}, "greater than 0"),
    ("(float[1,1,4,4] x, float[1,1,c,d] w) => (float[1,1,e,f] y) { y = Conv(x, w) }", {"x": WIDE, "w": np.ones((1, 1, 5, 5), F)}, "does not fit"),
    ("(float[1,1,4,4] x, float[1,1,3,3] w, float[b] k) => (float[1,1,e,f] y) { y = Conv(x, w, k) }", {"x": WIDE, "w": np.ones((1, 1, 3, 3), F), "k": np.ones(2, F)}, "of size 2"),
    ("(float[3,4] x, int64[4] l) => (float[3,4] y) { y = ReverseSequence(x, l) }", {"x": X, "l": np.array([1, 2, 3, 4])}, "length 4"),
    ("(float[a,b] x, float[c] s) => (float[a,b] y) { y = PRelu(x, s) }", {"x": X, "s": np.ones(3, F)}, "slope"),
    ("(float[a,b] x, int64[c] k) => (float[d,e] y) { y = CenterCropPad(x, k) }", {"x": X, "k": np.array([2, 2, 2])}, "3 sizes"),
    ("(float[a,b] x, int64[c,d] i) => (float[c,d] y) { y = GatherElements(x, i) }", {"x": X, "i": np.zeros((1, 5), np.int64)}, "wider"),
    ("(float[a,b] x, int64[c,d] i, float[e,f] u) => (float[a,b] y) { y = ScatterElements(x, i, u) }", {"x": X, "i": np.zeros((1, 2), np.int64), "u": np.ones((1, 3), F)}, "updates"),
    ("(int64[2] s) => (float[a,b] y) { y = ConstantOfShape(s) }", {"s": np.array([2, -1])}, "negative"),
    ("(float[3,4] x, int64[2] r) => (float[a,b] y) { y = Tile(x, r) }", {"x": X, "r": np.array([1, -1])}, "negative"),
    ("(float[3,4] x, int64 a) => (float[3,4] y) { y = CumSum(x, a) }", {"x": X, "a": np.array(2)}, "axis 2"),
]  # fmt: skip


def program(text: str) -> OnnxProgram:
    model: ModelProto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    return OnnxProgram(model.SerializeToString())


@pytest.mark.parametrize(("text", "feeds", "rule"), BROKEN)
def test_who_refuses_what_a_page_forbids_is_not_blamed(
    workers: Workers, text: str, feeds: dict[str, Any], rule: str
) -> None:
    lab, asked = ObservationCache(workers), program(text)
    reference = lab.observe(NATIVE, asked, feeds)
    assert reference.outcome == "rejected", reference
    assert rule in (reference.message or "")
    # The unoptimised build takes it, another compiler would too: the program is invalid all the same.
    assert judge_program(asked, feeds, resolve("onnxruntime:disable_all"), lab).verdict.verdict == "invalid"


ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("(float[3,4] x, int64[1] k) => (float[3,a] y, int64[3,b] z) { y, z = TopK(x, k) }", {"x": X, "k": np.array([4])}),
    ("(float[3,4] x, int64[4] p) => (float[a,b] y) { y = Pad(x, p) }", {"x": X, "p": np.array([-3, 0, 1, 0])}),
    ("(float[3,4] x, int64[4] l) => (float[3,4] y) { y = ReverseSequence(x, l) }", {"x": X, "l": np.array([1, 2, 3, 3])}),
    ("(float[a,b] x, int64[c,d] i) => (float[c,d] y) { y = GatherElements(x, i) }", {"x": X, "i": np.zeros((5, 2), np.int64)}),
    ("(float[1,1,4,4] x) => (float[1,1,a,b] y) { y = AveragePool<kernel_shape=[6,6],pads=[1,1,1,1]>(x) }", {"x": WIDE}),
    ("(float[3,4] x, int64 i) => (seq(float[3,4]) y) { s = SequenceConstruct(x) y = SequenceInsert(s, x, i) }", {"x": X, "i": np.array(-1)}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "feeds"), ALLOWED)
def test_what_goes_up_to_a_limit_is_computed(workers: Workers, text: str, feeds: dict[str, Any]) -> None:
    seen = workers.observe(NATIVE, program(text), feeds)
    assert seen.outcome == "ok", seen.message
