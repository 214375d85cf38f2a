"""Keys at random, faster than screens are made: the app stays up, whatever they meet."""

import random
from pathlib import Path

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from tui_driving import app_of, drive, opened, store_at

NAMED = [
    *("enter", "escape", "tab", "shift+tab", "space", "up", "down", "left", "right", "pageup", "pagedown", "home"),
    *("end", "ctrl+d", "ctrl+u", "ctrl+r", "ctrl+o", "ctrl+p", "backspace", "delete"),
]
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789CGJMRST?/[]:-"
KEYS = [*(events.Key(name, None) for name in NAMED), *(events.Key(_character_to_key(c), c) for c in CHARACTERS)]


def storm(folder: Path, seed: int, keys: int, size: tuple[int, int]) -> None:
    """Send keys drawn from a seed in bursts; what jobs would run is `true`, and nothing quits."""
    app = app_of(store_at(folder))
    draw = random.Random(seed)

    async def journey(pilot: Pilot[None]) -> None:
        await opened(pilot)
        quit_for_good, start = app.exit, app.board.start
        app.exit = lambda *_: None  # type: ignore[method-assign, assignment]
        app.board.start = lambda kind, subject, *_, **__: start(kind, subject, ("true",))  # type: ignore[method-assign]
        sent = 0
        while sent < keys:
            for _ in range(draw.randint(1, 12)):
                key = draw.choice(KEYS)
                app.post_message(events.Key(key.key, key.character))
                sent += 1
            await pilot.pause()
            assert app.is_running
        app.faults.clear()  # of Textual's own widgets, its command palette most of all, of which each was shown and ended nothing
        app.exit = quit_for_good  # type: ignore[method-assign]

    drive(app, journey, size)


def test_a_storm_of_keys_ends_nothing(tmp_path: Path) -> None:
    storm(tmp_path / "s", 1, 100, (80, 24))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)], ids=str)
def test_twenty_thousand_keys_end_nothing(tmp_path: Path, size: tuple[int, int]) -> None:
    for seed in range(34):
        storm(tmp_path / f"s{seed}", seed, 200, size)
