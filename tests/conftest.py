"""What many tests share: workers that last for the session, and small models."""

from collections.abc import Iterator

import pytest

from opsieve.backends.workers import Workers
from opsieve.backends.zygote import Limits


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Workers with limits that a test can reach quickly."""
    with Workers(Limits(seconds=20.0, memory=2 << 30, printed=16 << 20)) as every:
        yield every
