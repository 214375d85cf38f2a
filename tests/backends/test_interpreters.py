import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsieve.backends.releases.interpreters import OLDEST, find_interpreters


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without Pythons but the running one; answers remembered before and after are forgotten."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "managed"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    find_interpreters.cache_clear()
    yield tmp_path
    find_interpreters.cache_clear()


def pretend(path: Path, answer: str) -> Path:
    """An executable that answers as a Python would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def test_the_running_python_comes_first_and_all_are_there_and_new_enough() -> None:
    found = find_interpreters()
    assert found[0].path == Path(sys.executable)
    assert found[0].version == sys.version_info[:3]
    assert all(
        one.path.is_absolute() and os.access(one.path, os.X_OK) and one.minor >= OLDEST for one in found
    )
    real = [one.path.resolve() for one in found]
    assert len(set(real)) == len(real)
    assert [one.version for one in found[1:]] == sorted((one.version for one in found[1:]), reverse=True)


def test_each_tells_the_version_that_is_said_of_it() -> None:
    for one in find_interpreters():
        command = [str(one.path), "-I", "-c", "import sys; print(*sys.version_info[:3])"]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        assert tuple(map(int, said.stdout.split())) == one.version


def test_pyenv_versions_are_found_and_its_shims_are_not(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = pretend(bare / "pyenv/versions/3.9.18/bin/python", "cpython - True 3 9 18")
    pretend(bare / "pyenv/shims/python3.10", "cpython - True 3 10 1")
    monkeypatch.setenv("PATH", str(bare / "pyenv" / "shims"))
    assert [(one.path, one.version) for one in find_interpreters()[1:]] == [(old, (3, 9, 18))]


def test_pythons_on_path_are_found_once_whatever_their_names(bare: Path) -> None:
    new = pretend(bare / "bin/python3.97", "cpython - True 3 97 0")
    (bare / "bin/python3").symlink_to(new)
    pretend(bare / "bin/python3-config", "cpython - True 3 96 0")
    assert [(one.path, one.version) for one in find_interpreters()[1:]] == [(new, (3, 97, 0))]


@pytest.mark.parametrize(
    "answer",
    [
        "cpython - True 3 7 16",  # older than the workers' files
        "pypy - True 3 10 2",
        "cpython t True 3 13 0",  # free-threaded: other wheels
        "cpython - False 3 10 2",  # 32 bits
        "hello",
    ],
)
def test_others_than_usable_cpythons_are_left_out(bare: Path, answer: str) -> None:
    pretend(bare / "bin/python3.10", answer)
    assert len(find_interpreters()) == 1


def test_one_that_cannot_be_started_is_left_out(bare: Path) -> None:
    (bare / "bin/python3.10").write_bytes(b"\x7fELF nonsense")
    (bare / "bin/python3.10").chmod(0o755)
    (bare / "bin/python3.11").symlink_to(bare / "nowhere")
    pretend(bare / "bin/python3.12", "cpython - True 3 12 0'; exit 127; '")
    assert len(find_interpreters()) == 1
