"""What `opsieve tui` costs before it shows anything, and that nobody else pays for it."""

import subprocess
import sys

import pytest

HEAVY = ("onnx", "numpy", "sqlite_utils", "z3", "onnx_ir", "git")


def loaded(source: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{source}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "source",
    [
        "import opsieve.tui.cli",
        (
            "from opsieve.tui.cli import opsieve\nfor name in opsieve.list_commands(None):"
            " opsieve.get_command(None, name)"
        ),
        "import opsieve.tui.commands.examine.reduce_command, opsieve.reducer.sessions.session",
        (
            "import opsieve.tui.app.services.replay, opsieve.tui.app.views.case_summary,"
            " opsieve.tui.app.services.job_board, opsieve.tui.app.services.tensor_difference"
        ),
    ],
    ids=["the command line", "every command", "reduce", "the app's own child processes"],
)
def test_nothing_else_imports_textual(source: str) -> None:
    assert "textual" not in loaded(source)


def test_the_app_imports_nothing_that_only_a_compiler_needs() -> None:
    assert loaded("import opsieve.tui.app.app") & set(HEAVY) <= {"sqlite_utils", "numpy"}


def test_without_a_terminal_it_is_refused_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opsieve", "tui"],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("opsieve: opsieve tui needs a terminal")
    assert len(done.stderr.splitlines()) == 1
