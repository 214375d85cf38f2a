"""What several files of these tests compare with."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a campaign of one lane that nothing interrupted (test_campaign.py): to read only."""
    from test_campaign import WHOLE, fuzz
    from thread_lanes import spawn

    folder = tmp_path_factory.mktemp("whole") / "store"
    fuzz(folder, WHOLE, start=spawn)
    return folder
