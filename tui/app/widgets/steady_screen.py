"""A screen that a fault in one of its handlers does not end, and that answers nothing while its widgets are being taken away."""

from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import ModalScreen, Screen, ScreenResultType


class SteadyScreen(Screen[ScreenResultType]):
    """Textual ends the loop of a screen at the first fault of a handler: it would stay on the terminal and take no key."""

    @property
    def is_leaving(self) -> bool:
        """Whether its widgets are being taken away, so that some are gone already."""
        return self._pruning or self._closing or self._closed

    async def _dispatch_message(self, message: Message) -> None:
        """As Textual does it; a fault is shown and the screen goes on."""
        try:
            await super()._dispatch_message(message)
        except Exception as error:  # noqa: BLE001  whatever a handler or an action stumbles over
            if not (self.is_leaving and isinstance(error, NoMatches)):
                self.app._handle_exception(error)


class SteadyDialog(SteadyScreen[ScreenResultType], ModalScreen[ScreenResultType]):
    """The same over another screen."""
