"""Parameters of a class of which `make test` tries some, and `make test-slow` the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def keep_quick(values: Iterable[Any], quick: int) -> list[Any]:
    """The first `quick` values as they are, the others marked as slow. A tuple is a value for each of several
    parameters.
    """
    return [
        value
        if at < quick
        else pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.slow)
        for at, value in enumerate(values)
    ]
