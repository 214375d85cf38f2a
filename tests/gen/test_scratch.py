"""Temporary folders: what a killed process left goes, what others made stays."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from opsieve.gen.model import scratch
from opsieve.gen.model.scratch import OWNER, Scratch, sweep

HOLDS = """
import sys
from opsieve.gen.model.scratch import Scratch
kept = Scratch("held")
(kept.path / "deep").mkdir()
(kept.path / "deep" / "file").write_text("x")
print(kept.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(scratch, "_swept", set())
    return tmp_path


def test_a_folder_is_there_until_it_is_closed(parent: Path) -> None:
    with Scratch("demo") as folder:
        assert folder.parent == parent
        assert folder.name.startswith("opsieve-demo-")
        (folder / "x").mkdir()
        sweep(parent)
        assert (folder / "x").is_dir()
    assert not list(parent.iterdir())
    made = Scratch()
    made.close()
    made.close()


def test_what_a_killed_process_left_goes_when_the_next_one_begins(parent: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().decode().strip())
        Scratch().close()
        assert (left / "deep" / "file").is_file()  # its owner lives
        process.kill()
    assert left.is_dir()
    Scratch().close()
    assert left.is_dir()  # this process has looked already
    sweep(parent)
    assert not left.exists()


def test_what_others_made_stays(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / OWNER).touch()
    (parent / "opsieve-link").symlink_to(elsewhere)
    (parent / "opsieve-file").touch()
    for name in ("opsieve-unmarked", "opsieve-odd", "opsieve-linked", "opsieve-pipe", "other-marked"):
        (parent / name).mkdir()
    (parent / "opsieve-odd" / OWNER).mkdir()
    (parent / "opsieve-linked" / OWNER).symlink_to(elsewhere / OWNER)
    os.mkfifo(parent / "opsieve-pipe" / OWNER)
    (parent / "other-marked" / OWNER).touch()
    before = sorted(parent.iterdir())
    sweep(parent)
    assert sorted(parent.iterdir()) == before
    assert (elsewhere / OWNER).exists()
    (parent / "opsieve-unmarked" / OWNER).touch()  # now it looks like one of ours whose owner has ended
    sweep(parent)
    assert sorted(parent.iterdir()) == [each for each in before if each.name != "opsieve-unmarked"]
    sweep(parent / "nowhere")
