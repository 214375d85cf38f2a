"""A program of the user's as a compiler: what it is given and gives, how it ends, who may name it; the
example of its page.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from commands import opsieve
from plugged import blocks
from repository import ROOT

from opsieve.backends.registry import compilers, resolve
from opsieve.backends.releases.builds import allow, unstated_version
from opsieve.backends.target import BadTarget, Target
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, save
from opsieve.gen.irs.onnx.program import OnnxProgram

PAGE = ROOT / "docs" / "how-to" / "use-a-command.md"
PLACES = "{model} {inputs} {outputs}"
# An identity of two inputs that are told apart by their places; its first argument says how it ends.
ENDS = """#!/bin/sh
case $1 in
segv) echo "lost in fold_constants" >&2; sh -c 'kill -SEGV $$' ;;
abort) kill -ABRT $$ ;;
error) echo "fold_constants: assertion failed" >&2; exit 3 ;;
lacking) exit 77 ;;
invalid) exit 65 ;;
nothing) exit 0 ;;
damaged) echo no array > "$4/output_0.npy" ;;
hang) while :; do :; done ;;
home) ls SECRET && exit 9; cp "$3/input_1.npy" "$4/output_0.npy" ;;
*) [ -s "$2" ] && cp "$3/input_1.npy" "$4/output_0.npy" && touch "$4/../../note" ;;
esac
"""
TEXT = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, float[2] y) => (float[2] z) { z = Max(x, y) }""")
MODEL = OnnxProgram(TEXT.SerializeToString())
INPUTS = {"x": np.array([-1, 2], np.float32), "y": np.array([3, 4], np.float32)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the program, in which the test stands; what is named is remembered in a store of its
    own.
    """
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "releases"))
    place = tmp_path / "the program"
    place.mkdir()
    (place / "ends.sh").write_text(ENDS.replace("SECRET", str(tmp_path / "secret")))
    (place / "ends.sh").chmod(0o755)
    monkeypatch.chdir(place)
    return place


def test_how_a_program_ends_is_what_was_seen(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    ends = {
        "well": ("ok", "", 0),
        "segv": ("crash", "", signal.SIGSEGV),
        "abort": ("crash", "", signal.SIGABRT),
        "error": ("error", "exit code 3: fold_constants: assertion failed", 0),
        "lacking": ("unsupported", "exit code 77", 0),
        "invalid": ("rejected", "exit code 65", 0),
        "nothing": ("error", "output_0.npy cannot be read: it is not there", 0),
        "damaged": ("error", "output_0.npy cannot be read", 0),
        "home": ("ok", "", 0),  # what is not named to the sandbox is not there
        "hang": ("hang", "no answer within 1 s", 0),
    }
    with Workers(Limits(seconds=1)) as workers:
        for how, (outcome, message, killed) in ends.items():
            target = resolve(f"command:./ends.sh {how} {PLACES}")
            allow(target)
            seen = workers.observe(target, MODEL, INPUTS)
            assert (seen.outcome, seen.signal) == (outcome, killed), (how, seen)
            assert message in seen.message
            assert outcome != "ok" or (seen.outputs is not None and seen.outputs["z"].tolist() == [3, 4])
            assert how != "segv" or "lost in fold_constants" in seen.log
        assert seen.version.startswith("build.")
        assert not unstated_version(seen.version)


def test_values_that_npy_does_not_carry_go_as_tensorproto(folder: Path) -> None:
    text = '<ir_version: 9, opset_import: ["" : 19]> g (bfloat16[2] x) => (bfloat16[2] y) { y = Identity(x) }'
    program = OnnxProgram(onnx.parser.parse_model(text).SerializeToString())
    from ml_dtypes import bfloat16

    given = {"x": np.array([1, -2], bfloat16)}
    with Workers() as workers:
        for places, outcome in (("{inputs} {outputs}", "unsupported"), ("{inputs:pb} {outputs:pb}", "ok")):
            target = resolve(f"command:sh -c 'cp $1/input_0.pb $2/output_0.pb' {{model}} {places}")
            allow(target)
            seen = workers.observe(target, program, given)
            assert seen.outcome == outcome, seen.message
        assert seen.outputs is not None
        assert seen.outputs["y"].tolist() == [1, -2]


def test_words_are_kept_and_wrong_commands_are_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = str(resolve(f"command:./ends.sh 'a, b' --x=1:2 ends.sh none/such {PLACES}"))
    script = shlex.quote(str(folder / "ends.sh"))
    assert text == f"command:{script} 'a, b' --x=1:2 {script} none/such {PLACES}"
    assert str(resolve(text)) == text == str(Target.parse(text))
    rewritten = resolve(text).with_options(rewrite="duplicate")
    assert resolve(str(rewritten)) == rewritten != rewritten.unrewritten == resolve(text)
    assert "command" not in compilers()
    for wrong, why in {
        "command": "a command needs a program",
        "command:./ends.sh {model}": "no {inputs} and no {outputs}: write command:PROGRAM",
        f"command:./ends.sh {{input}} {PLACES}": "'{input}', an unknown placeholder",
        f"command:'./ends.sh {PLACES}": "no closing quotation",
        f"command:{PLACES}": "begins with no program",
        "command==1.0": "command has no releases",
        "onnxruntime:levle=all": "; did you mean level?",
        "onnxruntime:basc": "; did you mean basic?",
    }.items():
        with pytest.raises(BadTarget, match=re.escape(why)):
            resolve(wrong)
    Path("m.onnx").write_bytes(TEXT.SerializeToString())
    for wrong, why in {
        f"command:./none {PLACES}": "nothing is there",
        f"command:none-such {PLACES}": "is not on PATH",
        f"command:./m.onnx {PLACES}": "is not an executable file",
    }.items():
        code, _, err = opsieve("run", "m.onnx", "-t", wrong, capsys=capsys)
        assert code == 2
        assert why in err
        assert len(err.splitlines()) == 1


def test_a_command_runs_only_where_it_was_typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"command:./ends.sh error {PLACES}"
    case = folder / "case"
    save(Case(MODEL, INPUTS, parameters={"target": str(resolve(command))}), case)
    for words in (["reduce", case], ["export", case], ["attribute", case]):
        code, _, err = opsieve(*words, capsys=capsys)
        assert code == 2
        assert "was never named on the command line" in err
    Path("opsieve.toml").write_text(f'[run]\ntarget = ["{command}"]\n')
    code, _, err = opsieve("run", case, capsys=capsys)
    assert code == 2
    assert "opsieve.toml names the command" in err
    Path("opsieve.toml").unlink()
    code, out, _ = opsieve("run", case, "-t", command, capsys=capsys)
    assert code == 1
    assert "exit code 3: fold_constants: assertion failed" in out
    code, out, err = opsieve("export", case, "-o", "repro.py", capsys=capsys)
    assert code == 0, err
    done = subprocess.run([sys.executable, "repro.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "BUG: CalledProcessError" in done.stdout, done.stdout + done.stderr
    assert "built-in" not in done.stdout
    Path("ends.sh").rename("moved.sh")
    done = subprocess.run([sys.executable, "repro.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("cannot run: there is no program "), done.stdout + done.stderr


# Quick: how a program ends, above; run to corpus diff of a command in the chain (command-wrong).
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++, which builds the page's compiler")
def test_the_example_of_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (ROOT / "samples" / "tiny.cpp").read_text()
    (shown,) = blocks(PAGE, "cpp")
    assert shown in source
    Path("tiny.cpp").write_text(source)
    (script,) = blocks(PAGE, "sh")
    built, model, commands = script.partition("opsieve run")[0], "", script.partition("opsieve run")[2]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", built + model], check=True, env=environment)
    run, reduce, export, fuzz = (shlex.split(line) for line in f"opsieve run{commands}".splitlines())
    code, out, _ = opsieve(*run[1:], capsys=capsys)
    assert code == 1
    assert "wrong output 'z': got" in out
    assert "pass        onnxruntime" in out
    code, out, _ = opsieve(*reduce[1:], capsys=capsys)
    assert code == 0
    assert "y = Relu (a)" in out
    assert "Neg" not in out
    code, _, err = opsieve(*export[1:], capsys=capsys)
    assert code == 0, err
    done = subprocess.run([sys.executable, "repro.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "BUG: AssertionError" in done.stdout, done.stdout + done.stderr
    assert "output 'y'" in done.stdout
    code, out, _ = opsieve(*fuzz[1:], "--seed", "1", capsys=capsys)
    assert "unsupported" in out
    assert "40 tests" in out
