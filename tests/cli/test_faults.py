"""What no handler expects is a fault of opsieve: a sentence, a report, exit code 70."""

import contextlib
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from commands import opsieve as command_line

from opsieve.tui import fault_report
from opsieve.tui.cli import run_command

_BROKEN = """
import sys
from opsieve.tui.commands.maintain import init_command
def fail(**_): {statement}
init_command.sample.callback = fail
from opsieve.tui.cli import main
main()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _raised(error: BaseException, *arguments: str) -> int:
    """The exit code of a command that raises."""

    @click.command()
    @click.argument("words", nargs=-1)
    def failing(words: tuple[str, ...]) -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_command(failing, "opsieve", arguments)
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError("deep"), MemoryError(), AssertionError("no")]
)
def test_a_fault_is_a_sentence_a_report_and_exit_code_70(
    error: Exception, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _raised(error, "a model.onnx") == 70
    out, err = capsys.readouterr()
    (report,) = (cache / "opsieve" / "faults").iterdir()
    assert out == ""
    assert err.startswith(
        f"opsieve: this is a fault of opsieve ({type(error).__name__}); a report is in {report}. "
    )
    assert "https://" in err
    assert len(err.splitlines()) == 1
    text = report.read_text()
    assert "opsieve 'a model.onnx'" in text
    assert "raise error" in text
    assert f"{type(error).__name__}" in text.splitlines()[-1]
    assert {"opsieve", "onnx", "numpy", "Python"} <= {
        line.split()[0] for line in text.splitlines() if line.split()
    }
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert stat.S_IMODE(report.parent.stat().st_mode) == 0o700


def test_a_wrapped_ctrl_c_is_no_fault(cache: Path) -> None:
    error = RuntimeError("Error calling __set_name__")
    error.__cause__ = KeyboardInterrupt()
    assert _raised(error) == 130
    assert not cache.exists()


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (click.Abort(), 130), (OSError("full"), 2)]
)
def test_what_has_a_handler_is_no_fault(error: BaseException, code: int, cache: Path) -> None:
    assert _raised(error) == code
    assert not cache.exists()


def test_a_report_is_bounded_and_cannot_control_a_terminal(cache: Path) -> None:
    assert (
        _raised(ValueError("\x1b[31m\x9b2J\r" + "long" * 1_000_000 + " the end"), "\x1b[0m" * 100_000) == 70
    )
    (report,) = (cache / "opsieve" / "faults").iterdir()
    text = report.read_text()
    assert len(text) < 120_000
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "characters left out" in text
    assert text.endswith(" the end\n")


def test_only_the_newest_reports_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_report, "_list_versions", list)  # thirty times the same, and slow
    folder = cache / "opsieve" / "faults"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("not a report")
    for number in range(30):
        report = fault_report.write_report(ValueError(str(number)), ["opsieve"])
        os.utime(report, ns=(number, number))
    kept = {path.read_text().split()[-1] for path in folder.glob("fault-*.txt")}
    assert kept == set(map(str, range(10, 30)))
    assert (folder / "mine.txt").exists()


def test_a_report_that_cannot_be_written_is_printed(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.write_text("no folder")
    assert _raised(KeyError("x")) == 70
    err = capsys.readouterr().err
    assert "no report could be written (" in err.splitlines()[0]
    assert "raise error" in err


def test_a_fault_of_a_process(cache: Path) -> None:
    code = _BROKEN.format(statement="raise TypeError('wrong')")
    done = subprocess.run([sys.executable, "-c", code, "sample"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (70, "")
    (report,) = (cache / "opsieve" / "faults").iterdir()
    assert str(report) in done.stderr
    assert "Traceback" not in done.stderr
    assert "opsieve sample" in report.read_text()


def test_a_command_whose_output_is_closed_ends_as_it_should(cache: Path) -> None:
    line = "exec \"$0\" -c 'from opsieve.tui.cli import main; main()' --version >&-"
    done = subprocess.run(["sh", "-c", line, sys.executable], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bad_usage_is_no_fault(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line("sample", "nosuch", capsys=capsys)[0] == 2
    assert not cache.exists()


def test_a_fault_that_ends_the_terminal_app_is_one_too(cache: Path, tmp_path: Path) -> None:
    code = (
        "from opsieve.tui.app.app import OpsieveApp\n"
        "def fail(self): raise TypeError('wrong')\n"
        "OpsieveApp.on_mount = fail\n"
        "from opsieve.tui.cli import main\n"
        "main()\n"
    )
    terminal, side = pty.openpty()
    command = [sys.executable, "-c", code, "tui", str(tmp_path / "store")]
    with subprocess.Popen(
        command, stdin=side, stdout=side, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as app:
        os.close(side)
        with os.fdopen(terminal, "rb", buffering=0) as screen:
            with contextlib.suppress(OSError):  # EIO: the other end is closed
                while screen.read(1 << 16):
                    pass
            assert app.stderr is not None
            err = app.stderr.read()
            assert app.wait(60) == 70
    (report,) = (cache / "opsieve" / "faults").iterdir()
    assert "this is a fault of opsieve (TypeError)" in err
    assert "Traceback" not in err
    assert "in fail" in report.read_text()
