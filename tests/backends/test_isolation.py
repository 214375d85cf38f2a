"""What the system offers to shut a worker in is found out, and looking at it changes nothing."""

import os
from pathlib import Path

import pytest

from opsieve.backends.workers.sandbox.isolation import Isolation, examine_isolation


def test_looking_leaves_this_process_where_it_is() -> None:
    before = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("user", "mnt", "net")}
    found = examine_isolation()
    assert {name: os.readlink(f"/proc/self/ns/{name}") for name in before} == before
    assert 0 <= found.landlock < 100


def test_bubblewrap_is_found_where_the_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert examine_isolation().bubblewrap == ""
    (tmp_path / "bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "bwrap").chmod(0o755)
    assert examine_isolation().bubblewrap == str(tmp_path / "bwrap")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            Isolation(True, 7, "/usr/bin/bwrap", "control groups"),
            "user namespaces allowed, Landlock version 7, bubblewrap /usr/bin/bwrap, memory bounded by control groups; ",
        ),
        (
            Isolation(False, 0, "", "polling"),
            "user namespaces refused, no Landlock, no bubblewrap, memory bounded by polling; ",
        ),
    ],
)
def test_it_is_said_in_a_sentence(found: Isolation, said: str) -> None:
    assert found.describe().startswith(said)
    assert "not shut in" in found.describe()
