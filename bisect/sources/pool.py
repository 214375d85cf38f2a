"""Several probes at once, on threads, so that Ctrl-C is always heard."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_HEED = 0.2  # seconds


def in_order(pool: Executor, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """`function` of every item, in order; what has not begun is cancelled when one fails or the user interrupts.

    The wait is in steps: a signal that comes just before a thread sleeps on a lock is seen only when it wakes.
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
