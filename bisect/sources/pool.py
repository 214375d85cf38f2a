"""Several probes at once, on threads, so that Ctrl-C is always heard, and SIGTERM as Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_HEED = 0.2  # seconds


def in_order(pool: Executor, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """`function` of every item, in order; what has not begun is cancelled when one fails or the user
    interrupts.

    The wait is in steps: a signal that comes just before a thread sleeps on a lock is seen only when it
    wakes.
    """
    futures = [pool.submit(function, item) for item in items]
    try:
        results = []
        for future in futures:
            while not wait([future], _HEED).done:
                pass
            results.append(future.result())
        return results
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Have SIGTERM end the block as Ctrl-C does: scripts are killed, folders removed, probes kept. Only the
    main thread can.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
