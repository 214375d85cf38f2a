"""The list of clusters: sorted by a click, with columns of one's choice, colours, several rows, and keys of one's own."""

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input
from tui_driving import app_of, drive, on_screen, shows, store_at, text_of, until

from opsieve.gen.errors import BadInput
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.services.editor import read_keys
from opsieve.tui.app.views.rows_shown import make_bar
from opsieve.tui.app.widgets.paged_list import PagedList
from opsieve.tui.app.widgets.screens import LineDialog

WIDE = (119, 40)  # the list above its preview


async def listed(pilot: Pilot[None]) -> tuple[ClustersScreen, PagedList]:
    screen = await on_screen(pilot, ClustersScreen)
    await until(pilot, lambda: screen.found)
    return screen, screen.query_one("#clusters", PagedList)


def test_a_click_on_a_title_sorts_and_a_second_one_reverses(tmp_path: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen, table = await listed(pilot)
        head = text_of(app).splitlines()[table.region.y]
        await pilot.click("#clusters", offset=(head.index("failures") + 1, 0))
        await until(pilot, lambda: (screen.sort, screen.reversed) == ("members", False))
        many = [int(row.cells[5]) for row in table.rows]
        assert many == sorted(many, reverse=True)
        await pilot.click("#clusters", offset=(head.index("failures") + 1, 0))
        await until(pilot, lambda: screen.reversed)
        await pilot.click("#clusters", offset=(head.index("compiler") + 1, 0))
        assert screen.sort == "members"

    app = app_of(store_at(tmp_path / "s"))
    drive(app, journey, WIDE)


def test_a_column_is_shown_and_hidden_even_if_it_had_no_room(tmp_path: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        _, table = await listed(pilot)
        for there in (True, False):
            assert ("bar" in drawn(table)) != there
            await pilot.press("c")
            await shows(pilot, "Show or hide which column?", "bar" if there else "bar (shown)")
            await pilot.press("b")
            await until(pilot, lambda there=there: ("bar" in drawn(table)) == there)
            assert "title" in drawn(table)

    app = app_of(store_at(tmp_path / "s"))
    drive(app, journey, (80, 24))


def drawn(table: PagedList) -> set[str]:
    return {table.columns[at].title for at, _ in table.fitting}


def test_matches_kinds_and_counts_stand_out(tmp_path: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        _, table = await listed(pilot)
        row = next(row for row in table.rows if row.cells[3] == "crash")
        assert row.tones[3] == "bad"
        await pilot.press("slash", *"kernel")
        await until(pilot, lambda: table.words == ("kernel",) and len(table.rows) == 2)
        segments = [segment for segment in table.render_line(2) if segment.text == "kernel"]
        assert [segment.style and segment.style.underline for segment in segments] == [True]

    app = app_of(store_at(tmp_path / "s"))
    drive(app, journey, WIDE)
    assert [len(make_bar(count, 1000, 6)) for count in (1, 1000)] == [1, 6]
    assert [len(make_bar(count, 1000, 6)) for count in (30, 100)] == [3, 4]


def test_an_issue_is_linked_to_every_selected_row_and_undo_is_visible(tmp_path: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen, _ = await listed(pilot)
        await pilot.press("space", "space", "i")
        dialog = await on_screen(pilot, LineDialog)
        dialog.query_one(Input).value = "https://example.org/1"
        await pilot.press("enter")
        await until(
            pilot, lambda: [row.issue for row in screen.found.values()].count("https://example.org/1") == 2
        )
        await shows(pilot, "u undoes: marked c")
        before = screen.decided
        await pilot.press("u")
        await until(pilot, lambda: screen.decided and screen.decided != before)

    app = app_of(store_at(tmp_path / "s"))
    drive(app, journey, WIDE)


def test_a_key_of_ones_own_runs_a_command_with_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "opsieve").mkdir(parents=True)
    file = tmp_path / "config" / "opsieve" / "keys.toml"
    file.write_text("f5 = 'my-viewer --tidy {case} {cluster}'\n")
    told: list[str] = []

    async def journey(pilot: Pilot[None]) -> None:
        await listed(pilot)
        monkeypatch.setattr(app, "show_notice", lambda sentence, severity="": told.append(sentence))
        await pilot.press("f5")
        # The terminal of a test cannot be given away
        await until(pilot, lambda: told)

    store = store_at(tmp_path / "s")
    app = app_of(store)
    drive(app, journey, WIDE)
    assert "run: my-viewer --tidy " in told[0]
    assert f"{store}/cases/" in told[0]
    assert told[0].rstrip().rpartition(" ")[2].startswith("c")
    file.write_text("f5 = 3\n")
    with pytest.raises(BadInput, match="must hold lines such as"):
        read_keys()
