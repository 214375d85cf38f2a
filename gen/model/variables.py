"""An environment variable for a while: what this process starts meanwhile has it too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def variable_set(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for the duration of the context; "" leaves one that is not set unset.

    Processes with equal environments share their compilers, and an empty variable would tell them apart.
    """
    if not value and name not in os.environ:
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
