"""Failure records of other tools: read, bounded, clustered."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from opsieve.gen.bad_input import BadInput
from opsieve.triage.foreign_logs import read_and_cluster

TRACE = """Traceback (most recent call last):
  File "run.py", line 9, in main
  File "/venv/site-packages/tvm/relax/frontend/onnx/onnx_frontend.py", line {line}, in _impl_v{opset}
{error}
"""


def record(**changes: Any) -> dict[str, Any]:
    base = {"backend": "tvm", "phase": "import", "exc_type": "builtins.KeyError", "message": "'num_heads'", "op": "A"}
    return {**base, "traceback": TRACE.format(line=7, opset=1, error="KeyError: 'num_heads'"), **changes}


def write(path: Path, records: list[Any]) -> Path:
    data = "".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_records_of_one_bug_share_a_cluster(tmp_path: Path, name: str) -> None:
    moved = record(traceback=TRACE.format(line=99, opset=18, error="KeyError: 'num_heads'"))
    found = read_and_cluster(write(tmp_path / name, [record(), moved, record(exc_type="TypeError", message="no")]))
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
    compared = "\nNot equal to tolerance rtol=0.01, atol=0\nx and y nan location mismatch:\n ACTUAL: array([1.])"
    records = [
        record(signal=11, exc_type="", message="", traceback=""),
        record(timeout=True, message="no answer", traceback=""),
        record(phase="compare", exc_type="builtins.AssertionError", message=compared, traceback=""),
        record(signal=9, exc_type="", message="", traceback=""),
        record(exc_type="tvm.error.OpNotImplemented", message="The operators are not supported: Foo", traceback=""),
    ]
    found = read_and_cluster(write(tmp_path / "a.jsonl", records))
    assert [item.kind for item in found.assignments] == ["crash", "hang", "mismatch", "memory", "unsupported"]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"message": "x"}\n' * 9)[:-12])
    for path in (tmp_path / "absent", broken, tmp_path):
        with pytest.raises(BadInput):
            read_and_cluster(path)
