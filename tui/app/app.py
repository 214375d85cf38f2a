"""The terminal app: an open store, its screens, shared services (decisions, jobs, notices), and global
keys.
"""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, cast

from textual import _node_list, events, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.message import Message
from textual.notifications import Notify, SeverityLevel
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun
from opsieve.triage.store import queries, rows
from opsieve.triage.store.decisions import Ledger
from opsieve.tui.app import actions, protocol, themes
from opsieve.tui.app.screens import clusters_screen, help_screen
from opsieve.tui.app.screens.welcome_screen import WelcomeScreen
from opsieve.tui.app.services import background, editor, job_board, type_ahead
from opsieve.tui.app.widgets import screens, visible

# Faults that are only shown: a screen that fails at each drawing must not go on for ever.
_MOST_FAULTS = 50
# Seconds between two redraws of the jobs' output.
_DRAWN = 0.2


class OpsieveApp(App[None]):
    """Triage of one store. `clock` gives seconds since 1970; `demo` makes the store of the samples and
    returns its folder.
    """

    CSS_PATH = "app.tcss"
    TITLE = "opsieve"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(each.key, f"act('{each.name}')", each.title, show=each.shown)
            for each in actions.ACTIONS.values()
        ),
        Binding("u", "undo", "Undo"),
        Binding("J", "jobs", "Jobs"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "leave", "Quit"),
        Binding("ctrl+r", "redo", "Redo", show=False),
        Binding("C", "campaign", "Campaign", show=False),
        Binding("T", "theme", "Next theme", show=False),
        Binding("ctrl+c,ctrl+q", "leave", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        folder: Path,
        *,
        theme: str = themes.DARK,
        offline: bool = False,
        demo: Callable[[], Path] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        for each in (themes.NO_COLOUR, themes.CLEAR_LIGHT):
            self.register_theme(each)
        if theme not in self.available_themes:
            raise BadInput(
                f"there is no theme {visible.to_one_line(theme, 60)}; take one of"
                f" {', '.join(sorted(self.available_themes))}"
            )
        self.theme = theme
        self.folder = folder
        self.offline = offline
        self.revision = 0
        self.board = job_board.JobBoard(self._post_job_change)
        self.actions = actions.Actions(self)
        self.keys: dict[str, list[str]] = {}
        self.trouble = ""
        self.faults: list[str] = []
        # The fault that ended the app
        self.fatal: Exception | None = None
        self._demo, self.now = demo, clock
        self._queries: queries.Queries | None = None
        self._watch: background.Watch | None = None
        # Decisions run in threads, one at a time: an undo must not run beside the decision before it.
        self._deciding = threading.Lock()
        # When the output of each job was drawn last.
        self._drawn: dict[int, float] = {}
        self._announced: set[int] = set()
        self._type_ahead = type_ahead.TypeAhead(super().on_event, self._find_receiver)

    # -- the store

    @property
    def store(self) -> queries.Queries:
        """The open store, for reading; raises BadInput without one."""
        if self._queries is None:
            raise BadInput("no store is open")
        return self._queries

    @property
    def store_title(self) -> str:
        """The title of the store on the screen."""
        return self.folder.resolve().name

    def on_mount(self) -> None:
        """Open the store or show the welcome screen; from now on SIGHUP and SIGTERM end the app and its jobs
        cleanly.
        """
        # A key whose widget is gone is never done, and no other event may come that gives the next one.
        self.set_interval(type_ahead.PATIENCE, self._type_ahead.give_next)
        # Their default would kill the app, leave the terminal raw and the jobs running.
        for end in (signal.SIGHUP, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(end, partial(self.exit, return_code=128 + end))
        try:
            self.keys = editor.read_keys()
        except BadInput as error:
            self.show_notice(str(error), "error")
        for key, words in self.keys.items():
            self.bind(key, f"custom('{key}')", description=" ".join(words), show=False)
        self.action_reopen()

    def action_reopen(self) -> None:
        """Open the store in a thread, because an old one is upgraded first."""

        def show_store(found: queries.Queries) -> None:
            self._queries = found
            self._watch = background.Watch(
                found,
                lambda: self.post_message(background.StoreChanged()),
                lambda sentence: self.post_message(background.Trouble(sentence)),
            )
            self._watch.start_watching()
            # It was shown for an absent or damaged store; going back must not lead there.
            if isinstance(self.screen, WelcomeScreen):
                self.pop_screen()
            self.push_screen(clusters_screen.ClustersScreen())

        def show_welcome(sentence: str) -> None:
            if isinstance(self.screen, WelcomeScreen):
                self.pop_screen()
            self.push_screen(
                WelcomeScreen(self.folder, sentence if (self.folder / "index.sqlite").exists() else "")
            )

        # Opening would be refused, but a store that does not exist yet is no error here.
        if not (self.folder / "index.sqlite").exists():
            show_welcome("")
        else:
            background.run_in_background(
                self.screen, "open", lambda: queries.Queries(self.folder), show_store, show_welcome
            )

    def action_demo(self) -> None:
        """Open the samples."""
        if self._demo is None:
            self.show_notice("the samples are not part of this installation", "error")
            return
        made = self._demo

        def open_folder(folder: Path) -> None:
            self.folder = folder
            self.action_reopen()

        background.run_in_background(self.screen, "demo", made, open_folder)

    def on_store_changed(self) -> None:
        """Reload the screen."""
        self.revision += 1
        shown = getattr(self.screen, "reload_store", None)
        if shown is not None:
            shown()

    def on_trouble(self, event: background.Trouble) -> None:
        """Show a problem with the store; earlier data stays on the screen."""
        self.trouble = event.sentence
        if event.sentence:
            self.show_notice(event.sentence, "error")

    def on_background_done(self, event: background.BackgroundDone) -> None:
        """Deliver the result of a thread if its widget still exists."""
        # The screen may have been closed while the thread ran.
        if event.asker.is_attached:
            event.deliver()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show the error of a thread; the app continues."""
        if event.state == WorkerState.ERROR:
            error = event.worker.error
            self.show_notice(
                f"something went wrong: {type(error).__name__}: {visible.to_one_line(str(error), 300)}",
                "error",
            )

    # -- faults

    async def _dispatch_message(self, message: Message) -> None:
        """Dispatch as Textual does, but survive errors, which would end its message loop and the app."""
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001
            # Whatever a handler, an action or a widget of Textual's stumbles over
            self._handle_exception(error)

    def _handle_exception(self, error: Exception) -> None:
        """Show an error and continue; an error before the first screen, or after many others, ends the
        app.
        """
        if self._closing or not self.screen_stack:
            return
        self.faults.append(f"{type(error).__name__}: {visible.to_one_line(str(error), 300)}")
        # The first of the stack is Textual's own, which shows nothing.
        if len(self.faults) > _MOST_FAULTS or not any(screen.is_mounted for screen in self.screen_stack[1:]):
            self.fatal = self.fatal or error
            super()._handle_exception(error)
        else:
            self.show_notice(f"something went wrong, and was left undone: {self.faults[-1]}", "error")

    def _fatal_error(self) -> None:
        """End without printing a traceback; the caller finds the error in `fatal`."""
        self.bell()
        self._close_messages_no_wait()

    # -- keys as they come

    async def on_event(self, event: events.Event) -> None:
        """Route keys through `TypeAhead`; handle other events as Textual does."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self._type_ahead.add_key(event)
        elif isinstance(event, events.Key) and self._find_receiver() is None:
            # Patience ended, and then the key before it was acted on: the screen that it opened is still
            # being made.
            self._type_ahead.put_back(events.Key(event.key, event.character))
        else:
            await super().on_event(event)

    async def on_key_done(self, event: type_ahead.KeyDone) -> None:
        """Handle the next key."""
        event.stop()
        await self._type_ahead.finish_key()

    def _find_receiver(self) -> Widget | None:
        """Return the widget that gets a key now; None while a screen is being made, or after the end."""
        if not self.screen_stack:
            return None
        return (self.focused or self.screen) if self.screen.is_mounted else None

    # -- what screens share

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Notify as Textual does, with a `Notice`."""
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(screens.Notice(message, title, severity, seconds, markup=markup)))

    def show_notice(self, sentence: str, severity: str = "information") -> None:
        """Show a notice."""
        self.notify(
            visible.to_one_line(sentence, 500),
            severity=cast(Literal["information", "warning", "error"], severity),
            markup=False,
        )

    def decide(self, *decisions: Callable[[Ledger], rows.Decision]) -> None:
        """Make decisions in a thread, in the order of the keys, each its own transaction."""

        def make_decisions() -> str:
            with self._deciding, Ledger(self.folder) as ledger:
                done = [decide(ledger) for decide in decisions]
            said = done[-1].text if len(done) == 1 else f"{len(done)} decisions, the last: {done[-1].text}"
            return f"undone: {said}" if done[-1].state == "undone" else f"{said}  (u takes it back)"

        self._decide_in_thread(make_decisions)

    @work(thread=True, group="decisions", exit_on_error=False)
    def _decide_in_thread(self, make: Callable[[], str]) -> None:
        try:
            said = make()
        except BadInput as error:
            self.call_from_thread(self.show_notice, str(error), "error")
        else:
            self.call_from_thread(self.show_notice, said)
        self.post_message(background.StoreChanged())

    def forget_marks(self) -> None:
        """Clear the marks after the selected rows were merged."""
        if isinstance(self.screen, clusters_screen.ClustersScreen):
            from opsieve.tui.app.widgets.paged_list import PagedList

            self.screen.query_one("#clusters", PagedList).clear_marks()

    def run_job(
        self, kind: job_board.Kind, subject: str, *commands: tuple[str, ...], watched: Path | None = None
    ) -> job_board.Job:
        """Start a job; a slow one is announced."""
        job = self.board.start_job(kind, subject, *commands, watched=watched)
        if not job.is_quick:
            self.show_notice(f"job {job.number}: {job.title} · J shows how far it is")
        return job

    def _post_job_change(self, job: job_board.Job) -> None:
        """Called from the job's threads: post a few changes per second at most, and always the last one."""
        now = time.monotonic()
        if job.is_over or now - self._drawn.get(job.number, 0.0) > _DRAWN:
            self._drawn[job.number] = now
            # The app has ended
            with contextlib.suppress(RuntimeError):
                self.post_message(background.JobChanged(job))

    def on_job_changed(self, event: background.JobChanged) -> None:
        """Update the screens that show jobs; announce the end of a slow job anywhere."""
        job = event.job
        for screen in self.screen_stack:
            if (changed := getattr(screen, "update_job", None)) and screen.is_mounted and screen.is_attached:
                changed(job)
        if isinstance(self.screen, clusters_screen.ClustersScreen):
            self.screen.refresh_figures()
        # A cancelled one still prints its last lines.
        if job.is_over and not job.is_quick and job.number not in self._announced:
            self._announced.add(job.number)
            said, severity = (
                (job.last_line, "error") if job.state == "failed" else (job.outcome, "information")
            )
            self.show_notice(f"job {job.number}: {job.title} {job.state}{said and f': {said}'}", severity)

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable the keys of clusters where there is one; the first screen has few keys."""
        if not self.screen_stack:
            return True
        shown = next(screen for screen in reversed(self.screen_stack) if not isinstance(screen, ModalScreen))
        if action in ("undo", "redo", "jobs", "campaign", "help"):
            return not isinstance(shown, WelcomeScreen)
        # Its class is asked: the subject of a screen that is still being made cannot be.
        return action != "act" or hasattr(type(shown), "subject")

    def action_act(self, name: str) -> None:
        """Apply an action to the subject under the cursor."""
        screen = self.screen
        subject = screen.subject if isinstance(screen, protocol.HasSubject) else None
        if name not in actions.ACTIONS or subject is None:
            self.show_notice("there is nothing under the cursor", "warning")
        else:
            actions.ACTIONS[name].run(self.actions, subject)

    def action_command_palette(self) -> None:
        """Open the palette; a key that comes while the last one is being removed is ignored."""
        with contextlib.suppress(_node_list.DuplicateIds):
            super().action_command_palette()

    def action_custom(self, key: str) -> None:
        """Run the command of one of the user's own keys."""
        subject = self.screen.subject if isinstance(self.screen, protocol.HasSubject) else None
        if subject is None:
            self.show_notice("there is nothing under the cursor", "warning")
        else:
            self.actions.run_custom(subject, self.keys[key])

    def action_undo(self) -> None:
        """Undo the latest decision."""
        self.decide(lambda ledger: ledger.undo())

    def action_redo(self) -> None:
        """Redo the decision undone last."""
        self.decide(lambda ledger: ledger.redo())

    def action_jobs(self) -> None:
        """Show the jobs."""
        from opsieve.tui.app.screens.jobs_screen import JobsScreen

        if not isinstance(self.screen, JobsScreen):
            self.push_screen(JobsScreen())

    def action_campaign(self) -> None:
        """Show the running campaign."""
        from opsieve.tui.app.screens.jobs_screen import CampaignScreen

        if not isinstance(self.screen, CampaignScreen):
            self.push_screen(CampaignScreen())

    def action_help(self) -> None:
        """Show the keys of this screen."""
        from opsieve.tui.app.screens.help_screen import HelpScreen

        subject = self.screen.subject if isinstance(self.screen, protocol.HasSubject) else None
        here = Path.cwd()
        folder = self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder
        self.push_screen(HelpScreen(self.screen, actions.list_commands(subject, folder)))

    def action_theme(self) -> None:
        """Switch to the next theme: dark, light, without colour, the terminal's own colours."""
        at = themes.CYCLE.index(self.theme) if self.theme in themes.CYCLE else -1
        self.theme = themes.CYCLE[(at + 1) % len(themes.CYCLE)]
        self.show_notice(f"theme {self.theme}")

    async def action_back(self) -> None:
        """Go back one screen, or out of an input first."""
        if isinstance(self.focused, Input):
            self.screen.focus_next()
        elif len(self.screen_stack) > 2:
            self.pop_screen()

    def action_leave(self) -> None:
        """Quit, after a confirmation if jobs are running."""
        active = self.board.active
        if not active:
            self.exit()
            return

        def quit_if(yes: bool | None) -> None:
            if yes:
                self.exit()

        if not isinstance(self.screen, screens.ConfirmDialog):
            self.push_screen(
                screens.ConfirmDialog(
                    f"{count_noun(len(active), 'job')} would end, with the best so far saved. Quit?"
                ),
                quit_if,
            )

    def on_unmount(self) -> None:
        """End the jobs and threads."""
        if self._watch is not None:
            self._watch.stop_watching()
        self.board.end_all()
        if self._queries is not None:
            self._queries.close()

    # -- the palette

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """List the actions of all keys of the screen and the app by name."""
        yield from super().get_system_commands(screen)
        for active in screen.active_bindings.values():
            binding = active.binding
            if (
                binding.description
                and active.node in (screen, self)
                and binding.action not in help_screen.TEXTUALS_OWN
            ):
                run = partial(self._run_chosen, binding.action, active.node)
                yield SystemCommand(binding.description, f"key {binding.key}", run)

    async def _run_chosen(self, action: str, node: DOMNode) -> None:
        """Run an action of the palette, unless its screen is gone or still without widgets."""
        if node is self or (node in self.screen_stack and cast(Widget, node).is_mounted):
            await self.run_action(action, node)
