"""Keys at random, faster than screens are made: the app stays up, whatever they meet."""

import asyncio
import faulthandler
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from tui_driving import app_of, drive, opened, store_at, until

from opsieve.gen.model.printable import count_noun

NAMED = [
    *(
        "enter",
        "escape",
        "tab",
        "shift+tab",
        "space",
        "up",
        "down",
        "left",
        "right",
        "pageup",
        "pagedown",
        "home",
    ),
    *("end", "ctrl+d", "ctrl+u", "ctrl+r", "ctrl+p", "backspace", "delete"),
]
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789CGJMRST?/[]:-"
KEYS = [
    *(events.Key(name, None) for name in NAMED),
    *(events.Key(_character_to_key(c), c) for c in CHARACTERS),
]


ROUNDS, LONG = 40, 500  # at each size, each on a store of its own
SIZES = ((80, 24), (120, 40), (40, 12))
BUSY = 8  # in one round of so many, a campaign writes into the store


def of_textual_alone(error: Exception) -> bool:
    """Whether no code of ours is in a fault, save what hands messages on: of the command palette, which looks
    for an option that is gone.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tui/app/" in frame.filename]
    return all(frame.name in ("_dispatch_message", "on_event") for frame in frames)


@contextmanager
def running_campaign(store: Path) -> Iterator[None]:
    """A campaign that goes on writing failures into a store until it is interrupted."""
    words = ("fuzz", "-t", "fake:crash@Relu", "-t", "fake:wrong@Tanh", "--no-probe", "--seed", "1")
    with subprocess.Popen(
        [sys.executable, "-m", "opsieve", *words, "--store", store],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as campaign:
        yield
        assert campaign.poll() is None, "the campaign ended before it was interrupted"
        campaign.send_signal(signal.SIGINT)


def storm(folder: Path, seed: int, keys: int, size: tuple[int, int], *, busy: bool = False) -> int:
    """Send keys drawn from a seed in bursts, with a new size of the terminal now and then, and count the
    faults of Textual alone; there is none of ours.

    What jobs would run is `true`, and nothing quits. With `busy`, a campaign writes into the store.
    """
    app = app_of(store_at(folder))
    draw, handle, of_textual = random.Random(seed), app._handle_exception, []

    def sorted_out(error: Exception) -> None:
        if of_textual_alone(error):
            of_textual.append(error)
        else:
            traceback.print_exception(error)
            handle(error)

    app._handle_exception = sorted_out  # type: ignore[method-assign]

    async def journey(pilot: Pilot[None]) -> None:
        await opened(pilot)
        quit_for_good, start = app.exit, app.board.start_job
        app.exit = lambda *_: None  # type: ignore[method-assign, assignment]
        app.board.start_job = lambda kind, subject, *_, **__: start(kind, subject, ("true",))  # type: ignore[method-assign]
        sent = 0
        while sent < keys:
            for _ in range(draw.randint(1, 12)):
                key = draw.choice(KEYS)
                app.post_message(events.Key(key.key, key.character))
                sent += 1
            # Mostly the next burst comes while screens of this one are being made.
            await (pilot.pause() if draw.random() < 0.2 else asyncio.sleep(0))
            if draw.random() < 0.05:
                await pilot.resize_terminal(*draw.choice(SIZES))
            assert app.is_running
        waiting = app._type_ahead._waiting
        while left := len(waiting):
            await until(pilot, lambda left=left: len(waiting) < left, "the next key is done")  # type: ignore[misc]
        app.exit = quit_for_good  # type: ignore[method-assign]

    with running_campaign(folder) if busy else nullcontext():
        drive(app, journey, size)
    return len(of_textual)


def test_a_storm_of_keys_ends_nothing(tmp_path: Path) -> None:
    storm(tmp_path / "s", 1, 100, (80, 24))


def send_storms(folder: Path, size: tuple[int, int]) -> None:
    """Send all storms of one size."""
    faulthandler.enable()
    of_textual = 0
    for seed in range(ROUNDS):
        of_textual += storm(folder / f"s{seed}", seed, LONG, size, busy=seed % BUSY == 0)
        print(
            f"{size[0]}x{size[1]}: {(seed + 1) * LONG:,} keys, {count_noun(of_textual, 'fault')} of Textual"
            " alone",
            flush=True,
        )


@pytest.mark.slow(seconds=300)
@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40", "40x12"])
def test_twenty_thousand_keys_end_nothing(tmp_path: Path, size: tuple[int, int]) -> None:
    # In a process of its own, as the app has: one that a signal ends is seen here by its exit code.
    storms = get_context("spawn").Process(target=send_storms, args=(tmp_path, size))
    storms.start()
    storms.join()
    assert storms.exitcode == 0
