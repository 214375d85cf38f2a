"""Driving the terminal app in tests: keys go in, conditions are waited for, what is on the screen comes out
as text.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from models import X, chain
from stores import CAMPAIGN, NOW, done, filled, finding
from textual.pilot import Pilot
from textual.screen import Screen

from opsieve.gen.case.case import Case
from opsieve.triage.store.finished_test import FinishedTest, NonBug
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store
from opsieve.tui.app.app import OpsieveApp
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.widgets.paged_list import PagedList

S = TypeVar("S", bound=Screen[object])
TARGET = "fake:wrong@Tanh"
_PATIENCE = 90.0  # seconds after which a condition counts as never true


def made_tests() -> list[FinishedTest]:
    """Nineteen failures of seven bugs, hostile text in one of them, and what is no bug."""
    bugs = [
        finding("no kernel for Pad", frames=["main", "find_kernel"], operators=("Pad", "Relu")),
        finding("died", kind="crash", frames=["main", "fuse", "free"], operators=("Conv",), signal=11),
        finding("differs", kind="mismatch", operators=("MatMul", "Softmax")),
        finding("bad \x1b[31mshape\x07 [bold]{3}[/bold]", frames=["main", "infer"], operators=("Reshape",)),
        finding("no kernel for Pad", frames=["main", "pick"], target="onnxruntime", operators=("Pad",)),
        finding("shape of Gather", frames=["main", "infer_gather"], operators=("Gather",)),
        finding("axis out of range", frames=["main", "lower_axis"], operators=("ReduceSum",)),
    ]
    lacks = NonBug("onnxruntime", "unsupported", "no NonZero for <dtype>", "no NonZero for int4")
    found = [done(number, bugs[number % 7], non_bugs=[lacks]) for number in range(19)]
    return found


def store_at(folder: Path) -> Path:
    """A store of them."""
    return filled(folder, made_tests())


def wrong_store(folder: Path) -> Path:
    """A store of one failure that really fails: the fake compiler is wrong about Tanh."""
    case = Case(
        chain("Relu", "Tanh", "Neg"),
        {name: np.asarray(value) for name, value in X.items()},
        parameters={"target": TARGET},
    )
    wrong = finding("", kind="mismatch", target=TARGET, operators=("Neg", "Relu", "Tanh"))
    campaign = type(CAMPAIGN)("real", "small-1", 7, (TARGET,))
    with Store(folder, clock=lambda: NOW) as opened:
        opened.begin_campaign(campaign)
        opened.record_tests(campaign, [FinishedTest(0, case, {TARGET: ("fail", 0.1)}, (wrong,))])
    return folder


def app_of(folder: Path, **options: object) -> OpsieveApp:
    """The app on a store, an hour after its failures were seen."""
    return OpsieveApp(folder, offline=True, clock=lambda: NOW + 3600, **options)  # type: ignore[arg-type]


def text_of(app: OpsieveApp) -> str:
    """What is on the screen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot: Pilot[None], condition: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds."""
    end, pause = time.monotonic() + _PATIENCE, 0.01
    while True:
        await pilot.pause()
        try:
            if condition():
                return
        except Exception:  # a screen that is still being made raises many things; the last one is told below
            if time.monotonic() > end:
                raise
        if time.monotonic() > end:
            raise AssertionError(f"never came about: {what}\n{text_of(pilot.app)}")  # type: ignore[arg-type]
        await asyncio.sleep(pause)
        # What a process of its own does takes longer, and is not to be looked at all the time.
        pause = min(1.5 * pause, 0.1)


async def shows(pilot: Pilot[None], *words: str) -> None:
    """Wait until the screen shows these words."""
    app = pilot.app
    await until(pilot, lambda: all(word in text_of(app) for word in words), f"{words} on the screen")  # type: ignore[arg-type]


async def on_screen(pilot: Pilot[None], kind: type[S]) -> S:
    """Wait until a screen of a kind is there."""
    await until(pilot, lambda: isinstance(pilot.app.screen, kind), kind.__name__)
    screen = pilot.app.screen
    assert isinstance(screen, kind)
    return screen


def drive(
    app: OpsieveApp, journey: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24)
) -> None:
    """Run the app and the journey through it."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await journey(pilot)
            app.board.end_all()
            assert app.faults == []  # shown to a person, who can go on; here nothing may go wrong

    asyncio.run(run())


def status(store: Path, name: str) -> str:
    with Queries(store) as queries:
        return queries.cluster(name).status


async def opened(pilot: Pilot[None]) -> ClustersScreen:
    screen = await on_screen(pilot, ClustersScreen)
    await until(pilot, lambda: screen.found and screen.counts and cursor_on(screen), "clusters")
    return screen


def cursor_on(screen: ClustersScreen) -> str:
    subject = screen.subject
    return subject.cluster.id if subject else ""


async def go_to(pilot: Pilot[None], screen: ClustersScreen, name: str) -> None:
    table = screen.query_one("#clusters", PagedList)
    table.cursor = next(at for at, row in enumerate(table.rows) if row.key == name)
    await until(pilot, lambda: cursor_on(screen) == name)
