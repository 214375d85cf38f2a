"""One cluster: its members, why each is here, what looks like it, what was decided, and how two members
differ.
"""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from opsieve.gen.model.printable import counted
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.rows import ClusterRow, FingerprintRow, MemberPage, MemberRow, RelatedRow
from opsieve.tui.app.protocol import ActionSubject, app_of
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.services.background import in_background
from opsieve.tui.app.views.rows_shown import (
    MEMBERS,
    cluster_lines,
    fingerprint_lines,
    history_lines,
    member_cells,
    member_difference,
    related_lines,
)
from opsieve.tui.app.widgets.dialogs import ChoiceDialog
from opsieve.tui.app.widgets.key_footer import KeyFooter
from opsieve.tui.app.widgets.lines_view import LinesView
from opsieve.tui.app.widgets.page_bar import PageBar
from opsieve.tui.app.widgets.paged_list import PagedList
from opsieve.tui.app.widgets.steady_screen import SteadyScreen
from opsieve.tui.app.widgets.visible import Line, one_line

PAGES = ("about", "why", "related", "history", "difference")
FIRST, PAGE, FAR = 200, 1000, 5000


class ClusterScreen(SteadyScreen[None]):
    """Members over, or beside, a page about the cluster."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012  Textual's declaration
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(at + 1), f"page({at})", name.capitalize(), show=False)
            for at, name in enumerate(PAGES)
        ),
        Binding("right_square_bracket", "turn(1)", "Next page", key_display="]", show=False),
        Binding("left_square_bracket", "turn(-1)", "Page before", key_display="[", show=False),
        Binding("s", "split", "Split"),
        Binding("d", "difference", "Difference of two selected members", show=False),
        Binding("o", "open_related", "Open a related cluster", show=False),
        Binding("escape,q,h", "app.back", "Back"),
    ]

    def __init__(self, row: ClusterRow) -> None:
        super().__init__()
        self.row = row
        self.members: dict[str, MemberRow] = {}
        self.related: tuple[RelatedRow, ...] = ()
        self.next = ""
        self.problem = ""
        self._seen = -1

    @property
    def subject(self) -> ActionSubject:
        """The cluster, and the member under the cursor; without it as long as the screen is being made."""
        under = next((shown.row for shown in self.query("#members").results(PagedList)), None)
        return ActionSubject(self.row, (), under.key if under is not None else "")

    def compose(self) -> ComposeResult:
        """A line of figures, the members, the pages."""
        yield Static(id="figures", markup=False)
        with Container(id="panes"):
            yield PagedList(MEMBERS, empty="…", id="members")
            with Container(id="beside"):
                yield PageBar(PAGES, id="pages")
                yield LinesView(wrap=True, id="page")
        yield KeyFooter()

    def on_mount(self) -> None:
        """Ask for the members."""
        self.query_one("#members").focus()
        self._seen = app_of(self).revision
        self.load()

    def on_screen_resume(self) -> None:
        """What changed while another screen was there is shown now."""
        if self._seen not in (-1, app_of(self).revision):
            self.store_changed()

    def store_changed(self) -> None:
        """Somebody wrote to the store: load it again, in place."""
        self._seen = app_of(self).revision
        self.load(keep=True)

    def load(self, keep: bool = False) -> None:
        """Ask for the cluster and its members."""
        store, name = app_of(self).store, self.row.id
        wanted = max(FIRST, len(self.members)) if keep else FIRST

        def found() -> tuple[ClusterRow, MemberPage]:
            return store.cluster(name), pages(store, name, "", wanted)

        in_background(self, "rows", found, lambda both: self._first(both, keep), self._refuse)

    def _first(self, found: tuple[ClusterRow, MemberPage], keep: bool) -> None:
        self.problem = ""
        self.row, page = found
        self.members = {row.name: row for row in page.rows}
        self.next = page.next
        table = self.query_one("#members", PagedList)
        table.empty = "no members"
        table.show(
            [member_cells(row, app_of(self).now()) for row in page.rows], complete=not page.next, keep=keep
        )
        self._figures()
        self._show_page(keep=keep)

    def _refuse(self, sentence: str) -> None:
        self.problem = sentence
        self._figures()

    @on(PagedList.More, "#members")
    def more(self, event: PagedList.More) -> None:
        """The next members."""
        store, name, after, far = app_of(self).store, self.row.id, self.next, event.far

        def further(page: MemberPage) -> None:
            table = self.query_one("#members", PagedList)
            self.members |= {row.name: row for row in page.rows}
            self.next = page.next
            table.extend([member_cells(row, app_of(self).now()) for row in page.rows], complete=not page.next)
            if far:
                table.cursor = len(table.rows) - 1
            self._figures()

        if after:
            in_background(
                self, "rows", lambda: pages(store, name, after, FAR if far else PAGE), further, self._refuse
            )

    def _figures(self) -> None:
        line = self.query_one("#figures", Static)
        line.set_class(bool(self.problem), "problem")
        if self.problem:
            line.update(one_line(self.problem))
            return
        row = self.row
        pinned = " *" if row.pinned else ""
        line.update(
            f"{row.id}{pinned}  {row.status}  {len(self.members):,} of {counted(row.members, 'member')} "
            f" {one_line(row.title, 300)}"
        )

    # -- pages

    @on(PageBar.Picked)
    def _show_page(self, keep: bool = False) -> None:
        store, row, now = app_of(self).store, self.row, app_of(self).now()
        view = self.query_one("#page", LinesView)
        name = self.query_one(PageBar).name_of_page

        def show(lines: Sequence[Line]) -> None:
            view.show(lines, keep=keep is True)

        def refused(sentence: str) -> None:
            show([((one_line(sentence), "bad"),)])

        if name == "about":

            def about(found: Sequence[FingerprintRow]) -> None:
                show([*cluster_lines(row, now), *fingerprint_lines(found, components=False)])

            in_background(self, "page", lambda: store.fingerprints(row.id), about, refused)
        elif name == "why":
            in_background(
                self,
                "page",
                lambda: store.fingerprints(row.id),
                lambda found: show(fingerprint_lines(found)[1:]),
                refused,
            )
        elif name == "related":
            in_background(self, "page", lambda: store.related(row.id), self._relate, refused)
        elif name == "history":
            in_background(
                self, "page", lambda: store.history(row.id), lambda found: show(history_lines(found)), refused
            )
        else:
            show(self._difference())

    def _relate(self, found: tuple[RelatedRow, ...]) -> None:
        self.related = found
        hint: list[Line] = [(), (("o opens one of them", "dim"),)] if found else []
        self.query_one("#page", LinesView).show([*related_lines(found), *hint], keep=True)

    def _difference(self) -> list[Line]:
        table = self.query_one("#members", PagedList)
        names = [name for name in table.marked if name in self.members]
        if len(names) < 2 and table.row is not None and len(self.members) > 1:
            first = next(iter(self.members)) if not names else names[0]
            names = [first, table.row.key]
        if len(names) < 2 or names[0] == names[1]:
            return [(("select two members with space, or move the cursor off the first one", "dim"),)]
        return member_difference(self.members[names[-2]], self.members[names[-1]])

    @on(PagedList.Highlighted, "#members")
    def follow(self) -> None:
        """The difference follows the cursor."""
        if self.query_one(PageBar).name_of_page == "difference":
            self._show_page()

    def action_page(self, at: int) -> None:
        """Show a page."""
        self.query_one(PageBar).current = at

    def action_turn(self, by: int) -> None:
        """The next page, or the one before."""
        self.query_one(PageBar).current += by

    def action_difference(self) -> None:
        """How two members differ."""
        self.query_one(PageBar).current = PAGES.index("difference")
        self._show_page()

    def action_open_related(self) -> None:
        """Choose a related cluster to open."""
        store, name = app_of(self).store, self.row.id

        def found(related: tuple[RelatedRow, ...]) -> None:
            if not related:
                app_of(self).show_notice("no other cluster looks like this one")
                return
            rows = {each.cluster.id: each.cluster for each in related}
            options = [
                (each.cluster.id, f"{each.cluster.id} {each.score:.2f} {one_line(each.cluster.title, 80)}")
                for each in related
            ]

            def chosen(other: str | None) -> None:
                if other:
                    self.app.push_screen(ClusterScreen(rows[other]))

            self.app.push_screen(ChoiceDialog(f"Open a cluster like {name}", options), chosen)

        in_background(self, "related", lambda: store.related(name), found)

    def action_split(self) -> None:
        """Choose what leaves: a fingerprint, or the member under the cursor."""
        store, row, member = app_of(self).store, self.row, self.subject.member

        def chosen(name: str | None) -> None:
            if name:
                app_of(self).decide(lambda ledger: ledger.split(name))

        def found(fingerprints: Sequence[object]) -> None:
            rows = [each for each in fingerprints if isinstance(each, FingerprintRow)]
            options = [(member, f"member {one_line(member, 120)}")] if member else []
            if len(rows) > 1:
                options += [
                    (each.key, f"fingerprint {one_line(each.key, 80)}, {counted(each.count, 'failure')}")
                    for each in rows[:100]
                ]
            if row.members < 2 or not options:
                app_of(self).show_notice(f"{row.id} has one member; there is nothing to split")
                return
            self.app.push_screen(ChoiceDialog(f"What leaves {row.id}?", options), chosen)

        in_background(self, "split", lambda: store.fingerprints(row.id), found)

    @on(PagedList.Chosen, "#members")
    def open(self, event: PagedList.Chosen) -> None:
        """Drill into a member."""
        self.app.push_screen(CaseScreen(self.row, event.row.key))


def pages(store: Queries, name: str, after: str, wanted: int) -> MemberPage:
    """So many members behind a place, a page at a time."""
    rows: list[MemberRow] = []
    while True:
        page = store.members(name, after=after, limit=min(PAGE, wanted - len(rows)))
        rows += page.rows
        after = page.next
        if not after or len(rows) >= wanted:
            return MemberPage(tuple(rows), page.total, after)
