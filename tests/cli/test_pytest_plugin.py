"""The pytest plug-in: the test file that its page shows, run by pytest in a folder of its own."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from models import X, chain
from repository import ROOT

from opsieve.gen.case.case import Case, save

PAGE = ROOT / "docs" / "reference" / "api.md"
PLUGIN = "opsieve.tui.pytest_plugin"


def replayed(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """pytest on a folder with nothing but the plug-in loaded."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        PLUGIN,
        "-p",
        "no:cacheprovider",
        "-rA",
        *arguments,
        str(folder),
    ]
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
        "COLUMNS": "300",
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def replayed_here(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """The same in this process, where compilers have been started: exit code and what is printed."""

    def replay(folder: Path, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        monkeypatch.setenv("COLUMNS", "300")
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        options = ["-p", PLUGIN, "-p", "no:cacheprovider", "-p", "no:faulthandler", "-rA"]
        with monkeypatch.context() as patch:
            for name in [name for name in sys.modules if name.startswith("test_")]:
                patch.delitem(sys.modules, name)
            code = pytest.main([*options, *arguments, "--rootdir", str(folder), str(folder)])
        return int(code), capfd.readouterr().out

    return replay


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """The test file of the page, and beside it two cases and a model."""
    (block,) = re.findall(r"```python\n(import pytest\n.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "test_cases.py").write_text(block.replace('"onnxruntime"', '"fake:crash@Relu>Clip"'))
    save(Case(chain("Exp", "Relu", "Clip"), X), tmp_path / "cases" / "clips" / "1")
    save(Case(chain("Relu"), X), tmp_path / "cases" / "clips" / "1" / "reduced")  # belongs to the case
    save(Case(chain("Relu", "Exp"), X), tmp_path / "cases" / "exp")
    (tmp_path / "cases" / "tanh.onnx").write_bytes(chain("Tanh").data)
    return tmp_path


def test_a_folder_of_cases_is_a_test_for_each(suite: Path) -> None:
    done = replayed(suite)
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"^(PASSED|FAILED) test_cases\.py::test_case\[([^\]]+)\]", done.stdout, re.MULTILINE)
    assert sorted(found) == [("FAILED", "clips/1"), ("PASSED", "exp"), ("PASSED", "tanh.onnx")]
    assert "fake:crash@Relu>Clip: fail (crash at compile)" in done.stdout
    script = re.search(r"script: (\S+repro\.py)", done.stdout)
    assert script is not None
    assert Path(script[1]).is_file()
    assert "tui/api.py" not in done.stdout  # the reader's own line is shown, not ours


@pytest.mark.slow(seconds=3)
def test_the_command_line_names_another_compiler(
    suite: Path, replayed_here: Callable[..., tuple[int, str]]
) -> None:
    targets = ("--opsieve-target", "fake:error@Exp", "--opsieve-target", "fake")
    _, out = replayed_here(suite, *targets, "-k", "exp or tanh")
    assert "1 failed, 1 passed" in out
    assert "fake:error@Exp: fail (error at" in out
    assert "on 1 of 2 targets" in out


def test_a_case_that_is_not_judged_neither_passes_nor_is_skipped(
    suite: Path, replayed_here: Callable[..., tuple[int, str]]
) -> None:
    code, out = replayed_here(
        suite, "--opsieve-target", "fake:unsupported", "--opsieve-target", "fake", "-k", "tanh"
    )
    assert (code, "1 failed" in out, "fake:unsupported: unsupported: " in out) == (1, True, True)


def test_what_would_test_nothing_is_an_error(
    tmp_path: Path, replayed_here: Callable[..., tuple[int, str]]
) -> None:
    wrong = {
        "": "opsieve_case needs the marker",
        "@pytest.mark.opsieve_cases('nowhere')\n": "holds no case",
        "@pytest.mark.opsieve_cases('.', targets='onnxruntime')\n": "targets is a list",
    }
    for at, marker in enumerate(wrong):
        (tmp_path / f"test_{at}.py").write_text(f"import pytest\n{marker}def test_it(opsieve_case): pass\n")
    code, out = replayed_here(tmp_path)
    assert code == 2
    for at, sentence in enumerate(wrong.values()):
        (said,) = re.findall(
            rf"^_+ ERROR collecting test_{at}\.py _+$(.*?)^(?:_|=)", out, re.MULTILINE | re.DOTALL
        )
        assert sentence in said
    assert "Traceback" not in out


def test_a_package_brings_the_plug_in_and_loading_it_is_light() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"opsieve": PLUGIN}
    code = f"import sys, {PLUGIN}\nprint(sorted({{'onnx', 'numpy', 'click', 'rich'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_target_that_does_not_exist_is_one_sentence(suite: Path) -> None:
    done = replayed(suite, "--opsieve-target", "onnxruntim")
    assert done.returncode == 4
    assert done.stderr.startswith("ERROR: --opsieve-target: there is no backend 'onnxruntim'")
    assert "Traceback" not in done.stdout + done.stderr
