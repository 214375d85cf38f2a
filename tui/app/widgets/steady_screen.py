"""Screens that a fault in one of their handlers does not end, and that answer nothing while their widgets are
being taken away.
"""

from textual.await_complete import AwaitComplete
from textual.css.query import NoMatches
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen, ScreenResultType


class _SteadyPump(MessagePump):
    """Textual ends the loop of a screen at the first fault of a handler: it would stay on the terminal and
    take no key.
    """

    _pruning: bool  # of DOMNode: its widgets are being taken away, so that some are gone already

    async def _dispatch_message(self, message: Message) -> None:
        """As Textual does it; a fault is shown and the screen goes on."""
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001  whatever a handler or an action stumbles over
            leaving = self._pruning or self._closing or self._closed
            if not (leaving and isinstance(error, NoMatches)):
                self.app._handle_exception(error)


class SteadyScreen(_SteadyPump, Screen[ScreenResultType]):
    """A screen that outlives its faults."""


class SteadyDialog(_SteadyPump, ModalScreen[ScreenResultType]):
    """One over another screen, which ends once: Textual would take away the screen beneath at a second key
    that ends it.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """End, with a result; nothing when it has ended."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()
