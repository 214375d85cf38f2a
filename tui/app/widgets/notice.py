"""A notice at the edge of the screen, which a busy machine may get to show only when its time is over."""

from time import time

from textual.notifications import Notification

_SHORTEST = 0.05  # seconds


class Notice(Notification):
    """Textual sets a timer of the time left, and one of less than nothing never gives the app back to its
    keys.
    """

    @property
    def time_left(self) -> float:
        """Seconds that it is still to be shown, more than 0."""
        return max(_SHORTEST, self.raised_at + self.timeout - time())

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self.raised_at + self.timeout <= time()
