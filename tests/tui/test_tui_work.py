"""What the terminal app starts: exports, replays, reductions as real processes on the fake compiler; the
commands of the others.
"""

import contextlib
import io
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from models import X, chain
from stores import filled, finding
from textual.pilot import Pilot
from textual.widgets import Input
from tui_driving import TARGET, app_of, drive, on_screen, shows, store_at, until, wrong_store

from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.triage.store.finished_test import FinishedTest
from opsieve.tui.app.app import OpsieveApp
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.screens.export_screen import ExportScreen
from opsieve.tui.app.services.editor import choose_command, run_editor
from opsieve.tui.app.services.job_board import Job
from opsieve.tui.app.services.saved_filters import read_filters
from opsieve.tui.app.widgets.screens import ConfirmDialog, LineDialog, LinesView, PageBar

EXPORTER = """
import sys, zipfile
if "case" in sys.argv:
    with zipfile.ZipFile(sys.stdout.buffer, "w") as archive:
        archive.writestr("case/model.onnx", b"12345")
else:
    print("# an issue")
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return wrong_store(tmp_path / "store")


async def listed(pilot: Pilot[None]) -> ClustersScreen:
    screen = await on_screen(pilot, ClustersScreen)
    await until(pilot, lambda: screen.found)
    return screen


@pytest.mark.slow(seconds=3)
def test_two_keys_write_a_script_and_what_was_shown_is_what_is_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def journey(pilot: Pilot[None]) -> None:
        await listed(pilot)
        await pilot.press("x")
        screen = await on_screen(pilot, ExportScreen)
        await pilot.press("enter")
        await shows(pilot, "not ready yet")
        await until(pilot, lambda: screen.is_ready)
        await pilot.press("enter")
        await until(pilot, lambda: screen.written)
        written = (tmp_path / "repro.py").read_bytes()
        assert written.decode() == screen.query_one("#page", LinesView).text + "\n"
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.clipboard == written.decode())
        (tmp_path / "repro.py").write_text("mine")
        await pilot.press("w")
        await on_screen(pilot, ConfirmDialog)
        await pilot.press("n")
        await on_screen(pilot, ExportScreen)
        assert (tmp_path / "repro.py").read_text() == "mine"
        await pilot.press("w")
        await on_screen(pilot, ConfirmDialog)
        await pilot.press("y")
        await until(pilot, lambda: (tmp_path / "repro.py").read_bytes() == written)

    drive(app_of(store), journey)


@pytest.mark.slow(seconds=3)
def test_the_other_kinds_go_to_a_path_of_ones_own(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    # Costs no compiler.
    monkeypatch.setattr(
        "opsieve.tui.app.screens.export_screen.OPSIEVE", (sys.executable, "-I", "-c", EXPORTER)
    )

    async def journey(pilot: Pilot[None]) -> None:
        await listed(pilot)
        await pilot.press("x")
        screen = await on_screen(pilot, ExportScreen)
        await pilot.press("4")
        await until(pilot, lambda: screen.kind == "case" and screen.is_ready)
        assert screen.query_one("#path", Input).value == "case.zip"
        await shows(pilot, "model.onnx")
        await pilot.press("y")
        await shows(pilot, "write it instead")
        await pilot.press("e")
        await until(pilot, lambda: screen.query_one("#path").has_focus)
        screen.query_one("#path", Input).value = "out"
        await pilot.press("enter", "enter")
        await until(pilot, lambda: screen.written)
        assert any(name.endswith("model.onnx") for name in zipfile.ZipFile(io.BytesIO((tmp_path / "out" / "case.zip").read_bytes())).namelist())  # fmt: skip
        await pilot.press("2")
        await until(pilot, lambda: screen.kind == "issue" and screen.is_ready)
        screen.query_one("#path", Input).value = "no/such/folder/issue.md"
        await pilot.press("w")
        await shows(pilot, "cannot write")

    drive(app_of(store), journey)


@pytest.mark.slow  # in make test: what `export` says of it, in test_export_command.py
def test_what_does_not_fail_any_more_is_said_and_nothing_is_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = next((store / "cases").glob("*/1"))
    (place / "case.json").write_text((place / "case.json").read_text().replace(TARGET, "fake"))

    async def journey(pilot: Pilot[None]) -> None:
        await listed(pilot)
        await pilot.press("x")
        screen = await on_screen(pilot, ExportScreen)
        await until(pilot, lambda: screen.job is not None and screen.job.is_over)
        await shows(pilot, "nothing to write", "no failure to work on")
        await pilot.press("enter")
        assert not (tmp_path / "repro.py").exists()

    drive(app_of(store), journey)


@pytest.mark.slow(seconds=5)
def test_a_replay_shows_the_verdict_and_where_it_is_wrong(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await listed(pilot)
        await pilot.press("R")
        await on_screen(pilot, LineDialog)
        await pilot.press("enter")
        screen = await on_screen(pilot, CaseScreen)
        page = screen.query_one("#page", LinesView)
        await until(pilot, lambda: "of the elements differ from" in page.text)
        assert screen.query_one(PageBar).page_name == "replay"
        assert page.text.startswith("fail")
        await pilot.press("R")
        line = await on_screen(pilot, LineDialog)
        line.query_one(Input).value = "fake"
        await pilot.press("enter")
        await until(pilot, lambda: page.text.startswith("pass"))

    drive(app_of(store), journey)


@pytest.mark.slow(seconds=3)
def test_the_page_of_tensors_shows_expected_got_and_difference(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await listed(pilot)
        await pilot.press("enter", "enter")
        screen = await on_screen(pilot, CaseScreen)
        await until(pilot, lambda: screen.case is not None and screen.summary)
        page = screen.query_one("#page", LinesView)
        await pilot.press("3")
        # Nobody asked for the replay: it is needed here.
        await until(pilot, lambda: "the largest error at [" in page.text)
        table = [line.split() for line in page.text.splitlines()]
        at = next(
            at for at, words in enumerate(table) if words == ["element", "expected", "got", "difference"]
        )
        index, expected, got, difference = [word for word in table[at + 1] if word != "▸"]
        assert index.startswith("[0")
        assert float(got) - float(expected) == pytest.approx(float(difference), rel=1e-3)
        assert "expected by reference:float64, got by fake" in page.text
        assert "inputs" in page.text

    drive(app_of(store), journey)


@pytest.mark.slow(seconds=8)
def test_a_reduction_is_taken_up_by_the_store(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        screen = await listed(pilot)
        await pilot.press("r")
        await until(pilot, lambda: app.board.jobs and app.board.jobs[0].is_over)
        job = app.board.jobs[0]
        assert (job.state, job.outcome) == ("done", "1 of 3 nodes left"), list(job.log)
        await until(pilot, lambda: [row.reduced for row in screen.found.values()] == [1])
        await pilot.press("enter", "enter")
        case = await on_screen(pilot, CaseScreen)
        page = case.query_one("#page", LinesView)
        await pilot.press("2")
        await until(pilot, lambda: "Tanh" in page.text and "Relu" not in page.text)
        await pilot.press("z")
        await until(pilot, lambda: "Relu" in page.text)

    drive(app_of(store), journey)


def after_opsieve(command: Sequence[str]) -> list[str]:
    """The words that one would type after `opsieve`."""
    return list(command[list(command).index("opsieve") + 1 :])


def test_attribute_bisect_and_fuzz_are_the_commands_that_one_would_type(store: Path) -> None:
    started: list[tuple[str, list[list[str]]]] = []

    def start(kind: str, subject: str, *commands: Any, **_: object) -> Job:
        started.append((f"{kind} {subject}", [after_opsieve(command) for command in commands]))
        return Job(len(started), kind, subject, tuple(commands), state="done")  # type: ignore[arg-type]

    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        app.board.start_job = start  # type: ignore[method-assign, assignment]
        await listed(pilot)
        await pilot.press("a")
        await until(pilot, lambda: len(started) == 1)
        title, (command, taking_up) = started[0]
        assert title == "attribute c1"
        assert command[0] == "attribute"
        assert Path(command[1]).is_dir()
        assert command[2:] == ["-t", TARGET, "--json", "--offline"]
        assert taking_up == ["triage", str(store)]
        await pilot.press("b")
        await shows(pilot, "releases of fake cannot")
        await pilot.press("C", "f")
        line = await on_screen(pilot, LineDialog)
        line.query_one(Input).value = "tvm onnxsim"
        await pilot.press("enter")
        await until(pilot, lambda: len(started) == 2)
        assert started[1][1][0] == [
            "fuzz",
            "--store",
            str(store),
            "--minutes",
            "60",
            "--json",
            "--target",
            "tvm",
            "--target",
            "onnxsim",
        ]

    drive(app_of(store), journey)


def test_bisect_searches_the_releases_of_the_target(tmp_path: Path) -> None:
    case = Case(chain("Relu"), dict(X))
    wrong = finding("", kind="mismatch", target="onnxruntime", operators=("Relu",))
    filled(
        tmp_path / "store",
        [FinishedTest(0, case, {"fake": ("pass", 0.1), "onnxruntime": ("fail", 0.1)}, (wrong,))],
    )
    started: list[list[str]] = []

    def start(kind: str, subject: str, *commands: Any, **_: object) -> Job:
        started.append(after_opsieve(commands[0]))
        return Job(1, kind, subject, tuple(commands), state="done")  # type: ignore[arg-type]

    async def journey(pilot: Pilot[None]) -> None:
        assert isinstance(pilot.app, OpsieveApp)
        pilot.app.board.start_job = start  # type: ignore[method-assign, assignment]
        await listed(pilot)
        await pilot.press("b")
        await until(pilot, lambda: started)
        assert started[0][2:] == ["--releases", "onnxruntime", "--json", "--offline"]

    drive(app_of(tmp_path / "store"), journey)


def test_filters_are_saved_and_several_clusters_noted_together(tmp_path: Path) -> None:
    store = store_at(tmp_path / "many")

    async def journey(pilot: Pilot[None]) -> None:
        screen = await listed(pilot)
        await pilot.press("space", "j", "space", "n", *"both", "enter")
        await until(pilot, lambda: sum(row.note == "both" for row in screen.found.values()) == 2)
        asked = screen.query_one("#filter", Input)
        asked.value = "knd:crash"
        await shows(pilot, "did you mean kind?")
        asked.value = "kind:crash"
        await until(pilot, lambda: {row.kind for row in screen.found.values()} == {"crash"})
        await pilot.press("F", *"died", "enter")
        await until(pilot, lambda: read_filters(store) == {"died": "kind:crash"})
        asked.value = ""
        await until(pilot, lambda: len(screen.found) > 1)
        await pilot.press("f", "enter")
        await until(pilot, lambda: screen.filter_text == "kind:crash" and len(screen.found) == 1)

    drive(app_of(store), journey)


def test_the_editor_is_the_users_own_and_gets_what_tells_most(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text("{}")
    assert choose_command(tmp_path, {"EDITOR": "code --wait"}) == [
        "code",
        "--wait",
        str(tmp_path / "case.json"),
    ]
    (tmp_path / "reduced").mkdir()
    (tmp_path / "reduced" / "repro.py").write_text("")
    assert choose_command(tmp_path, {"EDITOR": "vi", "VISUAL": "ed"}) == [
        "ed",
        str(tmp_path / "reduced" / "repro.py"),
    ]
    assert run_editor(contextlib.nullcontext, ["true", "x"]) == ("true ended: x", "information")
    assert run_editor(contextlib.nullcontext, ["no-such-editor", "x"])[1] == "error"
    with pytest.raises(BadInput, match="set EDITOR"):
        choose_command(tmp_path, {"EDITOR": "'"})


@pytest.mark.slow(seconds=3)
def test_the_page_of_the_first_wrong_node_runs_the_case_and_highlights_the_way(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await listed(pilot)
        await pilot.press("enter")
        await on_screen(pilot, ClusterScreen)
        await pilot.press("enter")
        case = await on_screen(pilot, CaseScreen)
        await pilot.press("9")
        await until(pilot, lambda: case.located is not None and case.located.is_over)
        await shows(pilot, "9 path", "the first wrong value is t2", "inherited", "Tanh → t2")

    drive(app_of(store), journey)
