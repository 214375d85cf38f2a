"""Export a failure: choose a kind, read the exact contents, write or copy them."""

import io
import zipfile
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from opsieve.gen.errors import BadInput
from opsieve.gen.model.durable import write_output
from opsieve.tui.app.protocol import ActionSubject, get_app
from opsieve.tui.app.services.background import run_in_background
from opsieve.tui.app.services.job_board import OPSIEVE, Job
from opsieve.tui.app.widgets.screens import ConfirmDialog, KeyFooter, LinesView, PageBar, PagedScreen
from opsieve.tui.app.widgets.visible import Line, to_lines, to_one_line

KINDS = ("script", "issue", "pytest", "case")
NAMES = {"script": "repro.py", "issue": "issue.md", "pytest": "test_repro.py", "case": "case.zip"}
LABELS = ("script", "GitHub issue", "pytest", "zip")
# Bytes that a terminal is sent for its clipboard
_MOST_COPIED = 100_000


class ExportScreen(PagedScreen):
    """The failure runs again when this screen opens; it shows the exact contents that enter writes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,w", "write", "Write"),
        Binding("y", "copy", "Copy"),
        Binding("e", "path", "Path"),
        *(Binding(str(at + 1), f"page({at})", label, show=False) for at, label in enumerate(LABELS)),
        Binding("right_square_bracket,tab", "turn(1)", "Next kind", key_display="]"),
        Binding("left_square_bracket", "turn(-1)", "Kind before", key_display="[", show=False),
        Binding("escape,q", "leave", "Back"),
    ]

    def __init__(self, subject: ActionSubject) -> None:
        super().__init__()
        self._subject = subject
        self.jobs: dict[str, Job] = {}
        self.written = ""

    def compose(self) -> ComposeResult:
        """Make the kinds, the path, and the preview."""
        yield Static(f"export {to_one_line(self._subject.name, 200)}", id="figures", markup=False)
        yield PageBar(LABELS, id="pages")
        yield Input(placeholder="where to write it", id="path", compact=True)
        yield LinesView(id="page")
        yield Static("", id="state", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        """Start with the script."""
        self.set_focus(self.query_one("#page"))
        self._start_export()

    @property
    def kind(self) -> str:
        """The shown kind."""
        return KINDS[self.query_one(PageBar).current]

    @property
    def job(self) -> Job | None:
        """The child process that makes the file."""
        return self.jobs.get(self.kind)

    @property
    def is_ready(self) -> bool:
        """Whether the shown contents are complete."""
        return self.job is not None and self.job.state == "done" and bool(self.job.output)

    def _start_export(self) -> None:
        if self.job is None:
            app = get_app(self)
            command = [
                *OPSIEVE,
                "export",
                self._get_name(),
                "--as",
                self.kind,
                "-o",
                "-",
                "--store",
                str(app.folder),
            ]
            command += ["--offline"] if app.offline else []
            self.jobs[self.kind] = app.run_job("export", self._subject.cluster.id, tuple(command))
        path = self.query_one("#path", Input)
        # A name that the user typed stays when the kind changes.
        if not path.value or Path(path.value).name in NAMES.values():
            path.value = str(Path(path.value).with_name(NAMES[self.kind]) if path.value else NAMES[self.kind])
        self._show_preview()

    def _get_name(self) -> str:
        """Return the path of a case folder, or the name of anything else."""
        name = self._subject.name
        folder = get_app(self).folder / name
        if not name.startswith("cases/"):
            return name
        reduced = folder / "reduced"
        # Written when a reduction is over: an unfinished one has none.
        return str(reduced if (reduced / "reduction.json").is_file() else folder)

    def update_job(self, job: Job) -> None:
        """Update the preview after a change of a child process."""
        if job is self.job:
            self._show_preview()

    @on(PageBar.Picked)
    def _draw_kind(self) -> None:
        if self.is_mounted:
            self._start_export()

    def _show_preview(self) -> None:
        job, view, state = self.job, self.query_one("#page", LinesView), self.query_one("#state", Static)
        if job is None:
            return
        if not job.is_over:
            view.show_lines(
                [
                    (("the failure is run again, to be sure of what is written …", "accent"),),
                    ((to_one_line(job.last_line), "dim"),),
                ]
            )
            state.update("")
        elif not self.is_ready:
            # Without the last line, which is in the first one shown.
            log = [((to_one_line(line, 600), "dim"),) for line in list(job.log)[-20:-1]]
            view.show_lines(
                [(("nothing to write: ", "bad"), (to_one_line(job.last_line, 1000) or job.state, "")), *log]
            )
            state.update("")
        else:
            view.show_lines(preview_file(job.output, self.kind))
            state.update(
                f"{len(job.output):,} bytes, exactly as shown · enter writes"
                f" {to_one_line(self._get_path().name, 60)} · y copies"
            )

    # -- keys

    def action_path(self) -> None:
        """Edit the path."""
        self.set_focus(self.query_one("#path"))

    @on(Input.Submitted, "#path")
    def leave_path(self) -> None:
        """Go back to the preview after the path was entered."""
        self.set_focus(self.query_one("#page"))
        self._show_preview()

    def action_leave(self) -> None:
        """Leave the path, or the screen."""
        if self.query_one("#path").has_focus:
            self.leave_path()
            return
        # Nobody waits for them any more, and each runs a compiler.
        for job in self.jobs.values():
            get_app(self).board.cancel_job(job)
        self.app.pop_screen()

    def _get_path(self) -> Path:
        path = Path(self.query_one("#path", Input).value.strip() or NAMES[self.kind]).expanduser()
        return path / NAMES[self.kind] if path.is_dir() else path

    def action_write(self) -> None:
        """Write the file, after a confirmation if another one exists."""
        if not self.is_ready or self.job is None:
            get_app(self).show_notice("it is not ready yet; wait for the preview", "warning")
            return
        path, data = self._get_path(), self.job.output

        def write_if(agreed: bool | None) -> None:
            if agreed:
                run_in_background(
                    self, "write", lambda: write_output(path, data), lambda _: self._report_written(path)
                )

        # A second export of the same failure need not be confirmed.
        if path.is_file() and path.read_bytes() != data:
            self.app.push_screen(
                ConfirmDialog(
                    f"{to_one_line(str(path), 200)} is there already and is something else. Replace it?"
                ),
                write_if,
            )
        else:
            write_if(True)

    def _report_written(self, path: Path) -> None:
        self.written = str(path)
        run = {"script": f"python {path}", "pytest": f"pytest {path}"}.get(self.kind, "")
        get_app(self).show_notice(f"wrote {path}" + (f" · try: {run}" if run else ""))

    def action_copy(self) -> None:
        """Copy to the terminal's clipboard (OSC 52), also over ssh."""
        if not self.is_ready or self.job is None:
            get_app(self).show_notice("it is not ready yet; wait for the preview", "warning")
        # Terminals cut or drop a longer OSC 52 sequence.
        elif self.kind == "case" or len(self.job.output) > _MOST_COPIED:
            get_app(self).show_notice("too much, or not text: write it instead", "warning")
        else:
            self.app.copy_to_clipboard(self.job.output.decode("utf-8", "replace"))
            get_app(self).show_notice(f"{len(self.job.output):,} bytes sent to the terminal's clipboard")


def preview_file(data: bytes, kind: str) -> list[Line]:
    """List the contents of a file to be written, for a zip its entries; unreadable parts are named, never
    raised.
    """
    if kind != "case":
        return to_lines(data.decode("utf-8", "backslashreplace"), most=100_000, longest=100_000)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [
                ((f"{entry.file_size:12,}  ", "dim"), (to_one_line(entry.filename, 300), ""))
                for entry in archive.infolist()
            ]
    except (zipfile.BadZipFile, BadInput) as error:
        return [((to_one_line(str(error)), "bad"),)]
