"""A user's own test, `--check`: what is said of one that does not run, and what it may do to its files."""

import hashlib
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import opsieve
from onnx.parser import parse_model

from opsieve.gen.case.case import Case, load
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.view import Subject
from opsieve.gen.model.detached import LEAST
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.script_test import ScriptTest

MODEL = (
    '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { a = Exp (x) y = Tanh (a) }'
)


def small() -> Subject:
    return Subject(parse_model(MODEL), {"x": np.ones(2, np.float32)}, {})


def script(path: Path, text: bytes) -> Path:
    path.write_bytes(text)
    path.chmod(0o755)
    return path


def why(test: ScriptTest, subject: Subject) -> str:
    [result] = test.evaluate([subject])
    return result.why


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"#!/bin/sh\nexit 3\n", "exit code 3"),
        (b"#!/bin/sh\nno_such_tool\n", "no_such_tool"),
        (
            b"#!/bin/sh\necho first >&2; echo 'last words' >&2; echo >&2; exit 1\n",
            "exit code 1: 'last words'",
        ),
        (b"#!/bin/sh\nkill -SEGV $$\n", "signal SIGSEGV"),
        (b"#!/usr/bin/env python3\nraise KeyError('here')\n", "KeyError"),
        (b"#!/usr/bin/env sh\r\nexit 0\n", "exit code 127"),
        (b"#!/bin/sh\nsleep 60\n", "longer than 0.2 s"),
    ],
)
def test_a_check_that_fails_says_how(tmp_path: Path, text: bytes, said: str) -> None:
    seconds = 0.2 if b"sleep" in text else 60.0
    assert said in why(ScriptTest(script(tmp_path / "check", text), seconds), small())


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (b"#!/bin/sh\r\nexit 0\n", 0o755, "carriage return"),
        (b"exit 0\n", 0o755, "#!/bin/sh"),
        (b"#!/no/such/interpreter\n", 0o755, "/no/such/interpreter"),
        (b"#!/bin/sh\n", 0o644, "chmod"),
    ],
)
def test_a_check_that_cannot_be_started_says_what_to_do(
    tmp_path: Path, text: bytes, mode: int, said: str
) -> None:
    path = script(tmp_path / "check", text)
    path.chmod(mode)
    with pytest.raises(BadInput, match=said):
        why(ScriptTest(path), small())


def test_the_answer_of_a_check_that_was_changed_is_not_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(parse_model(MODEL), tmp_path / "m.onnx")
    for needed in ("Exp", "Tanh"):
        check = script(tmp_path / "check", f'#!/bin/sh\ngrep -q {needed} "$1"\n'.encode())
        code, _, err = opsieve("reduce", "m.onnx", "--check", check, "-o", "out", capsys=capsys)
        assert code == 0, err
        assert load(tmp_path / "out").program.operators() == [needed]


def large(tmp_path: Path) -> Subject:
    weights = np.arange(LEAST // 4 + 7, dtype=np.float32)
    model = parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[{weights.size}] x) => (float[{weights.size}] y)'
        "{ y = Add (x, w) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "large.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return OnnxReduction().subject(load_case(tmp_path / "large.onnx", weights))


def load_case(path: Path, values: np.ndarray) -> Case:

    return Case(load_program(path), {"x": np.zeros_like(values)})


def test_data_of_large_tensors_is_written_once_and_a_script_that_truncates_it_harms_nothing(
    tmp_path: Path,
) -> None:
    """The model is what ONNX reads; the file stays the same from run to run, and is made anew once
    damaged.
    """
    subject = large(tmp_path)
    before = hashlib.sha256((tmp_path / "w.bin").read_bytes()).hexdigest()
    log = tmp_path / "log"
    check = script(
        tmp_path / "check",
        f"""#!/bin/sh
ls -i data >> {log}
stat -c %s "$1" >> {log}.size
python3 - "$1" <<'END' || exit 5
import sys, onnx
onnx.checker.check_model(sys.argv[1])
assert len(onnx.load(sys.argv[1]).graph.initializer[0].raw_data) == {LEAST + 28}
END
test -e {tmp_path}/harm && chmod u+w data/* && : > "$(echo data/*)"
exit 0
""".replace("python3", sys.executable).encode(),
    )
    test = ScriptTest(check)
    assert why(test, subject) == ""
    assert why(test, subject) == ""
    first, second = log.read_text().splitlines()
    assert first == second
    assert all(int(size) < 4096 for size in (tmp_path / "log.size").read_text().split())
    (tmp_path / "harm").touch()
    assert why(test, subject) == ""
    (tmp_path / "harm").unlink()
    assert why(test, subject) == ""
    assert hashlib.sha256((tmp_path / "w.bin").read_bytes()).hexdigest() == before
