"""Titles of failures, and what a guilty pass makes of the fingerprint of a wrong result."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.triage.clustering.clusters import make_alternative_titles
from opsieve.triage.fingerprint.component import NOTHING, Evidence, Signature
from opsieve.triage.fingerprint.fingerprint import Fingerprint, make_fingerprint, make_title
from opsieve.triage.fingerprint.stack import read_stack


def wrong(evidence: Evidence = NOTHING, operators: Sequence[str] = ("Conv", "Pad", "Relu")) -> Fingerprint:
    observation = Observation("onnxruntime", "1", "ok", outputs={"y": np.zeros(1, np.float32)})
    verdict = Verdict("fail", "", "mismatch", mismatch=Mismatch("y", "value"), blame="optimiser")
    return make_fingerprint(verdict, observation, operators, evidence)


def test_before_reduction_the_guilty_pass_says_more_than_the_operators() -> None:
    fused, folded = (Evidence(guilty_passes=(name,)) for name in ("fuse", "fold"))
    assert wrong(fused, ("Add", "Pad")).key == wrong(fused, ("Conv",)).key
    assert make_title(wrong(fused, ("Add", "Pad"))) == "wrong values by pass fuse (float)"
    # One pass may be wrong for each operator that its name names.
    pooled = Evidence(guilty_passes=("fuse_pad_into_pool",))
    assert wrong(pooled, ("Add", "MaxPool")).key == wrong(pooled, ("Conv", "MaxPool")).key
    assert wrong(pooled, ("Add", "MaxPool")).key != wrong(pooled, ("Add", "AveragePool")).key
    assert make_title(wrong(pooled, ("Add", "MaxPool"))) == (
        "wrong values of MaxPool by pass fuse_pad_into_pool (float)"
    )
    assert wrong(fused).key != wrong(folded).key
    assert wrong(NOTHING, ("Add", "Pad")).key != wrong(NOTHING, ("Conv",)).key
    small = [replace(fused, signature=Signature((name,), (f">{name}",))) for name in ("Add", "Conv")]
    assert wrong(small[0]).key != wrong(small[1]).key


def broken(name: str, said: str, evidence: Evidence) -> Fingerprint:
    seen = Observation("onnxoptimizer", "1", "error", "compile", exception="BrokenModel", message=said)
    small = replace(evidence, signature=Signature((name,), ()))
    return make_fingerprint(Verdict("fail", "", "error", "compile", said), seen, (name,), small)


def test_one_pass_that_breaks_models_in_one_way_is_one_bug_whatever_the_operators() -> None:
    def is_joined(*evidence: Evidence) -> bool:
        one, other = (
            make_alternative_titles(
                broken(name, f"onnx.checker refuses: Field 'type{at}' is bad", each).components
            )
            for at, (name, each) in enumerate(
                zip(("SequenceErase", "SplitToSequence"), evidence, strict=True)
            )
        )
        return not one.isdisjoint(other)

    fused, folded = (Evidence(guilty_passes=(name,)) for name in ("fuse", "fold"))
    unnamed = Evidence(cure=("level=none",))
    assert [is_joined(each, each) for each in (fused, unnamed, NOTHING)] == [True, True, False]
    assert not is_joined(fused, folded)


@pytest.mark.parametrize(
    ("said", "title"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Attention node."
            " Name:'a' Status Message: past_key is missing",
            "Fail in Attention: past_key is missing",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Load model failed: FAIL: no shape",
            "Fail with Attention: Load model failed: FAIL: no shape",
        ),
    ],
)
def test_a_title_says_what_is_wrong_before_it_is_cut(said: str, title: str) -> None:
    seen = Observation("onnxruntime", "", "error", "run", exception="Fail", message=said)
    verdict = Verdict("fail", "", "error", "run", said)
    assert make_title(make_fingerprint(verdict, seen, ("Attention",))) == title


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("'num_heads'", "a key is missing"),
        ("(1, 'a')", "a key is missing"),
        ("5", "a key is missing"),
        ("", "a key is missing"),
        ("<Op.ADD: 3>", "<Op.ADD: <n>>"),
        ("no kernel is there", "no kernel is there"),
    ],
)
def test_a_title_says_that_a_key_is_missing_where_the_message_is_only_the_key(said: str, wrong: str) -> None:
    seen = Observation("onnxruntime", "", "error", "run", exception="KeyError", message=said)
    verdict = Verdict("fail", "", "error", "run", said)
    assert make_title(make_fingerprint(verdict, seen, ("Attention",))) == f"KeyError with Attention: {wrong}"


@pytest.mark.parametrize(
    "root",
    [
        "/home/u/.cache/opsieve/releases/onnxslim-0.1.50",
        "/home/u/opsieve/.venv/site-packages",
        "/numpy/site-packages",
    ],
)
def test_folders_above_a_compiler_do_not_make_its_frames_uninteresting(root: str) -> None:
    found = read_stack((Frame("python", "fuse", f"{root}/onnxslim/core/fuse.py", 3),), 3, package="onnxslim")
    assert found.names == ("fuse.py fuse",)


@pytest.mark.parametrize(
    "file",
    [
        "/venv/site-packages/opsieve/backends/workers/inside/child.py",
        "/src/opsieve/gen/irs/ir.py",
        "/venv/site-packages/numpy/core.py",
    ],
)
def test_frames_of_the_caller_are_uninteresting(file: str) -> None:
    assert read_stack((Frame("python", "run_it", file, 3),), 3, package="onnxslim").names == ()


@pytest.mark.parametrize(
    ("operators", "title"),
    [(("Conv", "Pad"), "SIGSEGV with Conv Pad"), (tuple("ABCDEFG"), "SIGSEGV")],
    ids=["counted", "too many to count"],
)
def test_a_crash_without_a_frame_is_told_by_the_operators_that_count(
    operators: tuple[str, ...], title: str
) -> None:
    seen = Observation("command", "", "crash", "run", signal=11)
    verdict = Verdict("fail", "", "crash", "run", "SIGSEGV")
    assert make_title(make_fingerprint(verdict, seen, operators)) == title
