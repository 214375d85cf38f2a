"""Screens that survive errors in their handlers, and ignore events while their widgets are being removed."""

from textual.await_complete import AwaitComplete
from textual.css.query import NoMatches
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.widgets import Static

from opsieve.tui.app.widgets.visible import to_one_line


class _SteadyPump(MessagePump):
    """A message pump that survives errors: Textual would end the screen's loop, and the screen would take no
    more keys.
    """

    # Of DOMNode: its widgets are being taken away, so that some are gone already
    _pruning: bool

    async def _dispatch_message(self, message: Message) -> None:
        """Dispatch as Textual does, but show an error and continue."""
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001
            # Whatever a handler or an action stumbles over
            leaving = self._pruning or self._closing or self._closed
            if not (leaving and isinstance(error, NoMatches)):
                self.app._handle_exception(error)


class SteadyScreen(_SteadyPump, Screen[ScreenResultType]):
    """A screen that survives its errors. It may have a line `#figures`."""

    def show_problem(self, sentence: str) -> None:
        """Show a problem on the line of figures."""
        line = self.query_one("#figures", Static)
        line.add_class("problem")
        line.update(to_one_line(sentence))


class SteadyDialog(_SteadyPump, ModalScreen[ScreenResultType]):
    """A dialog that ends once: with Textual's own, a second key would end the screen beneath."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """End with a result, unless it has ended before."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()
