"""What many tests share: workers that last for the session, and small models."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from opsieve.backends.workers import Workers
from opsieve.backends.zygote import Limits

# `make test` draws the same examples everywhere; `make test-all` passes --hypothesis-profile=default and draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Workers with limits that a test can reach quickly."""
    with Workers(Limits(seconds=20.0, memory=2 << 30, printed=16 << 20)) as every:
        yield every
