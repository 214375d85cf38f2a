"""What can be done to a cluster or a case from any screen: decisions that can be undone, jobs, exports.

A screen that shows something to act on has a `subject`. ACTIONS is the registry: keys, palette and help come
from it. Every action is a command, too, which help shows: `equivalent`.
"""

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opsieve.gen.errors import BadInput
from opsieve.tui.app.protocol import ActionSubject, TriageApp
from opsieve.tui.app.screens.case_screen import CaseScreen
from opsieve.tui.app.screens.export_screen import ExportScreen
from opsieve.tui.app.services.background import in_background
from opsieve.tui.app.services.editor import edited, editor_command
from opsieve.tui.app.services.job_board import OPSIEVE, REDUCE
from opsieve.tui.app.widgets.dialogs import ChoiceDialog, LineDialog
from opsieve.tui.app.widgets.visible import one_line

if TYPE_CHECKING:
    from opsieve.triage.store.rows import CaseDetails

STATUSES = (
    ("new", "new: nobody looked at it"),
    ("confirmed", "confirmed: a bug, not reported yet"),
    ("known", "known: it has an issue"),
    ("fixed", "fixed: gone in a later version"),
    ("wontfix", "wontfix: it stays as it is"),
)
BACKENDS_WITH_RELEASES = ("onnxruntime", "onnxoptimizer", "onnxsim", "onnxscript", "onnxslim")


class Actions:
    """The actions of one app. Questions and decisions run in threads; a notice says what they did."""

    def __init__(self, app: TriageApp) -> None:
        self._app = app

    def mark(self, subject: ActionSubject) -> None:
        """Choose a status for the cluster, or for all that are marked."""
        names = subject.marked or (subject.cluster.id,)

        def chosen(status: str | None) -> None:
            if status is not None:
                self._app.decide(*(lambda ledger, name=name: ledger.mark(name, status) for name in names))

        self._app.push_screen(
            ChoiceDialog(f"Mark {', '.join(names)[:60]} as", STATUSES, subject.cluster.status), chosen
        )

    def pin(self, subject: ActionSubject) -> None:
        """Put the cluster, or all that are marked, before all others, or no longer."""
        on, names = not subject.cluster.pinned, subject.marked or (subject.cluster.id,)
        self._app.decide(*(lambda ledger, name=name: ledger.pin(name, on) for name in names))

    def note(self, subject: ActionSubject) -> None:
        """Write the note of the cluster, or of all that are marked."""
        row, names = subject.cluster, subject.marked or (subject.cluster.id,)

        def written(text: str) -> None:
            self._app.decide(*(lambda ledger, name=name: ledger.note(name, text) for name in names))

        self._line(f"Note on {', '.join(names)[:60]}", row.note, "empty removes it", written)

    def rename(self, subject: ActionSubject) -> None:
        """Write a title of one's own."""
        row = subject.cluster
        own = row.title if row.title != row.own_title else ""

        def written(text: str) -> None:
            self._app.decide(lambda ledger: ledger.rename(row.id, text))

        self._line(f"Title of {row.id}", own, one_line(row.own_title, 200), written)

    def issue(self, subject: ActionSubject) -> None:
        """Link the cluster to an issue, which makes it known; an empty address takes the link away."""
        row = subject.cluster
        status = row.status if row.status in ("confirmed", "fixed", "wontfix") else "known"

        def written(text: str) -> None:
            kept = status if text else row.status
            self._app.decide(lambda ledger: ledger.mark(row.id, kept, text))  # type: ignore[arg-type]

        self._line(f"Address of the issue of {row.id}", row.issue, "https://… (empty removes it)", written)

    def merge(self, subject: ActionSubject) -> None:
        """Make the marked clusters part of the one under the cursor; without marks ask for one."""
        row = subject.cluster
        others = [name for name in subject.marked if name != row.id]
        if others:
            self._app.decide(lambda ledger: ledger.merge(row.id, *others))
            self._app.forget_marks()
            return

        def written(text: str) -> None:
            if text:
                self._app.decide(lambda ledger: ledger.merge(row.id, *text.split()))

        self._line(f"Merge into {row.id}", "", "c17 c23 (or select rows with space first)", written)

    def split(self, name: str) -> None:
        """Take a fingerprint or a member out of its cluster."""
        self._app.decide(lambda ledger: ledger.split(name))

    def export(self, subject: ActionSubject) -> None:
        """Show what a script, an issue, a test or a zip would be."""
        self._app.push_screen(ExportScreen(subject))

    def edit(self, subject: ActionSubject) -> None:
        """Open the script of the case, or what else tells of it, in $EDITOR."""

        def found(case: "CaseDetails") -> None:
            self._app.show_notice(*edited(self._app.suspend, editor_command(_kept(case), os.environ)))

        self._with_case(subject, found)

    def copy(self, subject: ActionSubject) -> None:
        """Copy the command that shows this."""
        text = equivalent(ACTIONS["copy"], subject, self._app.folder)
        self._app.copy_to_clipboard(text)
        self._app.show_notice(f"copied: {text}")

    def replay(self, subject: ActionSubject) -> None:
        """Run the case again, on its own target or another."""
        beneath = self._app.screen

        def written(target: str | None) -> None:
            if target is None:
                return
            if isinstance(beneath, CaseScreen):
                beneath.replay(target)
            else:
                member = subject.member or subject.cluster.representative
                self._app.push_screen(CaseScreen(subject.cluster, member, replay_on=target))

        if not subject.member and not subject.cluster.representative:
            self._app.show_notice(f"no case of {subject.cluster.id} was kept", "error")
            return
        own = subject.cluster.targets[0] if subject.cluster.targets else ""
        hint = f"empty: its own ({one_line(own, 60)}); or onnxruntime==1.20.1, tvm, …"
        self._app.push_screen(LineDialog("Replay on which target?", "", hint), written)

    def _line(self, question: str, text: str, hint: str, use: Callable[[str], None]) -> None:
        def written(answer: str | None) -> None:
            if answer is not None:
                use(answer)

        self._app.push_screen(LineDialog(question, one_line(text, 2000), hint), written)

    # -- jobs

    def reduce(self, subject: ActionSubject) -> None:
        """Make the case small, then tell failures apart by what is left."""

        def found(case: "CaseDetails") -> None:
            from opsieve.backends.releases.consent import named_by_file

            place = _kept(case)
            output = place / "reduced"
            command = (
                *REDUCE,
                str(place),
                "-t",
                named_by_file(case.member.target),
                "-o",
                str(output),
                "--json",
                *self._offline(),
            )
            self._app.run_job(
                "reduce", case.cluster, command, self._take_up(), watched=output / "attempts.jsonl"
            )

        self._with_case(subject, found, many=True)

    def attribute(self, subject: ActionSubject) -> None:
        """Find the guilty pass, then take it up."""

        def found(case: "CaseDetails") -> None:
            from opsieve.backends.releases.consent import named_by_file

            target = named_by_file(case.member.target)
            command = (*OPSIEVE, "attribute", str(_kept(case)), "-t", target, "--json", *self._offline())
            self._app.run_job("attribute", case.cluster, command, self._take_up())

        self._with_case(subject, found, many=True)

    def bisect(self, subject: ActionSubject) -> None:
        """Find the first bad release, then take it up."""

        def found(case: "CaseDetails") -> None:
            backend = case.member.target.partition("==")[0].partition("@")[0].partition(":")[0]
            if backend not in BACKENDS_WITH_RELEASES:
                raise BadInput(
                    f"releases of {one_line(backend, 60)} cannot be searched; use opsieve bisect --commits on"
                    " a repository"
                )
            command = (
                *OPSIEVE,
                "bisect",
                str(_kept(case)),
                "--releases",
                backend,
                "--json",
                *self._offline(),
            )
            self._app.run_job("bisect", case.cluster, command, self._take_up())

        self._with_case(subject, found, many=True)

    def _take_up(self) -> tuple[str, ...]:
        return (*OPSIEVE, "triage", str(self._app.folder))

    def _offline(self) -> tuple[str, ...]:
        return ("--offline",) if self._app.offline else ()

    def _with_case(
        self, subject: ActionSubject, use: "Callable[[CaseDetails], None]", *, many: bool = False
    ) -> None:
        """Look the case of the subject up, or of all that are marked, and use it."""

        def answered(case: "CaseDetails") -> None:
            try:
                use(case)
            except BadInput as error:
                self._app.show_notice(str(error), "error")

        def asked() -> "list[CaseDetails]":
            return [
                self._app.store.case(name) for name in (subject.marked if many else ()) or (subject.name,)
            ]

        def each(cases: "list[CaseDetails]") -> None:
            for case in cases:
                answered(case)

        in_background(self._app.screen, "case-of-subject", asked, each)


@dataclass(frozen=True, slots=True)
class Action:
    """A key and what it does to a subject; `shown` in the footer, always in help and palette."""

    name: str
    key: str
    title: str
    command: str
    run: Callable[[Actions, ActionSubject], None]
    shown: bool = False


_STORE = " --store {store}"
ACTIONS = {
    action.name: action
    for action in (
        Action("mark", "m", "Mark", "opsieve mark {cluster} confirmed" + _STORE, Actions.mark, shown=True),
        Action(
            "export", "x", "Export", "opsieve export {name} --as script" + _STORE, Actions.export, shown=True
        ),
        Action("reduce", "r", "Reduce", "reduce {name}" + _STORE, Actions.reduce, shown=True),
        Action("pin", "p", "Pin or unpin", "opsieve pin {cluster}" + _STORE, Actions.pin),
        Action("note", "n", "Note", "opsieve note {cluster} TEXT" + _STORE, Actions.note),
        Action("rename", "t", "Title", "opsieve rename {cluster} TITLE" + _STORE, Actions.rename),
        Action(
            "issue", "i", "Link an issue", "opsieve mark {cluster} known --issue URL" + _STORE, Actions.issue
        ),
        Action(
            "merge",
            "M",
            "Merge selected into this",
            "opsieve merge {cluster} {others}" + _STORE,
            Actions.merge,
        ),
        Action(
            "attribute", "a", "Attribute to a pass", "opsieve attribute {case} -t {target}", Actions.attribute
        ),
        Action(
            "bisect", "b", "Bisect releases", "opsieve bisect {case} --releases {backend}", Actions.bisect
        ),
        Action("replay", "R", "Replay", "opsieve run {case} -t {target}", Actions.replay),
        Action("edit", "e", "Edit in $EDITOR", "$EDITOR {case}/case.json", Actions.edit),
        Action("copy", "y", "Copy the command for this", "opsieve show {name} --why" + _STORE, Actions.copy),
    )
}


def equivalent(action: Action, subject: ActionSubject, folder: Path) -> str:
    """The command that does what the key does. Words in capitals are the user's to choose."""
    cluster, member = subject.cluster, subject.member or subject.cluster.representative
    target = one_line(cluster.targets[0], 200) if cluster.targets else "TARGET"
    others = [shlex.quote(name) for name in subject.marked if name != cluster.id]
    return action.command.format(
        cluster=shlex.quote(cluster.id),
        name=shlex.quote(subject.name),
        case=shlex.quote(str(folder / member)) if member else "CASE",
        others=" ".join(others) or "OTHER...",
        target=shlex.quote(target),
        backend=shlex.quote(re.split("==|[@:]", target)[0]),
        store=shlex.quote(str(folder)),
    )


def equivalents(subject: ActionSubject | None, folder: Path) -> list[tuple[str, str]]:
    """The key of each action and its command; none where there is nothing to act on."""
    return (
        []
        if subject is None
        else [(each.key, equivalent(each, subject, folder)) for each in ACTIONS.values()]
    )


def _kept(case: "CaseDetails") -> Path:
    if case.folder is None:
        raise BadInput(
            "the case of this failure was not kept, it is only counted; open the cluster and choose a member"
            " with a case"
        )
    return case.folder
