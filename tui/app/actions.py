"""Actions on a cluster or a case from any screen: decisions that can be undone, jobs, exports.

A screen that shows something to act on has a `subject`. ACTIONS is the registry from which keys, palette and
help are made. Help shows the equivalent command of every action: `make_command`.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import quote_argument
from opsieve.tui.app.protocol import ActionSubject, TriageApp
from opsieve.tui.app.screens import case_screen, export_screen
from opsieve.tui.app.services import background, editor, job_board
from opsieve.tui.app.widgets import screens, visible

if TYPE_CHECKING:
    from opsieve.triage.store.rows import CaseDetails

STATUSES = (
    ("new", "new: not looked at yet"),
    ("confirmed", "confirmed: a bug, not reported yet"),
    ("known", "known: it has an issue"),
    ("fixed", "fixed: gone in a later version"),
    ("wontfix", "wontfix: it stays as it is"),
)
BACKENDS_WITH_RELEASES = ("onnxruntime", "onnxoptimizer", "onnxsim", "onnxscript", "onnxslim")


class Actions:
    """The actions of one app. Queries and decisions run in threads; a notice reports the result."""

    def __init__(self, app: TriageApp) -> None:
        self._app = app

    def mark_cluster(self, subject: ActionSubject) -> None:
        """Choose a status for the cluster, or for all marked ones."""
        names = subject.marked or (subject.cluster.id,)

        def set_status(status: str | None) -> None:
            if status is not None:
                self._app.decide(*(lambda ledger, name=name: ledger.mark(name, status) for name in names))

        self._app.push_screen(
            screens.ChoiceDialog(f"Mark {', '.join(names)[:60]} as", STATUSES, subject.cluster.status),
            set_status,
        )

    def pin_cluster(self, subject: ActionSubject) -> None:
        """Pin the cluster, or all marked ones, or unpin them."""
        on, names = not subject.cluster.pinned, subject.marked or (subject.cluster.id,)
        self._app.decide(*(lambda ledger, name=name: ledger.pin(name, on) for name in names))

    def note_cluster(self, subject: ActionSubject) -> None:
        """Write the note of the cluster, or of all marked ones."""
        row, names = subject.cluster, subject.marked or (subject.cluster.id,)

        def set_note(text: str) -> None:
            self._app.decide(*(lambda ledger, name=name: ledger.note(name, text) for name in names))

        self._ask_line(f"Note on {', '.join(names)[:60]}", row.note, "empty removes it", set_note)

    def rename_cluster(self, subject: ActionSubject) -> None:
        """Write the title of the cluster, or of all marked ones."""
        row, names = subject.cluster, subject.marked or (subject.cluster.id,)
        # The generated title is only the hint, so that an unchanged answer does not make it a title of one's
        # own.
        own = row.title if row.title != row.own_title else ""

        def set_title(text: str) -> None:
            self._app.decide(*(lambda ledger, name=name: ledger.rename(name, text) for name in names))

        self._ask_line(
            f"Title of {', '.join(names)[:60]}", own, visible.to_one_line(row.own_title, 200), set_title
        )

    def link_issue(self, subject: ActionSubject) -> None:
        """Link the cluster, or all marked ones, to an issue, which makes them known; an empty address removes
        the link.
        """
        row, names = subject.cluster, subject.marked or (subject.cluster.id,)
        # A link must not undo a person's judgement.
        status = row.status if row.status in ("confirmed", "fixed", "wontfix") else "known"

        def set_issue(text: str) -> None:
            # Without an issue there is no reason to change the status.
            kept = status if text else row.status
            self._app.decide(*(lambda ledger, name=name: ledger.mark(name, kept, text) for name in names))

        self._ask_line(
            f"Address of the issue of {', '.join(names)[:60]}",
            row.issue,
            "https://… (empty removes it)",
            set_issue,
        )

    def merge_clusters(self, subject: ActionSubject) -> None:
        """Merge the marked clusters into the one under the cursor; without marks open a dialog."""
        row = subject.cluster
        others = [name for name in subject.marked if name != row.id]
        if others:
            self._app.decide(lambda ledger: ledger.merge(row.id, *others))
            self._app.forget_marks()
            return

        def merge_named(text: str) -> None:
            if text:
                self._app.decide(lambda ledger: ledger.merge(row.id, *text.split()))

        self._ask_line(f"Merge into {row.id}", "", "c17 c23 (or select rows with space first)", merge_named)

    def split_member(self, name: str) -> None:
        """Move a fingerprint or a member out of its cluster."""
        self._app.decide(lambda ledger: ledger.split(name))

    def open_export(self, subject: ActionSubject) -> None:
        """Open the export screen with its script, issue, test and zip."""
        self._app.push_screen(export_screen.ExportScreen(subject))

    def edit_case(self, subject: ActionSubject) -> None:
        """Open the script or description of the case in $EDITOR."""

        def open_editor(case: "CaseDetails") -> None:
            self._app.show_notice(
                *editor.run_editor(self._app.suspend, editor.choose_command(_get_folder(case), os.environ))
            )

        self._with_case(subject, open_editor)

    def copy_command(self, subject: ActionSubject) -> None:
        """Copy the command that shows the subject."""
        commands = [
            make_command(ACTIONS["copy"], replace(subject, member=name), self._app.folder)
            for name in subject.marked or (subject.member,)
        ]
        text = "\n".join(commands)
        self._app.copy_to_clipboard(text)
        self._app.show_notice(f"copied: {text}")

    def run_custom(self, subject: ActionSubject, words: Sequence[str]) -> None:
        """Run a command of the user's configuration on the case, or on all marked ones, in the terminal."""

        def run_command(case: "CaseDetails") -> None:
            values = {
                "{case}": str(_get_folder(case)),
                "{cluster}": case.cluster,
                "{store}": str(self._app.folder),
            }
            command = []
            # Within each word after splitting: a path with spaces stays one argument and no shell reads it.
            for word in words:
                for name, value in values.items():
                    word = word.replace(name, value)
                command.append(word)
            self._app.show_notice(*editor.run_editor(self._app.suspend, command))

        self._with_case(subject, run_command, many=True)

    def replay_case(self, subject: ActionSubject) -> None:
        """Run the case again on its own target or another."""
        # Taken before the dialog opens, which is then the screen.
        beneath = self._app.screen

        def start_replay(target: str | None) -> None:
            if target is None:
                return
            if isinstance(beneath, case_screen.CaseScreen):
                beneath.replay_case(target)
            else:
                member = subject.member or subject.cluster.representative
                self._app.push_screen(case_screen.CaseScreen(subject.cluster, member, replay_on=target))

        if not subject.member and not subject.cluster.representative:
            self._app.show_notice(f"no case of {subject.cluster.id} was kept", "error")
            return
        own = subject.cluster.targets[0] if subject.cluster.targets else ""
        hint = f"empty: its own ({visible.to_one_line(own, 60)}); or onnxruntime==1.20.1, tvm, …"
        self._app.push_screen(screens.LineDialog("Replay on which target?", "", hint), start_replay)

    def _ask_line(self, question: str, text: str, hint: str, use: Callable[[str], None]) -> None:
        def use_answer(answer: str | None) -> None:
            if answer is not None:
                use(answer)

        self._app.push_screen(screens.LineDialog(question, visible.to_one_line(text, 2000), hint), use_answer)

    # -- jobs

    def reduce_case(self, subject: ActionSubject) -> None:
        """Reduce the case, then update its fingerprint."""

        def start_job(case: "CaseDetails") -> None:
            from opsieve.backends.releases.consent import named_by_file

            place = _get_folder(case)
            output = place / "reduced"
            command = (
                *job_board.REDUCE,
                str(place),
                "-t",
                named_by_file(case.member.target),
                "-o",
                str(output),
                "--json",
                *self._get_offline_option(),
            )
            self._app.run_job(
                "reduce", case.cluster, command, self._take_up(), watched=output / "attempts.jsonl"
            )

        self._with_case(subject, start_job, many=True)

    def attribute_case(self, subject: ActionSubject) -> None:
        """Find the guilty pass, then update the store."""

        def start_job(case: "CaseDetails") -> None:
            from opsieve.backends.releases.consent import named_by_file

            # A store may be a stranger's: its targets are no consent to run code of the user's own.
            target = named_by_file(case.member.target)
            command = (
                *job_board.OPSIEVE,
                "attribute",
                str(_get_folder(case)),
                "-t",
                target,
                "--json",
                *self._get_offline_option(),
            )
            self._app.run_job("attribute", case.cluster, command, self._take_up())

        self._with_case(subject, start_job, many=True)

    def bisect_case(self, subject: ActionSubject) -> None:
        """Find the first bad release, then update the store."""

        def start_job(case: "CaseDetails") -> None:
            backend = case.member.target.partition("==")[0].partition("@")[0].partition(":")[0]
            if backend not in BACKENDS_WITH_RELEASES:
                raise BadInput(
                    f"releases of {visible.to_one_line(backend, 60)} cannot be searched; use opsieve bisect"
                    " --commits on"
                    " a repository"
                )
            command = (
                *job_board.OPSIEVE,
                "bisect",
                str(_get_folder(case)),
                "--releases",
                backend,
                "--json",
                *self._get_offline_option(),
            )
            self._app.run_job("bisect", case.cluster, command, self._take_up())

        self._with_case(subject, start_job, many=True)

    def _take_up(self) -> tuple[str, ...]:
        return (*job_board.OPSIEVE, "triage", str(self._app.folder))

    def _get_offline_option(self) -> tuple[str, ...]:
        return ("--offline",) if self._app.offline else ()

    def _with_case(
        self, subject: ActionSubject, use: "Callable[[CaseDetails], None]", *, many: bool = False
    ) -> None:
        """Load the case of the subject, or of all marked ones, and use it."""

        def use_one(case: "CaseDetails") -> None:
            try:
                # One case that cannot be used must not stop those behind it.
                use(case)
            except BadInput as error:
                self._app.show_notice(str(error), "error")

        def load_cases() -> "list[CaseDetails]":
            return [
                self._app.store.case(name) for name in (subject.marked if many else ()) or (subject.name,)
            ]

        def use_all(cases: "list[CaseDetails]") -> None:
            for case in cases:
                use_one(case)

        background.run_in_background(self._app.screen, "case-of-subject", load_cases, use_all)


@dataclass(frozen=True, slots=True)
class Action:
    """A key and its action on a subject; in the footer if `shown`, always in help and palette."""

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
        Action(
            "mark", "m", "Mark", "opsieve mark {cluster} confirmed" + _STORE, Actions.mark_cluster, shown=True
        ),
        Action(
            "export",
            "x",
            "Export",
            "opsieve export {name} --as script" + _STORE,
            Actions.open_export,
            shown=True,
        ),
        Action("reduce", "r", "Reduce", "reduce {name}" + _STORE, Actions.reduce_case, shown=True),
        Action("pin", "p", "Pin or unpin", "opsieve pin {cluster}" + _STORE, Actions.pin_cluster),
        Action("note", "n", "Note", "opsieve note {cluster} TEXT" + _STORE, Actions.note_cluster),
        Action("rename", "t", "Title", "opsieve rename {cluster} TITLE" + _STORE, Actions.rename_cluster),
        Action(
            "issue",
            "i",
            "Link an issue",
            "opsieve mark {cluster} known --issue URL" + _STORE,
            Actions.link_issue,
        ),
        Action(
            "merge",
            "M",
            "Merge selected into this",
            "opsieve merge {cluster} {others}" + _STORE,
            Actions.merge_clusters,
        ),
        Action(
            "attribute",
            "a",
            "Attribute to a pass",
            "opsieve attribute {case} -t {target}",
            Actions.attribute_case,
        ),
        Action(
            "bisect",
            "b",
            "Bisect releases",
            "opsieve bisect {case} --releases {backend}",
            Actions.bisect_case,
        ),
        Action("replay", "R", "Replay", "opsieve run {case} -t {target}", Actions.replay_case),
        Action("edit", "e", "Edit in $EDITOR", "$EDITOR {case}/case.json", Actions.edit_case),
        Action(
            "copy",
            "y",
            "Copy the command for this",
            "opsieve show {name} --why" + _STORE,
            Actions.copy_command,
        ),
    )
}


def make_command(action: Action, subject: ActionSubject, folder: Path) -> str:
    """Return the command for a key; words in capitals are placeholders."""
    cluster, member = subject.cluster, subject.member or subject.cluster.representative
    target = visible.to_one_line(cluster.targets[0], 200) if cluster.targets else "TARGET"
    # Quoted, since names and targets of a stranger's store end in a shell when someone pastes the command.
    others = [quote_argument(name) for name in subject.marked if name != cluster.id]
    return action.command.format(
        cluster=quote_argument(cluster.id),
        name=quote_argument(subject.name),
        case=quote_argument(str(folder / member)) if member else "CASE",
        others=" ".join(others) or "OTHER...",
        target=quote_argument(target),
        backend=quote_argument(re.split("==|[@:]", target)[0]),
        store=quote_argument(str(folder)),
    )


def list_commands(subject: ActionSubject | None, folder: Path) -> list[tuple[str, str]]:
    """List the key of each action with its command; [] without a subject."""
    return (
        []
        if subject is None
        else [(each.key, make_command(each, subject, folder)) for each in ACTIONS.values()]
    )


def _get_folder(case: "CaseDetails") -> Path:
    if case.folder is None:
        raise BadInput(
            "the case of this failure was not kept, it is only counted; open the cluster and choose a member"
            " with a case"
        )
    return case.folder
