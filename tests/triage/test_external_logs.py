"""Failure records of other tools: read, bounded, clustered."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from opsieve.gen.errors import BadInput
from opsieve.triage.external.external_logs import read_and_cluster

TRACE = """Traceback (most recent call last):
  File "run.py", line 9, in main
  File "/venv/site-packages/tvm/relax/frontend/onnx/onnx_frontend.py", line {line}, in _impl_v{opset}
{error}
"""


def record(**changes: Any) -> dict[str, Any]:
    base = {
        "backend": "tvm",
        "phase": "import",
        "exc_type": "builtins.KeyError",
        "message": "'num_heads'",
        "op": "A",
    }
    return {**base, "traceback": TRACE.format(line=7, opset=1, error="KeyError: 'num_heads'"), **changes}


def write(path: Path, records: list[Any]) -> Path:
    data = "".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_records_of_one_bug_share_a_cluster(tmp_path: Path, name: str) -> None:
    moved = record(traceback=TRACE.format(line=99, opset=18, error="KeyError: 'num_heads'"))
    found = read_and_cluster(
        write(tmp_path / name, [record(), moved, record(exc_type="TypeError", message="no")])
    )
    first, second, third = found.assignments
    assert first.cluster == second.cluster != third.cluster
    assert [item.index for item in found.assignments] == [0, 1, 2]
    assert first.kind == "error"
    assert "KeyError" in first.title
    assert "onnx_frontend.py" in first.why


def test_bad_lines_are_named_and_keep_their_index(tmp_path: Path) -> None:
    lines = [record(), "{", "[1]", {"backend": "tvm"}, "", '{"message": 3}', record()]
    found = read_and_cluster(write(tmp_path / "a.jsonl", lines))
    assert [item.index for item in found.assignments] == [0, 6]
    assert [number for number, _ in found.skipped] == [2, 3, 4, 6]
    assert all(why for _, why in found.skipped)


def test_crashes_hangs_and_wrong_results_are_told_apart(tmp_path: Path) -> None:
    compared = (
        "\nNot equal to tolerance rtol=0.01, atol=0\nx and y nan location mismatch:\n ACTUAL: array([1.])"
    )
    records = [
        record(signal=11, exc_type="", message="", traceback=""),
        record(timeout=True, message="no answer", traceback=""),
        record(phase="compare", exc_type="builtins.AssertionError", message=compared, traceback=""),
        record(signal=9, exc_type="", message="", traceback=""),
        record(
            exc_type="tvm.error.OpNotImplemented",
            message="The operators are not supported: Foo",
            traceback="",
        ),
    ]
    found = read_and_cluster(write(tmp_path / "a.jsonl", records))
    assert [item.kind for item in found.assignments] == ["crash", "hang", "mismatch", "memory", "unsupported"]


def test_the_caller_who_stumbles_is_no_bug_of_the_compiler(tmp_path: Path) -> None:
    def stumbled(file: str) -> dict[str, Any]:
        trace = f'Traceback (most recent call last):\n  File "{file}", line 3, in host\nTypeError: '
        said = "'int' object is not iterable"
        return record(phase="run", exc_type="TypeError", message=said, traceback=trace + said)

    records = [stumbled("run.py"), stumbled("/venv/site-packages/tvm/relax/expr.py")]
    found = read_and_cluster(write(tmp_path / "a.jsonl", records))
    assert [item.kind for item in found.assignments] == ["environment", "error"]


def test_a_text_log_is_one_failure_or_one_for_each_header(tmp_path: Path) -> None:
    one = TRACE.format(line=3, opset=1, error="ValueError: Dynamic pads of x are odd")
    whole = tmp_path / "whole.log"
    whole.write_text("starting\n" + one)
    (first,) = read_and_cluster(whole).assignments
    assert (first.index, first.kind) == (0, "error")
    assert first.cluster.startswith("tvm-error-")
    parts = tmp_path / "parts.log"
    parts.write_text(
        f"collected 3 items\n=== model 1 ===\n{one}\n=== model 2 ===\nFatal Python error: Segmentation"
        f" fault\n____ model 3 ____\n{one.replace('line 3', 'line 4')}\n=== summary ===\n2 failed\n"
    )
    found = read_and_cluster(parts)
    assert [item.kind for item in found.assignments] == ["error", "crash", "error"]
    assert found.assignments[0].cluster == found.assignments[2].cluster == first.cluster
    assert [why for _, why in found.skipped] == ["it holds no failure"]


def test_a_folder_of_logs_is_read_by_name(tmp_path: Path) -> None:
    for name, error in (("b.log", "KeyError: 'x'"), ("a.txt", "TypeError: no"), ("c.png", "ValueError: no")):
        (tmp_path / name).write_text(TRACE.format(line=3, opset=1, error=error))
    found = read_and_cluster(tmp_path)
    assert ["TypeError" in item.title for item in found.assignments] == [True, False]


def test_a_line_too_long_is_passed_over(tmp_path: Path) -> None:
    found = read_and_cluster(
        write(tmp_path / "a.jsonl", [record(), record(message="x" * (5 << 20)), record()])
    )
    assert [item.index for item in found.assignments] == [0, 2]
    assert [number for number, _ in found.skipped] == [2]


def test_bad_lines_beyond_a_thousand_are_counted(tmp_path: Path) -> None:
    found = read_and_cluster(write(tmp_path / "a.jsonl", [record(), *["{"] * 1500]))
    assert len(found.skipped) == 1001
    assert "500 more" in found.skipped[-1][1]


def test_hostile_values_do_no_harm(tmp_path: Path) -> None:
    values: list[Any] = [
        "\x1b[31m\ud800",
        "a" * 100_000,
        10**30,
        -1,
        None,
        True,
        [],
        {},
        ["Conv"] * 20_000,
        "\u202e",
        "../../x",
    ]
    keys = [
        "backend",
        "phase",
        "exc_type",
        "message",
        "traceback",
        "output",
        "signal",
        "timeout",
        "op",
        "ops",
    ]
    records = [record(**{key: value}) for key in keys for value in values]
    found = read_and_cluster(write(tmp_path / "a.jsonl", records))
    assert len(found.assignments) == len(records)
    for item in found.assignments:
        assert item.title.isprintable()
        assert item.why.isprintable()
        assert len(item.title) <= 120
        assert len(item.cluster) < 100


@pytest.mark.parametrize(
    ("name", "backend"), [("ort", "onnxruntime"), ("PyTorch", "torch"), ("My Compiler!", "my-compiler")]
)
def test_backends_have_one_name(tmp_path: Path, name: str, backend: str) -> None:
    (item,) = read_and_cluster(write(tmp_path / "a.jsonl", [record(backend=name)])).assignments
    assert item.cluster.startswith(f"{backend}-error-")


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"message": "x"}\n' * 9)[:-12])
    for path in (tmp_path / "absent", broken, tmp_path):
        with pytest.raises(BadInput):
            read_and_cluster(path)
