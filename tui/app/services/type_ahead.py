"""Keys in the order in which they were typed, however fast: one is done before the next is given to what has
the focus then.

Textual gives a key to the widget that has the focus when the key arrives, and acts on its binding some
messages later. In a burst, as ssh and paste deliver them, `/kind:crash` would lose what follows the `/`,
since the filter has the focus too late.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable

from textual import events
from textual.message import Message
from textual.widget import Widget

PATIENCE = 0.3  # seconds after which a key counts as done though nobody said so: its widget may be gone


class KeyDone(Message, bubble=True):
    """Follows a key through the same queues: where it arrives, the key has been acted on."""


class TypeAhead:
    """The keys that wait. `give` hands one over; `target` is who gets it now, None while a screen is being
    made.
    """

    def __init__(
        self, give: Callable[[events.Key], Awaitable[None]], target: Callable[[], Widget | None]
    ) -> None:
        self._give, self._target = give, target
        self._waiting: deque[events.Key] = deque(maxlen=1000)
        self._since: float | None = None  # when the key that is under way was given

    @property
    def waiting(self) -> bool:
        """Whether keys wait."""
        return bool(self._waiting)

    async def typed(self, key: events.Key) -> None:
        """A key arrives."""
        self._waiting.append(key)
        await self.go_on()

    def put_back(self, key: events.Key) -> None:
        """A key that was given, and that nobody could act on: the next one again."""
        self._waiting.appendleft(key)

    async def done(self) -> None:
        """The key under way was acted on."""
        self._since = None
        await self.go_on()

    async def go_on(self) -> None:
        """Give the next key, if it is its turn."""
        if self._since is not None and time.monotonic() - self._since < PATIENCE:
            return
        target = self._target()
        if self._waiting and target is not None:
            self._since = time.monotonic()
            await self._give(self._waiting.popleft())
            target.post_message(KeyDone())
