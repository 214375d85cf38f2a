"""The terminal app where something goes on or goes wrong: jobs, broken cases, stores that are locked, damaged
or not there yet.
"""

import asyncio
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from stores import CAMPAIGN, done
from textual.app import ComposeResult
from textual.pilot import Pilot
from tui_driving import (
    app_of,
    cursor_on,
    drive,
    go_to,
    made_tests,
    on_screen,
    opened,
    shows,
    store_at,
    text_of,
    until,
)

from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.store import Store
from opsieve.tui.app.app import OpsieveApp
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.screens.help_screen import HelpScreen
from opsieve.tui.app.screens.jobs_screen import CampaignScreen, JobsScreen
from opsieve.tui.app.screens.welcome_screen import WelcomeScreen
from opsieve.tui.app.services.job_board import Job
from opsieve.tui.app.widgets.screens import ConfirmDialog, LineDialog, LinesView, Notice, SteadyDialog


@pytest.mark.slow(seconds=5)
def test_a_job_runs_is_shown_and_is_cancelled(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    said: list[str] = []

    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        monkeypatch.setattr(app, "show_notice", lambda sentence, *_: said.append(sentence))
        await opened(pilot)
        talk = (sys.executable, "-c", "import sys; print('half of it', file=sys.stderr, flush=True); sys.stdin.read(); import time; time.sleep(600)")  # fmt: skip
        job = app.run_job("reduce", "c1", talk)
        await pilot.press("J")
        screen = await on_screen(pilot, JobsScreen)
        await until(pilot, lambda: "half of it" in screen.query_one("#log", LinesView).text)
        await shows(pilot, "1 active of 1", "running")
        await pilot.press("x")
        await until(pilot, lambda: job.state == "cancelled" and "cancelled" in text_of(app))
        failing = app.run_job("attribute", "c1", (sys.executable, "-c", "import sys; print('opsieve: no such case', file=sys.stderr); sys.exit(2)"))  # fmt: skip
        await until(pilot, lambda: failing.state == "failed")
        await shows(pilot, "exit code 2")
        # Though the job printed its traceback after it was cancelled.
        assert [text for text in said if "cancelled" in text] == ["job 1: reduce c1 cancelled"]

    drive(app_of(store), journey)


def test_quitting_while_a_job_runs_asks_first(store: Path) -> None:
    import sys

    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        await opened(pilot)
        job = app.run_job("reduce", "c1", (sys.executable, "-c", "import time; time.sleep(600)"))
        await until(pilot, lambda: job.state == "running")
        await pilot.press("q")
        await on_screen(pilot, ConfirmDialog)
        await pilot.press("n")
        await on_screen(pilot, ClustersScreen)
        await pilot.press("ctrl+q")
        await on_screen(pilot, ConfirmDialog)
        await pilot.press("y")
        jobs.append(job)

    jobs: list[Job] = []
    drive(app_of(store), journey)
    assert [job.state for job in jobs] == ["cancelled"]


@pytest.mark.slow(seconds=3)
def test_a_failure_that_was_only_counted_says_so(store: Path) -> None:
    with Store(store) as written:
        written.record_tests(CAMPAIGN, [done(100 + at, made_tests()[0].findings[0]) for at in range(6)])

    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await go_to(pilot, screen, "c1")
        await pilot.press("enter")
        cluster = await on_screen(pilot, ClusterScreen)
        await until(pilot, lambda: len(cluster.members) == 9)
        await pilot.press("G", "enter")
        case = await on_screen(pilot, CaseScreen)
        await pilot.press("2")
        await until(pilot, lambda: "only counted" in case.query_one("#page", LinesView).text)
        await pilot.press("r")
        await shows(pilot, "was not kept")
        await pilot.press("R")
        await on_screen(pilot, LineDialog)
        await pilot.press("enter")
        await shows(pilot, "cannot be replayed")

    drive(app_of(store), journey)


@pytest.mark.slow(seconds=3)
def test_a_broken_case_folder_is_a_message(store: Path) -> None:
    place = next(iter(sorted((store / "cases").glob("fake-crash-*/1"))))
    (place / "model.onnx").write_bytes(b"\x00garbage")
    for path in (place / "observations").glob("*.json"):
        path.write_text("{")

    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await go_to(pilot, screen, "c2")
        await pilot.press("enter")
        cluster = await on_screen(pilot, ClusterScreen)
        await until(pilot, lambda: cluster.members)
        await pilot.press("enter")
        case = await on_screen(pilot, CaseScreen)
        page = case.query_one("#page", LinesView)
        await pilot.press("2")
        await until(pilot, lambda: "model.onnx" in page.text)
        await pilot.press("4")
        await until(pilot, lambda: "is no observation" in page.text)
        shutil.rmtree(place)
        await pilot.press("z")
        assert pilot.app.is_running

    drive(app_of(store), journey)


def test_an_index_that_vanishes_is_told_and_what_was_read_stays(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        screen = await opened(pilot)
        (store / INDEX).unlink()
        await until(pilot, lambda: "vanished" in app.trouble)
        assert len(screen.found) == 7
        await pilot.press("p")
        await shows(pilot, "is not a store")

    drive(app_of(store), journey)


def test_a_database_that_is_locked_or_damaged_is_a_sentence(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opsieve.triage.store.index.index_file._BUSY", 0.2)
    holder = sqlite3.connect(store / INDEX)
    holder.execute("BEGIN IMMEDIATE")

    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await pilot.press("p")
        # words: the sentence wraps where the folder of the store is long
        await shows(pilot, "another", "--resume")
        holder.rollback()
        name = cursor_on(screen)
        await pilot.press("p")
        await until(pilot, lambda: screen.found[name].pinned)

    drive(app_of(store), journey)
    holder.close()


@pytest.mark.parametrize("damage", ["text", "future"])
def test_a_store_that_cannot_be_opened_is_explained(store: Path, damage: str) -> None:
    if damage == "text":
        (store / INDEX).write_text("this is no database, and never was one" * 100)
    else:
        with sqlite3.connect(store / INDEX) as connection:
            connection.execute("PRAGMA user_version = 999")
        connection.close()

    async def journey(pilot: Pilot[None]) -> None:
        await on_screen(pilot, WelcomeScreen)
        await shows(pilot, "damaged" if damage == "text" else "newer")
        assert ("opsieve index --store" in text_of(pilot.app)) == (damage == "text")
        assert "opsieve fuzz" not in text_of(pilot.app)

    drive(app_of(store), journey)


def test_without_a_store_it_says_what_to_do_and_opens_the_samples(tmp_path: Path) -> None:
    def demo() -> Path:
        return store_at(tmp_path / "samples")

    async def journey(pilot: Pilot[None]) -> None:
        await on_screen(pilot, WelcomeScreen)
        await shows(pilot, "opsieve fuzz", "opsieve triage", "opsieve tui", "There is no store", "--store")
        await pilot.press("m", "x", "question_mark")
        await on_screen(pilot, WelcomeScreen)
        await pilot.press("d")
        screen = await opened(pilot)
        await shows(pilot, "samples: 7 of 7")
        assert screen.total == 7

    drive(app_of(tmp_path / "nothing", demo=demo), journey)


def test_a_store_that_comes_to_be_is_opened_on_demand(tmp_path: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await on_screen(pilot, WelcomeScreen)
        await asyncio.to_thread(store_at, tmp_path / "store")
        await pilot.press("o")
        await opened(pilot)

    drive(app_of(tmp_path / "store"), journey)


def test_a_fault_of_a_handler_is_shown_and_ends_nothing(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        await opened(pilot)

        def broken() -> None:
            raise RuntimeError("no such [thing]")

        app.action_undo = broken  # type: ignore[method-assign]
        await pilot.press("u")
        await shows(pilot, "something went wrong", "no such [thing]")
        await pilot.press("question_mark")
        await on_screen(pilot, HelpScreen)
        app.faults.clear()

    drive(app_of(store), journey)


def test_a_screen_that_is_still_being_made_has_nothing_to_act_on(store: Path) -> None:
    """The footer asks for the keys before the lists are there (seen on a busy machine: `No nodes match
    '#members'`).
    """

    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        row = screen.found[cursor_on(screen)]
        assert ClusterScreen(row).subject.member == ""
        assert CampaignScreen().subject is None
        assert ClustersScreen().subject is None

    drive(app_of(store), journey)


def test_a_dialog_that_is_ended_twice_takes_no_screen_with_it(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        heard: list[object] = []
        for dialog in (ConfirmDialog("sure?"), LineDialog("what?")):
            pilot.app.push_screen(dialog, heard.append)  # type: ignore[arg-type]
            await until(pilot, lambda dialog=dialog: pilot.app.screen is dialog and dialog.is_mounted)  # type: ignore[misc]
            dialog.dismiss(None)
            dialog.dismiss(None)
            await until(pilot, lambda: pilot.app.screen is screen)
        assert heard == [None, None]

    drive(app_of(store), journey)


def test_a_fault_while_a_screen_is_being_made_ends_nothing(store: Path) -> None:
    class Stumbles(SteadyDialog[None]):
        def compose(self) -> ComposeResult:
            yield from ()
            self.app._handle_exception(ValueError("while it is being made"))

    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        await opened(pilot)
        await app.push_screen(Stumbles())
        await shows(pilot, "while it is being made")
        assert (app.is_running, app.fatal, len(app.faults)) == (True, None, 1)
        app.faults.clear()

    drive(app_of(store), journey)


def test_what_was_chosen_in_the_palette_is_left_undone_where_its_screen_has_gone(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        await opened(pilot)
        first = app.screen
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ClusterScreen) and app.screen.is_mounted)
        gone = app.screen
        await pilot.press("escape")
        await until(
            pilot, lambda: app.screen is first and gone not in app.screen_stack and not gone.is_attached
        )
        for bindings in gone._bindings.key_to_bindings.values():
            for binding in bindings:
                await app._run_chosen(binding.action, gone)
        await pilot.pause()
        assert (app.screen, app.faults) == (first, [])
        await app._run_chosen("help", app)
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))

    drive(app_of(store), journey)


def test_a_notice_that_comes_too_late_does_not_stop_the_app(store: Path) -> None:
    late = Notice("late", raised_at=time.time() - 100)
    assert late.has_expired
    assert late.time_left > 0  # Textual's timer of less than nothing loops for ever

    async def journey(pilot: Pilot[None]) -> None:
        await opened(pilot)
        pilot.app.notify("in time")
        await until(pilot, lambda: len(pilot.app._notifications))
        assert all(isinstance(each, Notice) for each in pilot.app._notifications)
        assert not Notice("new").has_expired

    drive(app_of(store), journey)
