"""Every screen as a picture, at two sizes, dark and light, held against the SVG in snapshots/.

    UPDATE_SNAPSHOTS=1 pytest tests/tui/test_tui_snapshots.py      takes them anew; look at what changed
    before you commit it

The pictures hold for the version of Textual that drew them, which snapshots/textual-version.txt tells.
"""

import asyncio
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from repository import CORPUS
from stores import done, filled, finding
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Footer, Static
from tui_driving import app_of, made_tests, on_screen, store_at, text_of, until, wrong_store

from opsieve.triage.store.decisions import Ledger
from opsieve.tui.app.app import OpsieveApp
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.screens.export_screen import ExportScreen
from opsieve.tui.app.screens.help_screen import HelpScreen
from opsieve.tui.app.screens.jobs_screen import CampaignScreen, JobsScreen
from opsieve.tui.app.screens.welcome_screen import WelcomeScreen
from opsieve.tui.app.services.saved_filters import save_filter
from opsieve.tui.app.widgets.paged_list import PagedList
from opsieve.tui.app.widgets.screens import ChoiceDialog, ConfirmDialog, LineDialog, LinesView

SNAPSHOTS = CORPUS / "snapshots"
UPDATE = bool(os.environ.get("UPDATE_SNAPSHOTS"))
DRAWN_BY = (SNAPSHOTS / "textual-version.txt").read_text().strip() if not UPDATE else version("textual")
THEMES = {"dark": "textual-dark", "light": "textual-light"}
SCRIPT = 'printf "import onnx\\n\\nprint(1)\\n"'
TALK = "echo 'reducing 12 nodes' >&2; echo '{\"nodes_after\": 2}'"


def normalised(svg: str) -> str:
    """A picture without the fonts that it would fetch, the number that tells pictures apart, and keys of
    fingerprints.
    """
    svg = re.sub(r"@font-face \{[^}]*+\}\s*+", "", svg)
    svg = re.sub(r"\b[0-9a-f]{10}(?=/|&|<)", "0123456789", svg)  # keys move when a rule of fingerprints does
    return re.sub(r"terminal-\d++", "terminal", svg)


async def settled(pilot: Pilot[None]) -> None:
    """Wait until no thread is asked anything and nothing is left to draw."""
    app = pilot.app
    last: list[Strip] = []
    for _ in range(200):
        await app.workers.wait_for_complete([worker for worker in app.workers if worker.group != "watch"])
        await pilot.pause()
        await asyncio.sleep(0.1)  # the preview follows a cursor that rests
        now = app.screen._compositor.render_strips()
        if now == last:
            return
        last = now
    raise AssertionError("the screen never settles")


async def compare(pilot: Pilot[None], name: str, wrong: list[str], tmp_path: Path) -> None:
    """Hold what is on the screen against the picture of that name.

    On a busy machine a part of the screen may come later than `settled` can tell: it has some more time to
    become the picture.
    """
    app = pilot.app
    assert isinstance(app, OpsieveApp)
    path = SNAPSHOTS / f"{name}.svg"
    for _ in range(1 if UPDATE else 30):
        await settled(pilot)
        svg = normalised(app.export_screenshot(title="opsieve"))
        if not UPDATE and path.is_file() and path.read_text() == svg:
            return
    if UPDATE:
        SNAPSHOTS.mkdir(exist_ok=True)
        (SNAPSHOTS / "textual-version.txt").write_text(f"{DRAWN_BY}\n")
        path.write_text(svg)
    else:
        seen = tmp_path / f"{name}.svg"
        seen.write_text(svg)
        wrong.append(f"{name}: see {seen}\n{text_of(app)}")


async def tour(pilot: Pilot[None], size: str, theme: str, wrong: list[str], tmp_path: Path) -> None:
    """Through every screen."""
    app = pilot.app
    assert isinstance(app, OpsieveApp)

    async def picture(name: str) -> None:
        await compare(pilot, f"{name}-{size}-{theme}", wrong, tmp_path)

    screen = await on_screen(pilot, ClustersScreen)
    await until(pilot, lambda: screen.found and screen.counts)
    await pilot.press("j", "space")
    await picture("clusters")
    await pilot.press("m")
    await on_screen(pilot, ChoiceDialog)
    await picture("mark")
    await pilot.press("escape", "question_mark")
    await on_screen(pilot, HelpScreen)
    await picture("help")
    await pilot.press("escape", "escape")
    table = screen.query_one("#clusters", PagedList)
    await until(pilot, lambda: not table.marked)
    table.cursor = next(at for at, row in enumerate(table.rows) if row.key == "c1")
    await pilot.press("enter")
    cluster = await on_screen(pilot, ClusterScreen)
    await until(pilot, lambda: cluster.members)
    await pilot.press("2")
    await picture("cluster")
    await pilot.press("enter")
    case = await on_screen(pilot, CaseScreen)
    await until(pilot, lambda: case.summary)
    for key, name in (("2", "graph"), ("4", "observed"), ("5", "trace")):
        await pilot.press(key)
        await picture(f"case-{name}")
    await pilot.press("x")
    export = await on_screen(pilot, ExportScreen)
    await until(pilot, lambda: export.is_ready)
    await picture("export")
    await pilot.press("escape", "escape", "escape")
    await on_screen(pilot, ClustersScreen)
    await pilot.press("C")
    campaign = await on_screen(pilot, CampaignScreen)
    await until(pilot, lambda: campaign.query_one("#counts", LinesView).lines)
    await picture("campaign")
    await pilot.press("escape")
    job = app.run_job("reduce", "c1", ("sh", "-c", TALK))
    await until(pilot, lambda: job.is_over)
    for each in app.board.jobs:
        each.began, each.ended = 100.0, 112.0
    await pilot.press("J")
    await on_screen(pilot, JobsScreen)
    await picture("jobs")


@pytest.mark.skipif(version("textual") != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}")
@pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param((80, 24), "dark", id="80x24-dark"),
        pytest.param((160, 48), "light", id="160x48-light", marks=pytest.mark.slow),
        pytest.param((80, 24), "light", id="80x24-light", marks=pytest.mark.slow),
        pytest.param((160, 48), "dark", id="160x48-dark", marks=pytest.mark.slow),
    ],
)
def test_every_screen_looks_as_it_did(
    size: tuple[int, int], theme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opsieve.tui.app.screens.export_screen.OPSIEVE", ("sh", "-c", SCRIPT))
    monkeypatch.chdir(tmp_path)  # the command lines of the help name a store below it by its name
    store = store_at(tmp_path / "weekend")
    with Ledger(store, clock=lambda: 1_800_001_000.0) as ledger:
        ledger.merge("c1", "c5")
        ledger.note("c1", "seen on arm too")
        ledger.pin("c3")
        ledger.mark("c6", "wontfix")
    wrong: list[str] = []
    name = f"{size[0]}x{size[1]}"

    async def run() -> None:
        app = app_of(store, theme=THEMES[theme])
        async with app.run_test(size=size) as pilot:
            await tour(pilot, name, theme, wrong, tmp_path)
        nowhere = app_of(Path("opsieve-store-that-is-not-there"), theme=THEMES[theme])
        async with nowhere.run_test(size=size) as pilot:
            await on_screen(pilot, WelcomeScreen)
            assert nowhere.screen.query(Footer)
            await compare(pilot, f"welcome-{name}-{theme}", wrong, tmp_path)

    asyncio.run(run())
    assert not wrong, "\n\n".join(wrong)


async def dialogs(pilot: Pilot[None], wrong: list[str], tmp_path: Path) -> None:
    """Every question that the app asks, the groups, and what a case shows of its tensors."""
    app = pilot.app
    assert isinstance(app, OpsieveApp)

    async def asked(name: str, kind: type[Screen[Any]], *keys: str) -> None:
        await pilot.press(*keys)
        await on_screen(pilot, kind)
        await compare(pilot, f"{name}-80x24-dark", wrong, tmp_path)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, kind))

    async def picture(name: str) -> None:
        await compare(pilot, f"{name}-80x24-dark", wrong, tmp_path)

    screen = await on_screen(pilot, ClustersScreen)
    await until(pilot, lambda: screen.found and screen.counts)
    for name, kind, keys in (
        ("ask-sort", ChoiceDialog, "s"),
        ("ask-group", ChoiceDialog, "v"),
        ("ask-filter", ChoiceDialog, "f"),
        ("ask-filter-name", LineDialog, "F"),
        ("ask-note", LineDialog, "n"),
        ("ask-replay", LineDialog, "R"),
        ("palette", CommandPalette, "ctrl+p"),
    ):
        await asked(name, kind, keys)
    await pilot.press("v", "t")
    await picture("groups")
    await pilot.press("escape")
    table = screen.query_one("#clusters", PagedList)
    table.cursor = next(at for at, row in enumerate(table.rows) if row.key == "c8")
    await pilot.press("enter")
    cluster = await on_screen(pilot, ClusterScreen)
    await until(pilot, lambda: cluster.members)
    await asked("ask-related", ChoiceDialog, "o")
    await asked("ask-split", ChoiceDialog, "s")
    await pilot.press("escape", "C")
    await on_screen(pilot, CampaignScreen)
    await asked("ask-campaign", LineDialog, "f")
    await pilot.press("escape")
    job = app.run_job("reduce", "c1", ("sleep", "60"))
    app.clear_notifications()
    await until(pilot, lambda: "1 job" in str(screen.query_one("#figures", Static).render()))
    await asked("ask-quit", ConfirmDialog, "q")
    app.board.cancel_job(job)


async def tensors(pilot: Pilot[None], wrong: list[str], tmp_path: Path) -> None:
    """The page of a case that is really run again."""
    screen = await on_screen(pilot, ClustersScreen)
    await until(pilot, lambda: screen.found and screen.counts)
    await pilot.press("enter", "enter")
    case = await on_screen(pilot, CaseScreen)
    await until(pilot, lambda: case.summary)
    await pilot.press("3")
    await until(pilot, lambda: "largest error" in case.query_one("#page", LinesView).text)
    await compare(pilot, "case-tensors-80x24-dark", wrong, tmp_path)


@pytest.mark.slow(seconds=8)
@pytest.mark.skipif(version("textual") != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}")
def test_every_dialog_looks_as_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    alike = [
        finding("pads are wrong", frames=["main", "load", "optimize", "fuse", name], operators=("Conv",))
        for name in ("read_pads", "read_axes", "read_pads")
    ]
    store = filled(
        tmp_path / "weekend", [*made_tests(), *(done(30 + at, found) for at, found in enumerate(alike))]
    )
    save_filter(store, "deaths", "kind:crash")
    wrong: list[str] = []

    async def run() -> None:
        app = app_of(store, theme=THEMES["dark"])
        async with app.run_test(size=(80, 24)) as pilot:
            await dialogs(pilot, wrong, tmp_path)
        case = app_of(wrong_store(tmp_path / "one"), theme=THEMES["dark"])
        async with case.run_test(size=(80, 24)) as pilot:
            await tensors(pilot, wrong, tmp_path)

    asyncio.run(run())
    assert not wrong, "\n\n".join(wrong)
