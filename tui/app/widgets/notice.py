"""A notice at the edge of the screen, which a busy machine may show only after its time is over."""

from time import time

from textual.notifications import Notification

# Seconds
_SHORTEST = 0.05


class Notice(Notification):
    """A notification with a positive remaining time: Textual hangs on a timer of a negative one."""

    @property
    def time_left(self) -> float:
        """The remaining seconds, more than 0."""
        return max(_SHORTEST, self.raised_at + self.timeout - time())

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self.raised_at + self.timeout <= time()
