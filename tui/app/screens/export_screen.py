"""A failure for others: choose a kind, read exactly what will be written, write it or copy it."""

import io
import zipfile
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from opsieve.gen.errors import BadInput
from opsieve.tui.app.protocol import ActionSubject, app_of
from opsieve.tui.app.services.background import in_background
from opsieve.tui.app.services.job_board import OPSIEVE, Job
from opsieve.tui.app.widgets.dialogs import ConfirmDialog
from opsieve.tui.app.widgets.key_footer import KeyFooter
from opsieve.tui.app.widgets.lines_view import LinesView
from opsieve.tui.app.widgets.page_bar import PageBar
from opsieve.tui.app.widgets.steady_screen import SteadyScreen
from opsieve.tui.app.widgets.visible import Line, lines_of, one_line

KINDS = ("script", "issue", "pytest", "case")
NAMES = {"script": "repro.py", "issue": "issue.md", "pytest": "test_repro.py", "case": "case.zip"}
LABELS = ("script", "GitHub issue", "pytest", "zip")
_MOST_COPIED = 100_000  # bytes that a terminal is sent for its clipboard


class ExportScreen(SteadyScreen[None]):
    """The failure is run again while this opens; what it is written as is shown, and enter writes just
    that.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,w", "write", "Write"),
        Binding("y", "copy", "Copy"),
        Binding("e", "path", "Path"),
        *(Binding(str(at + 1), f"kind({at})", label, show=False) for at, label in enumerate(LABELS)),
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
        """The kinds, the path, the preview."""
        yield Static(f"export {one_line(self._subject.name, 200)}", id="figures", markup=False)
        yield PageBar(LABELS, id="pages")
        yield Input(placeholder="where to write it", id="path", compact=True)
        yield LinesView(id="page")
        yield Static("", id="state", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        """Begin with the script."""
        self.set_focus(self.query_one("#page"))
        self._show()

    @property
    def kind(self) -> str:
        """The kind that is shown."""
        return KINDS[self.query_one(PageBar).current]

    @property
    def job(self) -> Job | None:
        """The child that makes it."""
        return self.jobs.get(self.kind)

    @property
    def ready(self) -> bool:
        """Whether what is shown can be written."""
        return self.job is not None and self.job.state == "done" and bool(self.job.output)

    def _show(self) -> None:
        if self.job is None:
            app = app_of(self)
            command = [
                *OPSIEVE,
                "export",
                self._place(),
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
        if not path.value or Path(path.value).name in NAMES.values():
            path.value = str(Path(path.value).with_name(NAMES[self.kind]) if path.value else NAMES[self.kind])
        self._draw()

    def _place(self) -> str:
        """A case folder by its path, anything else by its name."""
        name = self._subject.name
        folder = app_of(self).folder / name
        if not name.startswith("cases/"):
            return name
        reduced = folder / "reduced"
        return str(reduced if (reduced / "reduction.json").is_file() else folder)

    def job_changed(self, job: Job) -> None:
        """A child goes on, or has ended."""
        if job is self.job:
            self._draw()

    @on(PageBar.Picked)
    def _draw_kind(self) -> None:
        if self.is_mounted:
            self._show()

    def _draw(self) -> None:
        job, view, state = self.job, self.query_one("#page", LinesView), self.query_one("#state", Static)
        if job is None:
            return
        if not job.over:
            view.show(
                [
                    (("the failure is run again, to be sure of what is written …", "accent"),),
                    ((one_line(job.said), "dim"),),
                ]
            )
            state.update("")
        elif not self.ready:
            log = [((one_line(line, 600), "dim"),) for line in list(job.log)[-20:-1]]
            view.show([(("nothing to write: ", "bad"), (one_line(job.said, 1000) or job.state, "")), *log])
            state.update("")
        else:
            view.show(preview(job.output, self.kind))
            state.update(
                f"{len(job.output):,} bytes, exactly as shown · enter writes"
                f" {one_line(self._target().name, 60)} · y copies"
            )

    # -- keys

    def action_kind(self, at: int) -> None:
        """Show a kind."""
        self.query_one(PageBar).current = at

    def action_turn(self, by: int) -> None:
        """The next kind, or the one before."""
        self.query_one(PageBar).current += by

    def action_path(self) -> None:
        """Edit the path."""
        self.set_focus(self.query_one("#path"))

    @on(Input.Submitted, "#path")
    def named(self) -> None:
        """The path is chosen."""
        self.set_focus(self.query_one("#page"))
        self._draw()

    def action_leave(self) -> None:
        """Out of the path, or back."""
        if self.query_one("#path").has_focus:
            self.named()
            return
        for job in self.jobs.values():
            app_of(self).board.cancel(job)
        self.app.pop_screen()

    def _target(self) -> Path:
        path = Path(self.query_one("#path", Input).value.strip() or NAMES[self.kind]).expanduser()
        return path / NAMES[self.kind] if path.is_dir() else path

    def action_write(self) -> None:
        """Write the file; where there is one already ask first."""
        if not self.ready or self.job is None:
            app_of(self).show_notice("it is not ready yet; wait for the preview", "warning")
            return
        path, data = self._target(), self.job.output

        def write(agreed: bool | None) -> None:
            if agreed:
                from opsieve.reducer.sessions.output import write as write_whole

                in_background(self, "write", lambda: write_whole(path, data), lambda _: self._wrote(path))

        if path.is_file() and path.read_bytes() != data:
            self.app.push_screen(
                ConfirmDialog(
                    f"{one_line(str(path), 200)} is there already and is something else. Replace it?"
                ),
                write,
            )
        else:
            write(True)

    def _wrote(self, path: Path) -> None:
        self.written = str(path)
        run = {"script": f"python {path}", "pytest": f"pytest {path}"}.get(self.kind, "")
        app_of(self).show_notice(f"wrote {path}" + (f" · try: {run}" if run else ""))

    def action_copy(self) -> None:
        """To the clipboard of the terminal (OSC 52), over ssh too."""
        if not self.ready or self.job is None:
            app_of(self).show_notice("it is not ready yet; wait for the preview", "warning")
        elif self.kind == "case" or len(self.job.output) > _MOST_COPIED:
            app_of(self).show_notice("too much, or not text: write it instead", "warning")
        else:
            self.app.copy_to_clipboard(self.job.output.decode("utf-8", "replace"))
            app_of(self).show_notice(f"{len(self.job.output):,} bytes sent to the terminal's clipboard")


def preview(data: bytes, kind: str) -> list[Line]:
    """What is in a file that will be written; of a zip what it holds. BadInput never: what cannot be read is
    named.
    """
    if kind != "case":
        return lines_of(data.decode("utf-8", "backslashreplace"), most=100_000, longest=100_000)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [
                ((f"{entry.file_size:12,}  ", "dim"), (one_line(entry.filename, 300), ""))
                for entry in archive.infolist()
            ]
    except (zipfile.BadZipFile, BadInput) as error:
        return [((one_line(str(error)), "bad"),)]
