"""Handle keys in the order of typing: each is done before the next goes to the widget that then has the
focus.

Textual gives a key to the widget with the focus when the key arrives, and runs its binding some messages
later. In a burst, as with ssh and paste, `/kind:crash` would lose the text after `/`, because the filter gets
the focus too late.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable

from textual import events
from textual.message import Message
from textual.widget import Widget

# After this many seconds a key counts as handled, because its widget may be gone.
PATIENCE = 0.3


class KeyDone(Message, bubble=True):
    """Follows a key through the same queues; when it arrives, the key has been handled."""


class TypeAhead:
    """The waiting keys. `give` handles one; `target` returns its widget, or None while a screen is being
    made.
    """

    def __init__(
        self, give: Callable[[events.Key], Awaitable[None]], target: Callable[[], Widget | None]
    ) -> None:
        self._give, self._target = give, target
        # Limited: a paste of megabytes is no typing.
        self._waiting: deque[events.Key] = deque(maxlen=1000)
        # When the key that is under way was given
        self._since: float | None = None

    async def add_key(self, key: events.Key) -> None:
        """Add a key."""
        self._waiting.append(key)
        await self.give_next()

    def put_back(self, key: events.Key) -> None:
        """Put back a key that could not be handled; it comes first again."""
        self._waiting.appendleft(key)

    async def finish_key(self) -> None:
        """Note that the current key was handled."""
        self._since = None
        await self.give_next()

    async def give_next(self) -> None:
        """Give the next key, if it is its turn."""
        if self._since is not None and time.monotonic() - self._since < PATIENCE:
            return
        target = self._target()
        if self._waiting and target is not None:
            self._since = time.monotonic()
            await self._give(self._waiting.popleft())
            # Behind the key in the same queue, so that it arrives when the key is done.
            target.post_message(KeyDone())
