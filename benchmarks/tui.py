"""The terminal app on a large store: start, first paint, filter, scroll, drill-in, memory; then beside a
campaign that writes.

    python benchmarks/tui.py [--failures 100000] [--clusters 5000] [--minutes 5] [--rate 100] [--store DIR]
    [--json]

Times are wall time inside the app's process, as a person would feel them, medians and worst of repetitions;
start-up is CPU time of the process. The heartbeat is a timer of 20 ms in the interface thread: how much later
than that it came is how long keys would have waited; on a machine that others use most of that is waiting for
a processor, so it is told beside it how much of it this process computed. The writer is a process of its own
that records failures; decisions are made by keys while it writes, and all of them must be there at the end.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.widgets import Input
from triage_scale import CAMPAIGN, enter, failures

from opsieve.triage.review.review import review_store
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store
from opsieve.tui.app.app import OpsieveApp
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.widgets.paged_list import PagedList
from opsieve.tui.app.widgets.screens import LinesView

BEAT = 0.02
FILTERS = (
    "kind:mismatch",
    "op:Pad",
    "target:tvm fold",
    "status:new since:2d",
    "Softmax",
    "-kind:error",
    "stage:compile rule",
    "id:c17",
)


def main() -> int:
    """Measure and print."""
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--failures", type=int, default=100_000)
    ask.add_argument("--clusters", type=int, default=5_000)
    ask.add_argument("--minutes", type=float, default=5.0)
    ask.add_argument("--rate", type=int, default=100, help="failures a second that the writer records")
    ask.add_argument("--store", type=Path, help="made if it is not there, and kept")
    ask.add_argument("--json", action="store_true")
    ask.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = ask.parse_args()
    if given.write:
        return write(given.write, given.rate, given.minutes)
    with tempfile.TemporaryDirectory(prefix="bench-tui-") as scratch:
        store = given.store or Path(scratch) / "store"
        if not (store / "index.sqlite").exists():
            with Store(store) as opened:
                opened.begin_campaign(CAMPAIGN)
                enter(opened, given.failures, given.clusters, seed=1)
            review_store(store)
        told: dict[str, Any] = {"start_up_cpu_s": [start_up(store) for _ in range(3)]}
        told |= asyncio.run(scale(store))
        if given.minutes:
            told |= asyncio.run(beside(store, given.rate, given.minutes))
    print(json.dumps(told) if given.json else "\n".join(f"{name:28} {value}" for name, value in told.items()))
    return 0


def start_up(store: Path) -> float:
    """CPU seconds of `opsieve tui` from the shell to its first list of clusters, in a pseudo-terminal, then
    quit.
    """
    import os
    import pty
    import select

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child, terminal = pty.fork()
    if not child:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        os.execv(sys.executable, [sys.executable, "-m", "opsieve", "tui", "--store", str(store)])
    seen = b""
    while b"clusters" not in seen and select.select([terminal], [], [], 30)[0]:
        seen += os.read(terminal, 1 << 16)
    os.write(terminal, b"q")
    try:
        while select.select([terminal], [], [], 30)[0] and os.read(terminal, 1 << 16):
            pass
    except OSError:
        pass  # the terminal is closed: it has ended
    os.waitpid(child, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


async def until(condition: Callable[[], object]) -> float:
    """Milliseconds until a condition holds."""
    began = time.perf_counter()
    while not condition():
        await asyncio.sleep(0.001)
        if time.perf_counter() - began > 60:
            raise RuntimeError("it never came about")
    return 1000 * (time.perf_counter() - began)


def summary(times: list[float]) -> dict[str, float]:
    return {"median_ms": round(statistics.median(times), 1), "worst_ms": round(max(times), 1)}


async def scale(store: Path) -> dict[str, Any]:
    """First paint, filters, scrolling and drilling in, on a store that nobody writes."""
    began = time.perf_counter()
    app = OpsieveApp(store, offline=True)
    told: dict[str, Any] = {}
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: isinstance(app.screen, ClustersScreen) and app.screen.found)
        told["first_paint_ms"] = round(1000 * (time.perf_counter() - began), 1)
        screen = app.screen
        assert isinstance(screen, ClustersScreen)
        table = screen.query_one("#clusters", PagedList)
        await until(lambda: screen.counts)
        told["clusters"], told["failures"] = screen.total, screen.counts.failures if screen.counts else 0
        asked, times = screen.query_one("#filter", Input), []
        for text in FILTERS * 3:
            done = asyncio.Event()
            screen._show_first = watched(screen._show_first, done)  # type: ignore[method-assign]
            start = time.perf_counter()
            asked.value = text
            await asyncio.wait_for(done.wait(), 30)
            times.append(1000 * (time.perf_counter() - start))
            del screen._show_first  # the class's own again
        told["filter"] = summary(times)
        asked.value = ""
        await until(lambda: screen.total == told["clusters"])
        times = []
        for _ in range(60):
            start = time.perf_counter()
            await pilot.press("pagedown")
            times.append(1000 * (time.perf_counter() - start))
        told["scroll_page"] = summary(times)
        start = time.perf_counter()
        await pilot.press("G")
        await until(lambda: table.complete)
        told["to_the_end_ms"] = round(1000 * (time.perf_counter() - start), 1)
        told["rows_loaded"] = len(table.rows)
        await pilot.press("g")
        times = []
        for _ in range(9):
            start = time.perf_counter()
            await pilot.press("enter")
            await until(lambda: isinstance(app.screen, ClusterScreen) and app.screen.members)
            times.append(1000 * (time.perf_counter() - start))
            await pilot.press("escape", "j")
            await until(lambda: app.screen is screen)
        told["drill_in"] = summary(times)
        view = screen.query_one("#preview", LinesView)
        told["preview_ms"] = round(await until(lambda: view.lines), 1)
        told["peak_memory_MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return told


def watched(answer: Callable[..., None], done: asyncio.Event) -> Callable[..., None]:
    """The same, and an event when it was done."""

    def both(*words: Any) -> None:
        answer(*words)
        done.set()

    return both


async def beside(store: Path, rate: int, minutes: float) -> dict[str, Any]:
    """Filter and mark for a while beside a writer; the heartbeat, and whether all decisions and failures are
    there.
    """
    app = OpsieveApp(store, offline=True)
    late: list[float] = []
    busy: list[float] = []
    troubles: list[str] = []
    marked: dict[str, str] = {}
    with Queries(store) as queries:
        before = queries.counts().failures
    writer = subprocess.Popen([sys.executable, __file__, "--write", str(store), "--rate", str(rate), "--minutes", str(minutes)], stdout=subprocess.PIPE)  # fmt: skip
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: isinstance(app.screen, ClustersScreen) and app.screen.found)
        screen = app.screen
        assert isinstance(screen, ClustersScreen)
        beating = asyncio.create_task(heartbeat(late, busy))
        tell = app.tell

        def heard(sentence: str, severity: str = "information") -> None:
            if severity == "error":
                troubles.append(sentence)
            tell(sentence, severity)

        app.tell = heard  # type: ignore[method-assign]
        asked = screen.query_one("#filter", Input)
        names, statuses, round_ = list(screen.found)[:40], ("confirmed", "known", "wontfix", "new"), 0
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end and writer.poll() is None:
            asked.value = FILTERS[round_ % len(FILTERS)] if round_ % 3 else ""
            name, status = names[round_ % len(names)], statuses[round_ % 3]
            if marked.get(name) != status:
                app.decide(lambda ledger, name=name, status=status: ledger.mark(name, status))  # type: ignore[misc]
                marked[name] = status
            await pilot.press("down")
            await asyncio.sleep(0.1)
            round_ += 1
        await app.workers.wait_for_complete([worker for worker in app.workers if worker.group == "decisions"])
        beating.cancel()
    written = json.loads(writer.communicate()[0])
    with Queries(store) as queries:
        lost = [name for name, status in marked.items() if queries.cluster(name).status != status]
        there = queries.counts().failures - before
    return {
        "beside_seconds": round(60 * minutes),
        "written": written["failures"],
        "written_per_second": written["rate"],
        "there_at_the_end": there,
        "decisions": len(marked),
        "keys": round_,
        "decisions_lost": len(lost),
        "errors_shown": troubles[:3],
        "heartbeat_late": spread(late),
        "heartbeat_late_computing": spread(busy),
    }  # fmt: skip


def spread(times: list[float]) -> dict[str, float]:
    """Milliseconds, and how many were above 100."""
    ordered = sorted(times)
    return {
        "beats": len(ordered),
        "p50_ms": round(ordered[len(ordered) // 2], 1),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)], 1),
        "worst_ms": round(ordered[-1], 1),
        "above_100_ms": sum(one > 100 for one in ordered),
    }


async def heartbeat(late: list[float], busy: list[float]) -> None:
    """Milliseconds by which each beat came too late, and those of them that this process computed: the rest
    it waited for a processor.
    """
    while True:
        began, computed = time.perf_counter(), time.process_time()
        await asyncio.sleep(BEAT)
        late.append(1000 * (time.perf_counter() - began - BEAT))
        busy.append(min(late[-1], 1000 * (time.process_time() - computed)))


def write(store: Path, rate: int, minutes: float) -> int:
    """Record failures at a rate for a while, in batches as a campaign does."""
    made = began = time.monotonic()
    count = 0
    with Store(store) as opened:
        first = opened.count_done(CAMPAIGN)
        tests = failures(10_000_000, 6000, seed=first + 7, first=first)
        while made < began + 60 * minutes:
            batch = max(1, rate // 5)
            opened.record_tests(CAMPAIGN, [next(tests) for _ in range(batch)])
            count += batch
            made = time.monotonic()
            time.sleep(max(0.0, began + count / rate - made))
    print(json.dumps({"failures": count, "rate": round(count / (time.monotonic() - began), 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
