"""The `opsieve` command: what it prints, what it returns, what it imports."""

import importlib.abc
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import opsieve
from golden import assert_golden, normalised
from models import X, chain
from repository import ROOT, SAMPLES
from slow_params import keep_quick

from opsieve.__main__ import main as start_opsieve, reduce as start_reduce
from opsieve.backends.registry import names, plugin
from opsieve.backends.workers.questions import probe_backend
from opsieve.gen.case.case import open_case, save
from opsieve.gen.errors import format_install_command
from opsieve.triage.corpus.corpus_file import read_bugs
from opsieve.tui.cli import COMMANDS

KEYS = {"model", "target", "verdict", "kind", "stage", "message", "fingerprint", "seconds"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a model of Relu and Tanh and its inputs."""
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(chain("Relu", "Tanh").model)
    np.savez(folder / "inputs.npz", **X)
    return folder


def test_help_imports_no_library() -> None:
    code = (
        "import sys\nfrom opsieve.tui.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nheavy"
        " = {'torch', 'tvm', 'onnxruntime', 'textual', 'onnx', 'numpy', 'z3', 'rich', 'sqlite_utils',"
        " 'git', 'importlib.metadata'}\nprint(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in COMMANDS)


def test_run_imports_no_compiler_into_the_main_process(model: Path) -> None:
    code = (
        f"import sys\nfrom opsieve.tui.cli import main\ntry: main(['run', {str(model)!r}, '-t',"
        " 'onnxruntime', '-t', 'reference'])\nexcept SystemExit: pass\nprint(sorted({'torch', 'tvm',"
        " 'onnxruntime', 'textual', 'onnx.reference'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


TARGETS = [
    "onnxruntime",
    "fake:wrong@Relu>Tanh",
    "fake:error@Tanh",
    "fake:abort@Tanh/run",
    "fake:unsupported@Relu",
    "fake:wrong@Exp",
]


def test_what_run_prints(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [word for target in TARGETS for word in ("-t", target)]
    code, out, err = opsieve("run", model, *options, capsys=capsys)
    assert code == 1
    assert_golden("run.txt", normalised(out + err, CASE=model))


def test_json_keys(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = opsieve("run", model, "-t", "fake:wrong@Relu", "--json", capsys=capsys)
    results: list[dict[str, Any]] = json.loads(out)["results"]
    assert code == 1
    assert set(results[0]) >= KEYS
    assert (results[0]["verdict"], results[0]["kind"], results[0]["stage"]) == ("fail", "mismatch", "run")
    assert results[0]["blame"] == "optimiser"
    assert results[0]["fingerprint"].startswith("fake-mismatch-")


def test_a_pass_is_exit_code_0(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert opsieve("run", model, capsys=capsys)[0] == 0


def test_expected_outputs_and_a_tolerance_of_ones_own(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = np.tanh(np.maximum(X["x"], 0))
    np.savez(tmp_path / "near.npz", y=right + np.float32(5e-4))
    code, out, _ = opsieve("run", model, "--expected", tmp_path / "near.npz", capsys=capsys)
    # the reference agrees with the compiler, not with the file
    assert (code, out.split()[0]) == (
        2,
        "undecided",
    )
    code, out, _ = opsieve("run", model, "--expected", tmp_path / "near.npz", "--atol", "1e-3", capsys=capsys)
    assert (code, out.split()[0]) == (0, "pass")


def test_a_failure_is_saved_as_a_case_that_replays(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, _ = opsieve("run", model, "-t", "fake:error@Relu", "--save", tmp_path / "found", capsys=capsys)
    assert code == 1
    (folder,) = (tmp_path / "found").iterdir()
    told = json.loads((folder / "case.json").read_text())
    assert told["knobs"]["target"] == "fake:error@Relu"
    assert told["knobs"]["OMP_NUM_THREADS"] == "1"
    seen = json.loads(next((folder / "observations").glob("00-*.json")).read_text())
    assert (seen["outcome"], seen["stage"]) == ("error", "compile")
    code, out, _ = opsieve("run", folder, "-t", "fake:error@Relu", capsys=capsys)
    assert (code, out.split()[0]) == (1, "fail")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "no/such/file.onnx"], "no/such/file.onnx"),
        (["run", "MODEL", "-t", "nosuch"], "there is no backend 'nosuch'"),
        (["run", "MODEL", "-t", "onnxruntime:fastest"], "it can be all, layout"),
        (["run", "MODEL", "-t", "onnxruntime==../.."], "is not a target"),
        (["run", "MODEL", "--seconds", "0"], "0<x<=86400"),
        (["run", "MODEL", "--atol", "-1"], "--atol"),
        (["run", "MODEL", "--inputs", "nowhere.npz"], "nowhere.npz"),
        (["run", "MODEL", "--fast"], "No such option"),
        (["run", "MODEL", "--ort-custom-ops", "lib.so"], "-t onnxruntime:custom_ops=VALUE"),
        (["run"], "Missing argument"),
        (["index", "found"], "unexpected extra argument (found); --store DIR names the store"),
        (["walk"], "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_sentence(
    arguments: list[str], told: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = opsieve(*(str(model) if word == "MODEL" else word for word in arguments), capsys=capsys)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1, err
    assert told in err


def test_one_bad_model_does_not_stop_the_others(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    code, out, err = opsieve("run", tmp_path / "bad.onnx", model, capsys=capsys)
    assert code == 2
    assert out.startswith("pass")
    assert "bad.onnx" in err


def test_names_with_control_codes_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a\x1b[31mred\nline.onnx"
    path.write_bytes(chain("Relu").model)
    _, out, err = opsieve("run", path, "-t", "fake:error@Relu", capsys=capsys)
    assert "\x1b[31mred" not in out + err
    assert len(out.splitlines()) == 1


def test_the_hostile_corpus_ends_in_sentences(hostile_corpus: list[tuple[Path, str]]) -> None:
    corpus = [item for item in hostile_corpus if "\0" not in str(item[0])]  # no command line can hold a NUL
    assert len(corpus) >= 200
    command = [sys.executable, "-m", "opsieve", "run", *(str(path) for path, _ in corpus)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    # A flipped bit may make nothing but a newer IR version, which is lowered for every target: that model is
    # judged.
    judged = [str(path) for path, _ in corpus if str(path) in done.stdout]
    assert all(onnx.load(path).ir_version > onnx.IR_VERSION for path in judged)
    assert len(judged) < 5
    assert len(lines) >= len(corpus) - len(judged)
    lines = [line for line in lines if not line.endswith(" s")]
    assert all(line.startswith("opsieve: ") and len(line) < 700 for line in lines)


@pytest.mark.parametrize(
    "named",
    [
        ("onnxruntime", "reference", "openvino", "command", "oracle"),
        pytest.param((), id="all", marks=pytest.mark.slow),
    ],
)
def test_doctor_tells_what_is_there(
    named: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if named:  # each that is installed is imported
        monkeypatch.setattr(probe_backend, "names", lambda: named)
    code, out, _ = opsieve("doctor", "--json", capsys=capsys)
    told = json.loads(out)
    backends = {item["name"]: item for item in told["backends"]}
    assert code == 0
    assert set(told["isolation"]) == {"namespaces", "landlock", "bubblewrap", "memory", "walls", "lacks"}
    assert backends["onnxruntime"]["newest_opset"] >= 20
    assert backends["reference"]["problem"] == ""
    assert backends["openvino"]["install"].endswith("pip install 'opsieve[openvino]'")
    assert not {"command", "oracle"} & {*backends}
    assert told["oracles"] == []


def test_an_install_command_reaches_the_environment_of_opsieve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "uv tools" / "bin"
    for folder in (home, tmp_path / "other"):
        folder.mkdir(parents=True)
        (folder / "pip").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(home / "python"))
    monkeypatch.setenv("PATH", str(home))
    assert format_install_command("opsieve[tvm]") == "pip install 'opsieve[tvm]'"
    # After `uv tool install` or `pipx install`, the shell's pip is another environment's.
    for path in (tmp_path / "other", tmp_path):
        monkeypatch.setenv("PATH", str(path))
        assert format_install_command("uv") == f"'{home / 'python'}' -m pip install uv"


def test_a_line_of_doctor_in_a_pipe_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(probe_backend, "names", lambda: ("fake",))
    code, out, _ = opsieve("doctor", capsys=capsys)
    (line,) = (line for line in out.splitlines() if line.startswith("Pythons for old releases"))
    assert (code, line[-1], [each for each in out.splitlines() if each != each.rstrip()]) == (0, ".", [])


def test_doctor_says_how_to_install_each_compiler_that_is_no_part_of_the_base() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    by_name = {name: plugin(name).facts.extra for name in names()}
    assert {*filter(None, by_name.values())} <= {*extras}
    own = {"checker", "reference", "fake", "command", "oracle", "onnxruntime"}
    in_onnx = {"compose", "extractor", "inliner", "shape-inference", "version-converter"}
    in_onnxruntime = {"float16", "quantization", "saved"}
    base = {*own, *(f"onnx-{part}" for part in in_onnx), *(f"onnxruntime-{part}" for part in in_onnxruntime)}
    assert {name for name, extra in by_name.items() if not extra} == base


def test_a_folder_of_models_is_judged_model_by_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("c", "a"):
        (tmp_path / f"{name}.onnx").write_bytes(chain("Relu").data)
    # `gen -o` writes such a folder.
    save(open_case(tmp_path / "a.onnx"), tmp_path / "b")
    # ONNX's own test data are folders with a model and data sets.
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "model.onnx").write_bytes(chain("Relu").data)
    (tmp_path / "notes").mkdir()
    code, out, _ = opsieve("run", tmp_path, "-t", "fake", capsys=capsys)
    assert code == 0
    assert re.findall(r"(\w)(?:\.onnx)?  agrees", out) == ["a", "b", "c", "d"]


def test_a_table_in_a_pipe_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    code, out, _ = opsieve("sample", capsys=capsys)
    lines = out.splitlines()
    names = set(read_bugs(SAMPLES))
    assert (code, {line.split()[0] for line in lines[1:]}) == (0, names)
    assert "…" not in out
    assert lines == [line.rstrip() for line in lines]


def test_a_message_shows_a_name_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = opsieve("run", "modèle 模型\x1b[2J\u202e\udcff.onnx", capsys=capsys)
    assert (code, err.partition(".onnx")[0]) == (2, "opsieve: cannot read 'modèle 模型\\x1b[2J\\u202e\\udcff")


def test_an_empty_target_is_not_the_default(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "reduce", "export", "attribute", "bisect"):
        code, _, err = opsieve(command, model, "-t", "", capsys=capsys)
        assert (code, err.startswith("opsieve: '' is not a target: ")) == (2, True), (command, err)


@pytest.mark.parametrize("variable", keep_quick(["", "NO_COLOR=1", "TERM=dumb"], 2))
def test_color_is_for_terminals_that_want_it(model: Path, variable: str) -> None:
    name, _, value = variable.partition("=")
    environment = {key: word for key, word in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    main, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "opsieve", "run", model, "-t", "fake"],
        env={**environment, "TERM": "xterm", **({name: value} if name else {})},
        stdout=terminal,
    ) as process:
        os.close(terminal)
        shown = b"".join(iter(lambda: read_terminal(main), b""))
        assert process.wait() == 0
    os.close(main)
    assert (b"\x1b[" in shown) == (not variable)


def read_terminal(descriptor: int) -> bytes:
    """Read what is there; the end of a terminal is an error on Linux."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


def test_ctrl_c_while_commands_are_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name.startswith("opsieve.tui.c"):
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    for name in [name for name in sys.modules if name.startswith("opsieve.tui")]:
        monkeypatch.delitem(sys.modules, name)
    for start, program in ((start_opsieve, "opsieve"), (start_reduce, "reduce")):
        with pytest.raises(SystemExit) as ended:
            start()
        assert (ended.value.code, capsys.readouterr().err) == (130, f"{program}: Interrupted.\n")


def test_ctrl_c_waits_until_a_c_extension_is_loaded() -> None:
    script = """
import _imp, os, signal, sys
create = _imp.create_dynamic
def create_interrupted(*given):
    os.kill(os.getpid(), signal.SIGINT)
    made = create(*given)
    print("loaded", file=sys.stderr)
    return made
_imp.create_dynamic = create_interrupted
sys.argv = ["opsieve", "run", "model.onnx"]
from opsieve.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "loaded\nopsieve: Interrupted.\n")


def test_ctrl_c_while_python_ends_leaves_the_exit_code() -> None:
    """The C library calls what was given to `__cxa_atexit` after Python has given signals their default
    actions back.
    """
    script = f"""
import ctypes, sys
library = ctypes.CDLL(None)
library.__cxa_atexit(library["raise"], ctypes.c_void_p({int(signal.SIGINT)}), None)
sys.argv = ["opsieve", "targets", "--no-such-option"]
from opsieve.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
