"""The terminal app, screen by screen and key by key, on a store that was made up."""

import asyncio
import time
from pathlib import Path

import click
import pytest
from stores import CAMPAIGN, NOW, done, finding
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static
from tui_driving import (
    app_of,
    cursor_on,
    drive,
    go_to,
    on_screen,
    opened,
    shows,
    status,
    text_of,
    until,
)

from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.store import Store
from opsieve.tui.app.actions import ACTIONS
from opsieve.tui.app.app import OpsieveApp
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.screens.cluster_screen import ClusterScreen
from opsieve.tui.app.screens.clusters_screen import ClustersScreen
from opsieve.tui.app.screens.help_screen import HelpScreen
from opsieve.tui.app.screens.jobs_screen import CampaignScreen
from opsieve.tui.app.widgets.paged_list import PagedList
from opsieve.tui.app.widgets.screens import ChoiceDialog, LineDialog, LinesView, PageBar
from opsieve.tui.cli import opsieve


def test_clusters_are_listed_with_honest_figures_and_a_preview_that_follows(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await shows(pilot, "7 of 7 clusters", "19 failures", "fingerprint")
        first = cursor_on(screen)
        await pilot.press("j")
        second = cursor_on(screen)
        assert second != first
        view = screen.query_one("#preview", LinesView)
        await until(
            pilot, lambda: view.text.startswith(f"{second}  ") and "here because" in view.text, "the preview"
        )
        await pilot.press("G")
        assert cursor_on(screen) == list(screen.found)[-1]
        await pilot.press("g", "k")
        assert cursor_on(screen) == first

    drive(app_of(store), journey)


def test_the_filter_works_while_one_types_and_tells_what_it_does_not_understand(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await pilot.press("slash", *"kind:crash")
        await until(pilot, lambda: len(screen.found) == 1)
        assert next(iter(screen.found.values())).kind == "crash"
        screen.query_one("#filter", Input).value = "kind:crash since:soon"
        await shows(pilot, "is not a time")
        assert len(screen.found) == 1, "what was there stays"
        await pilot.press("enter", "escape")
        await until(pilot, lambda: screen.total == 7 and not screen.problem)
        await pilot.press("slash", *"nothing-like-it")
        await shows(pilot, "no cluster of the store has")

    drive(app_of(store), journey)


def test_marking_is_a_decision_that_undo_and_redo_follow(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        name = cursor_on(screen)
        await pilot.press("m")
        await on_screen(pilot, ChoiceDialog)
        await pilot.press("w")
        await until(pilot, lambda: screen.found[name].status == "wontfix")
        assert status(store, name) == "wontfix"
        await pilot.press("u")
        await until(pilot, lambda: screen.found[name].status == "new")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: screen.found[name].status == "wontfix")

    drive(app_of(store), journey)


def test_a_choice_is_made_by_cursor_and_left_by_escape(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await pilot.press("m")
        dialog = await on_screen(pilot, ChoiceDialog)
        assert dialog.query_one(OptionList).highlighted == 0
        await pilot.press("escape")
        await on_screen(pilot, ClustersScreen)
        await pilot.press("m")
        await on_screen(pilot, ChoiceDialog)
        await pilot.press("j", "enter")
        await until(pilot, lambda: screen.found[cursor_on(screen)].status == "confirmed")

    drive(app_of(store), journey)


@pytest.mark.slow(seconds=3)
def test_pin_note_title_and_issue(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        name = cursor_on(screen)
        await pilot.press("p")
        await until(pilot, lambda: screen.found[name].pinned)
        for key, text, get in (
            ("n", "seen on arm too", lambda: screen.found[name].note),
            ("t", "pads are lost", lambda: screen.found[name].title),
            ("i", "https://example.org/1", lambda: screen.found[name].issue),
        ):
            await pilot.press(key)
            line = await on_screen(pilot, LineDialog)
            line.query_one(Input).value = text
            await pilot.press("enter")
            await until(pilot, lambda get=get, text=text: get() == text, text)
        assert screen.found[name].status == "known"
        await pilot.press("p")
        await until(pilot, lambda: not screen.found[name].pinned)
        await pilot.press("i")
        line = await on_screen(pilot, LineDialog)
        line.query_one(Input).value = "not an address"
        await pilot.press("enter")
        await shows(pilot, "not the address of an issue")
        assert screen.found[name].issue == "https://example.org/1"

    drive(app_of(store), journey)


def test_selected_clusters_are_merged_into_the_one_under_the_cursor_and_marked_together(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        names = list(screen.found)
        await pilot.press("space", "space")
        await shows(pilot, "2 selected")
        await pilot.press("m")
        await on_screen(pilot, ChoiceDialog)
        await pilot.press("c")
        await until(
            pilot,
            lambda: [screen.found[name].status for name in names[:3]] == ["confirmed", "confirmed", "new"],
        )
        await pilot.press("M")
        await until(pilot, lambda: len(screen.found) == 5)
        assert screen.found[names[2]].fingerprints == 3
        await pilot.press("u")
        await until(pilot, lambda: len(screen.found) == 7)
        await pilot.press("M")
        line = await on_screen(pilot, LineDialog)
        line.query_one(Input).value = names[0]
        await pilot.press("enter")
        await until(pilot, lambda: len(screen.found) == 6)

    drive(app_of(store), journey)


def test_sorting_reversing_and_grouping(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await pilot.press("s")
        await on_screen(pilot, ChoiceDialog)
        await pilot.press("i")
        await until(pilot, lambda: list(screen.found) == [f"c{number}" for number in range(1, 8)])
        await pilot.press("S")
        await until(pilot, lambda: list(screen.found) == [f"c{number}" for number in range(7, 0, -1)])
        await pilot.press("v")
        await on_screen(pilot, ChoiceDialog)
        dialog = pilot.app.screen
        options = dialog.query_one(OptionList)
        options.highlighted = next(
            at for at in range(options.option_count) if options.get_option_at_index(at).id == "target"
        )
        await pilot.press("enter")
        groups = screen.query_one("#groups", PagedList)
        await until(pilot, lambda: {row.key for row in groups.rows} == {"fake", "onnxruntime"})
        assert screen.subject is None
        groups.cursor = next(at for at, row in enumerate(groups.rows) if row.key == "onnxruntime")
        await pilot.press("enter")
        await until(pilot, lambda: len(screen.found) == 1 and screen.grouping is None)
        assert screen.query_one("#filter", Input).value == "target:onnxruntime"

    drive(app_of(store), journey)


def test_a_cluster_shows_members_reasons_relatives_history_and_differences(store: Path) -> None:
    with Ledger(store) as ledger:
        ledger.merge("c1", "c5")

    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await go_to(pilot, screen, "c1")
        await pilot.press("enter")
        cluster = await on_screen(pilot, ClusterScreen)
        await until(pilot, lambda: len(cluster.members) == 6)
        page = cluster.query_one("#page", LinesView)
        await pilot.press("2")
        await until(
            pilot,
            lambda: (
                "a person merged it" in page.text and "another compiler's failure is another bug" in page.text
            ),
        )
        await pilot.press("3")
        await until(pilot, lambda: "looks like this one" in page.text or "frames in common" in page.text)
        await pilot.press("4")
        await until(pilot, lambda: "merged c5 into c1" in page.text)
        await pilot.press("d", "G")
        await until(
            pilot, lambda: "onnxruntime" in page.text and "  < " in page.text and "equal: " in page.text
        )
        await pilot.press("left_square_bracket")
        assert cluster.query_one(PageBar).page_name == "history"

    drive(app_of(store), journey)


def test_a_fingerprint_and_a_member_are_split_out(store: Path) -> None:
    with Ledger(store) as ledger:
        ledger.merge("c1", "c5")

    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await go_to(pilot, screen, "c1")
        await pilot.press("enter")
        cluster = await on_screen(pilot, ClusterScreen)
        await until(pilot, lambda: cluster.members)
        await pilot.press("s")
        dialog = await on_screen(pilot, ChoiceDialog)
        options = dialog.query_one(OptionList)
        assert options.option_count == 3
        options.highlighted = 2
        await pilot.press("enter")
        await until(pilot, lambda: cluster.row.fingerprints == 1)
        await pilot.press("s")
        await on_screen(pilot, ChoiceDialog)
        await pilot.press("enter")
        await until(pilot, lambda: cluster.row.members == 2)
        await pilot.press("escape")
        await until(pilot, lambda: len(screen.found) == 8)

    drive(app_of(store), journey)


def test_a_case_shows_its_graph_what_was_observed_its_trace_and_where_it_comes_from(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await go_to(pilot, screen, "c4")
        await pilot.press("enter")
        cluster = await on_screen(pilot, ClusterScreen)
        await until(pilot, lambda: cluster.members)
        await pilot.press("l")
        case = await on_screen(pilot, CaseScreen)
        page = case.query_one("#page", LinesView)
        for number, words in enumerate(
            (
                ("fail: it fails", r"bad \x1b[31mshape\x07 [bold]{3}[/bold]"),
                ("○  x float32", "●  Relu → ", "operators"),
                ("float32[2,3]",),
                ("fake 1.0", "compile", "error"),
                ("+ ", "infer.py infer", "message, normalised"),
                ("a crash and a wrong result are different failures",),
                ("generator", "opsets", "digest"),
                ("R runs this case again",),
            ),
            1,
        ):
            await pilot.press(str(number))
            await until(
                pilot, lambda words=words: all(word in page.text for word in words), f"page {number}: {words}"
            )
            assert page.text.replace("\n", "").isprintable()
        await pilot.press("s")
        await until(pilot, lambda: case.case is not None and case.case.cluster != "c4")

    drive(app_of(store), journey)


def test_text_of_others_cannot_act_on_the_screen(store: Path) -> None:
    with Ledger(store) as ledger:
        ledger.rename("c4", "[bold]evil\x1b]0;title\x07\u202e[/bold]")

    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await go_to(pilot, screen, "c4")
        view = screen.query_one("#preview", LinesView)
        await until(pilot, lambda: view.text.startswith("c4"))
        assert r"[bold]evil\x1b]0;title\x07\u202e[/bold]" in view.text
        assert text_of(pilot.app).replace("\n", "").isprintable()  # type: ignore[arg-type]

    drive(app_of(store), journey)


def test_help_tells_the_keys_of_the_screen_beneath(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await opened(pilot)
        await pilot.press("question_mark")
        screen = await on_screen(pilot, HelpScreen)
        text = screen.query_one("#help", LinesView).text
        for word in ("Filter", "Merge selected into this", "since:2d", "Export", "everywhere"):
            assert word in text
        # Each action has an equal command, which the command line knows.
        shown = text.partition("the same on the command line")[2].replace("\n", " ")
        known = {"reduce": "reduce", "edit": "$EDITOR", "issue": "opsieve mark", "replay": "opsieve run"}
        known |= {"copy": "opsieve show"}
        for action in ACTIONS.values():
            command = known.get(action.name, f"opsieve {action.name}")
            assert action.command.startswith(command + " ")
            assert command in shown
            assert command in ("$EDITOR", "reduce") or command.split()[1] in opsieve.list_commands(
                click.Context(opsieve)
            )
        assert "{" not in shown
        await pilot.press("escape")
        await on_screen(pilot, ClustersScreen)

    drive(app_of(store), journey)


@pytest.mark.slow(seconds=3)
def test_the_palette_finds_what_keys_do(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        name = cursor_on(screen)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: type(pilot.app.screen).__name__ == "CommandPalette")
        await pilot.press(*"Pin or")
        await shows(pilot, "Pin or unpin")
        await until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count)
        await pilot.press("down", "enter")
        await until(pilot, lambda: screen.found[name].pinned)

    drive(app_of(store), journey)


def test_themes_go_round_and_an_unknown_one_is_refused(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await opened(pilot)
        seen = []
        for _ in range(5):
            await pilot.press("T")
            seen.append(pilot.app.theme)
        assert seen == ["textual-light", "no-colour", "ansi-dark", "ansi-light", "textual-dark"]

    drive(app_of(store), journey)
    with pytest.raises(ValueError, match="there is no theme mauve"):
        OpsieveApp(store, theme="mauve")


def test_it_follows_a_resize(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await shows(pilot, "title")
        assert "operators" not in text_of(pilot.app).splitlines()[2]  # type: ignore[arg-type]
        await pilot.resize_terminal(320, 50)
        await until(pilot, lambda: screen.has_class("-wide"))
        await until(pilot, lambda: "operators" in text_of(pilot.app).splitlines()[2])  # type: ignore[arg-type]
        await pilot.resize_terminal(40, 10)
        await until(pilot, lambda: screen.size.width == 40)
        await shows(pilot, "title")

    drive(app_of(store), journey)


def test_the_mouse_moves_the_cursor_opens_and_chooses_pages(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await pilot.click("#clusters", offset=(5, 3))
        assert screen.query_one("#clusters", PagedList).cursor == 2
        await pilot.click("#clusters", offset=(5, 3), times=2)
        cluster = await on_screen(pilot, ClusterScreen)
        await pilot.click("#pages", offset=(11, 0))
        await until(pilot, lambda: cluster.query_one(PageBar).page_name == "why")

    drive(app_of(store), journey)


def test_what_a_campaign_writes_appears_and_the_cursor_stays(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        await pilot.press("j", "j")
        name = cursor_on(screen)

        def write() -> None:
            with Store(store, clock=lambda: NOW + 3000) as written:
                fresh = [
                    finding("a new one", kind="crash", frames=["main", f"new_{letter}"], signal=11)
                    for letter in "xyz"
                ]
                written.record_tests(CAMPAIGN, [done(100 + at, each) for at, each in enumerate(fresh)])

        await asyncio.to_thread(write)
        await until(pilot, lambda: screen.total == 10)
        assert cursor_on(screen) == name
        await shows(pilot, "10 of 10 clusters", "22 failures")

    drive(app_of(store), journey)


def test_the_campaign_screen_shows_figures_and_the_newest_clusters(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        await opened(pilot)
        await pilot.press("C")
        screen = await on_screen(pilot, CampaignScreen)
        view = screen.query_one("#counts", LinesView)
        await until(pilot, lambda: "19 tests, strategy small-1, seed 7" in view.text)
        for word in ("crash", "mismatch", "clusters by status", "no NonZero for"):
            assert word in view.text
        await pilot.press("enter")
        await on_screen(pilot, ClusterScreen)

    drive(app_of(store), journey, size=(160, 48))


def test_what_is_selected_stays_honest_when_there_are_more_clusters_than_are_loaded(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opsieve.tui.app.screens.clusters_screen.FIRST", 3)
    monkeypatch.setattr("opsieve.tui.app.screens.clusters_screen.PAGE", 2)
    monkeypatch.setattr("opsieve.tui.app.widgets.paged_list._NEAR", 1)

    async def journey(pilot: Pilot[None]) -> None:
        screen = await on_screen(pilot, ClustersScreen)
        table = screen.query_one("#clusters", PagedList)
        await until(
            pilot,
            lambda: "of 7 clusters" in str(screen.query_one("#figures", Static).content) and screen.found,
        )
        await pilot.press("G")
        await until(pilot, lambda: len(screen.found) == 7 and table.complete)
        assert [row.key for row in table.rows] == list(screen.found)

    drive(app_of(store), journey)


def test_keys_that_come_in_a_burst_go_where_they_would_go_one_by_one(store: Path) -> None:
    async def journey(pilot: Pilot[None]) -> None:
        screen = await opened(pilot)
        burst(pilot, "/kind:crash\r")
        await until(pilot, lambda: len(screen.found) == 1 and screen.query_one("#clusters").has_focus)
        name = cursor_on(screen)
        burst(pilot, "mc")
        await until(pilot, lambda: screen.found[name].status == "confirmed")
        burst(pilot, "nboth\r")
        await until(pilot, lambda: screen.found[name].note == "both")

    drive(app_of(store), journey)


def burst(pilot: Pilot[None], text: str) -> None:
    for character in text:
        key = {"/": "slash", ":": "colon", "\r": "enter"}.get(character, character)
        pilot.app.post_message(events.Key(key, character))


def test_a_key_behind_one_that_is_never_done_is_handled_all_the_same(store: Path) -> None:
    """The widget of a key was gone before it was done, and no further key came that gave the next one."""

    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        await opened(pilot)
        app._type_ahead._since = time.monotonic()
        app._type_ahead._waiting.append(events.Key("question_mark", "?"))
        await on_screen(pilot, HelpScreen)

    drive(app_of(store), journey)


def test_a_key_for_a_screen_that_is_still_being_made_waits_for_it(store: Path) -> None:
    """As when the machine was busy, and the key before it was acted on later than it was waited for."""

    async def journey(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, OpsieveApp)
        clusters = await opened(pilot)
        key = events.Key("3", "3")
        key._set_forwarded()  # a widget had it, and it comes back to the app
        app.push_screen(ClusterScreen(clusters.found["c1"]))
        await app.on_event(key)
        cluster = await on_screen(pilot, ClusterScreen)
        await until(pilot, lambda: cluster.query_one(PageBar).current == 2)

    drive(app_of(store), journey)
