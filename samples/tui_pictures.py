"""The pictures of docs/how-to/tui.md: the terminal app on the samples, as SVG, and a session as an asciinema
recording.

    python samples/tui_pictures.py [--session | --all FOLDER]

No compiler runs for the pictures, but for that of the export. With --session a real campaign is recorded from
`opsieve fuzz` to an exported script (docs/images/tui-session.cast; play it with `asciinema play`); it takes
some minutes. With --all the pictures of all screens go to FOLDER, at 80x24, 120x40 and 40x12, dark, light and
without colour.
"""

import asyncio
import json
import os
import pty
import re
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from opsieve.triage.store.decisions import Ledger
from opsieve.tui.app.app import OpsieveApp
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.screens.export_screen import ExportScreen
from opsieve.tui.app.services.demo_store import make_demo
from opsieve.tui.app.themes import DARK, LIGHT, PLAIN
from opsieve.tui.app.widgets.paged_list import PagedList

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
CAST = IMAGES / "tui-session.cast"
WIDTH, HEIGHT = 100, 30
SIZES = ((80, 24), (120, 40), (40, 12))
PATIENCE = 300.0  # seconds
IDLE = 1.5  # seconds that a recording stands still at most


def main() -> int:
    """Make them."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        if "--session" in sys.argv:
            record(Path(scratch))
        else:
            store = make_demo(Path(scratch) / "samples")
            with Ledger(store) as ledger:
                ledger.pin("c11")
                ledger.mark("c12", "known", "https://github.com/microsoft/onnxruntime/issues/22177")
                ledger.note("c12", "count_include_pad=0 only")
            if "--all" in sys.argv:
                folder = Path(sys.argv[sys.argv.index("--all") + 1])
                folder.mkdir(parents=True, exist_ok=True)
                for width, height in SIZES:
                    for theme in (DARK, LIGHT, PLAIN):
                        name = f"{{}}-{width}x{height}-{theme}"
                        asyncio.run(pictures(store, folder, name, (width, height), theme))
            else:
                asyncio.run(pictures(store))
    return 0


async def pictures(
    store: Path,
    folder: Path = IMAGES,
    pattern: str = "tui-{}",
    size: tuple[int, int] = (WIDTH, HEIGHT),
    theme: str = DARK,
) -> None:
    """One picture after the other, of one run of the app."""
    app = OpsieveApp(store, theme=theme)

    async def take(pilot: Pilot[None], name: str) -> None:
        await save_picture(pilot, folder / f"{pattern.format(name)}.svg")

    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ClustersScreen) and app.screen.found)
        screen = app.screen
        assert isinstance(screen, ClustersScreen)
        table = screen.query_one("#clusters", PagedList)
        table.cursor = next(at for at, row in enumerate(table.rows) if row.key == "c12")
        await take(pilot, "clusters")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ClusterScreen) and app.screen.members)
        await pilot.press("2")
        await take(pilot, "cluster")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, CaseScreen) and app.screen.summary)
        for key, name in (("2", "graph"), ("4", "observed")):
            await pilot.press(key)
            await take(pilot, name)
        await pilot.press("x")
        await until(
            pilot,
            lambda: (
                isinstance(app.screen, ExportScreen) and app.screen.job is not None and app.screen.job.is_over
            ),
        )
        await take(pilot, "export")
        await pilot.press("escape", "question_mark")
        await take(pilot, "help")
        await pilot.press("escape", "escape", "escape", "C")
        await take(pilot, "campaign")
        await pilot.press("escape", "T")
        await take(pilot, "light")


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("the app never came so far")
        await pilot.pause(0.05)


async def save_picture(pilot: Pilot[None], path: Path) -> None:
    """A picture once nothing changes any more, without the fonts that it would fetch from elsewhere."""
    before = ""
    while before != (now := pilot.app.export_screenshot(title="opsieve tui")):
        before = now
        await pilot.pause(0.3)
    drawn = re.sub(r"@font-face \{[^}]*+\}\s*+", "", now)
    path.write_text(drawn)
    print(path.name)


class Recording:
    """Programs in a pseudo-terminal, one after the other, and what they print with its time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: list[str] = []
        self._clock, self._last = 0.0, time.monotonic()
        self._child, self._terminal = 0, -1
        self.seen = ""

    def begin(self, *words: str) -> None:
        """Show a command line and run it."""
        self._note(f"\x1b[1m$ {' '.join(words)}\x1b[0m\r\n")
        self.seen = ""
        self._child, self._terminal = pty.fork()
        if not self._child:
            os.chdir(self._folder)
            os.environ |= {
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                "COLUMNS": str(WIDTH),
                "LINES": str(HEIGHT),
            }
            opsieve = str(Path(sys.executable).with_name("opsieve"))
            arguments = [opsieve if words[0] == "opsieve" else sys.executable, *words[1:]]
            os.execv(arguments[0], arguments)

    def until(self, text: str) -> None:
        """Go on until it has printed this, or has ended ("")."""
        end = time.monotonic() + PATIENCE
        while not text or text not in self.seen:
            if time.monotonic() > end:
                raise RuntimeError(f"never printed {text!r}: {self.seen[-2000:]!r}")
            if not select.select([self._terminal], [], [], 1.0)[0]:
                continue
            try:
                printed = os.read(self._terminal, 1 << 16).decode("utf-8", "replace")
            except OSError:
                printed = ""
            if not printed:
                os.waitpid(self._child, 0)
                if text:
                    raise RuntimeError(f"it ended without {text!r}")
                return
            self.seen += printed
            self._note(printed)

    def keys(self, text: str, then: str) -> None:
        """Press keys, one after the other, and wait for what they bring."""
        self.seen = ""
        for key in text:
            os.write(self._terminal, key.encode())
            time.sleep(0.15)
        self.until(then)
        time.sleep(1.0)

    def _note(self, printed: str) -> None:
        now = time.monotonic()
        self._clock, self._last = self._clock + min(IDLE, now - self._last), now
        self._lines.append(json.dumps([round(self._clock, 3), "o", printed]))

    def save(self) -> None:
        """Write the recording, in asciinema's format, version 2."""
        head = {
            "version": 2,
            "width": WIDTH,
            "height": HEIGHT,
            "title": "opsieve: from a campaign to a script",
            "env": {"TERM": "xterm-256color"},
        }
        text = "\n".join([json.dumps(head), *self._lines]) + "\n"
        CAST.write_text(text.replace(str(self._folder), "~"))


def record(folder: Path) -> None:
    """fuzz -> clusters -> reduce -> export -> the script runs."""
    tape = Recording(folder)
    targets = ["--target", "onnxslim", "--target", "onnxoptimizer"]
    tape.begin(
        "opsieve", "fuzz", "--store", "weekend", *targets, "--seed", "1", "--tests", "150", "--no-probe"
    )
    tape.until("")
    tape.begin("opsieve", "tui", "--store", "weekend")
    tape.until("clusters")
    time.sleep(2)
    tape.keys("/target:onnxoptimizer\r", "onnxopt")
    tape.keys("\r", "members")
    tape.keys("r", "job 1")
    tape.keys("J", "active")
    tape.until("done")
    time.sleep(2)
    tape.keys("q", "members")
    tape.keys("x", "exactly")
    tape.keys("\r", "wrote")
    tape.keys("qqq", "")
    tape.begin("python", "repro.py")
    tape.until("")
    tape.save()
    shutil.rmtree(folder / "weekend", ignore_errors=True)
    print(CAST.name)


if __name__ == "__main__":
    sys.exit(main())
