"""Components as text and back, and the levels at which two failures are one."""

import pytest

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.triage.fingerprint.component import (
    ComponentName,
    decode_component,
    encode_component,
    make_component,
)
from opsieve.triage.fingerprint.fingerprint import Fingerprint, make_fingerprint
from opsieve.triage.fingerprint.sameness import Level, get_trait, is_same
from opsieve.triage.store.failure_record import parse_components


def error(message: str, function: str = "fuse", stage: str = "compile", line: int = 7) -> Fingerprint:
    frames = (Frame("python", function, "/site-packages/tvm/passes.py", line),)
    seen = Observation("tvm", "", "error", stage, exception="ValueError", message=message, frames=frames)  # type: ignore[arg-type]
    return make_fingerprint(Verdict("fail", "", "error", stage, message), seen, ["Relu"])  # type: ignore[arg-type]


def broken(objection: str) -> Fingerprint:
    message = f"onnx.checker accepts the original and refuses the transformed model: {objection}"
    seen = Observation("onnxscript", "", "error", "compile", exception="BrokenModel", message=message)
    return make_fingerprint(Verdict("fail", "", "error", "compile", message), seen, ["Conv"])


def wrong(what: str) -> Fingerprint:
    seen = Observation("tvm", "", "ok", "run", outputs={"y": None})
    return make_fingerprint(Verdict("fail", "", "mismatch", mismatch=Mismatch("y", what)), seen, ["Relu"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("a", "b", "level", "wanted"),
    [
        (error("no room"), error("no air", "fold"), "loose", True),
        (error("no room"), error("no room", stage="run"), "loose", False),
        (wrong("value"), wrong("nan"), "loose", True),
        (wrong("value"), wrong("shape"), "loose", False),
        (wrong("value"), wrong("nan"), "fingerprint", False),
        (error("no room here"), error("no air here"), "release", True),
        (error("no room here"), error("no air here"), "fingerprint", False),
        (error("no room"), error("no room", "fold"), "release", False),
        (broken("not sorted"), broken("(op_type:Conv): other shapes"), "release", False),
        (broken("(op_type:Conv)"), broken("(op_type:Conv, node name: node)"), "release", True),
        (broken("no opset"), broken("two nodes of one name (h_cast)"), "fingerprint", False),
        (
            broken("two nodes of one name (x_cast_0)"),
            broken("two nodes of one name (input_cast_0_cast)"),
            "fingerprint",
            True,
        ),
        (error("no room"), error("no room", line=8), "fingerprint", True),
        (error("no room"), error("no room", line=8), "cure", True),
    ],
)
def test_a_level_compares_what_its_table_says(
    a: Fingerprint, b: Fingerprint, level: Level, wanted: bool
) -> None:
    assert is_same(a, b, level) is wanted


def test_the_name_of_a_signal_is_no_place() -> None:
    """A release without symbols says only how it died, which must not look like another failure."""
    seen = Observation("tvm", "", "crash", "compile", message="Segmentation fault", signal=11)  # type: ignore[arg-type]
    verdict = Verdict("fail", "", "crash", "compile", seen.message)  # type: ignore[arg-type]
    assert get_trait(make_fingerprint(verdict, seen, ["Relu"])) == "crash compile SIGSEGV"


def test_components_are_read_back_as_they_were() -> None:
    found = error("no room for a Relu of 3")
    large = make_component(
        ComponentName.OPERATORS,
        [f"Op{n}" for n in range(9)],
        False,
        "9 different operators",
        needs_reduction=True,
    )
    for part in (*found.components, large):
        assert decode_component(encode_component(part)) == part
    assert found.find_component(ComponentName.FRAMES).items == ("passes.py fuse",)  # type: ignore[union-attr]


def test_an_older_file_says_in_words_that_a_graph_is_too_large() -> None:
    said = {
        "name": "operators",
        "value": "Add Relu",
        "kept": False,
        "hint": "7 different operators: reduce the program first",
    }
    other = {"name": "operators", "value": "Add Relu", "kept": False, "hint": "frames or message tell more"}
    assert [part.needs_reduction for part in parse_components([said, other])] == [True, False]


def test_what_is_no_component_is_left_out() -> None:
    assert (
        parse_components([{"name": "nonsense", "value": "", "kept": True, "hint": ""}, {}, {"name": "kind"}])
        == ()
    )
