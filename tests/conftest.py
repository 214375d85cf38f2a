"""What many tests share: workers that last for the session, and small models."""

import contextlib
import fcntl
import gc
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Tests start hundreds of processes. Where the environment says that none of them may keep what it has
# compiled, each would compile all that it imports, and pytest would rewrite the assertions of hypothesis each
# time: a third of the whole time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What is collected is a large heap that stays: to go through it every 700 objects costs more than the tests
# leave behind.
gc.set_threshold(20_000, 20, 50)

# Variables that tests set and no compiler reads: with another value they ask for no other zygote.
_NOT_FOR_COMPILERS = [
    "PYTEST_CURRENT_TEST",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "PYTEST_XDIST_WORKER",
    "COLUMNS",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
    "OPSIEVE_HASHES",
    "OPSIEVE_JOBS",
    "OPSIEVE_PROBES",
    "OPSIEVE_SECONDS",
    "OPSIEVE_STORE",
    "OPSIEVE_TARGETS",
]
_ROOM = 2 << 30  # bytes; the tests of a run leave less than a tenth of that


def _memory_for_files() -> str | None:
    """A folder of this user's in memory, if this machine has one with room, from which programs may be run.

    Stores and cases are written so that they outlast a loss of power: on a disk, the tests would wait for it
    a quarter of their time.
    """
    folder = (
        f"/dev/shm/tests-of-{os.geteuid()}"  # of its own: tests look at what else comes to be in /dev/shm
    )
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        mine, found = os.lstat(folder), os.statvfs(folder)
    except OSError:
        return None
    roomy = found.f_bavail * found.f_frsize >= _ROOM and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return folder if roomy and stat.S_ISDIR(mine.st_mode) and mine.st_uid == os.geteuid() else None


if "TMPDIR" not in os.environ and (memory := _memory_for_files()):
    os.environ["TMPDIR"] = tempfile.tempdir = memory  # for the processes that tests start, too

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from opsieve.backends.workers.workers import Workers  # noqa: E402
from opsieve.backends.workers.zygotes.shared_zygotes import ZYGOTES  # noqa: E402
from opsieve.backends.workers.zygotes.zygote import Limits  # noqa: E402
from opsieve.triage.campaign import lane_spawn  # noqa: E402

pytest_plugins = ["run_order"]

# `make test` draws the same few examples everywhere; `make test-all` draws many new ones
# (--hypothesis-profile=thorough).
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("repeatable")

# A job in the background of a shell ignores Ctrl-C and hands that on; tests interrupt what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores, as now and then a test waits for a time limit or for a process to
    end. Two more fill the cores better and take a tenth more of CPU: no gain.
    """
    return len(os.sched_getaffinity(0)) + 1


# What asks TVM and the optimisers in Python, which take long to import: side by side, so that one process of
# the tests does most of it.
_OF_COMPILERS = {
    "test_agreement.py",
    "test_bisect_passes.py",
    "test_bisect_tvm_passes.py",
    "test_judge_forms.py",
    "test_onnx_tools.py",
    "test_onnx_utilities.py",
    "test_onnxruntime_tools.py",
    "test_reduce_kinds.py",
    "test_reduce_planted_tvm.py",
    "test_reduce_transformers.py",
    "test_relax_in_tvm.py",
    "test_samples.py",
    "test_tir_programs.py",
    "test_transformers.py",
    "test_truth.py",
    "test_tvm_backend.py",
    "test_tvm_codec.py",
    "test_tvm_relax_modules.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The chain first, then those, then the terminal app's: xdist gives each process a part of the row, and
    long tests at its end would leave the others idle.

    pytest-randomly has shuffled the files, and the tests in each; within the four groups its order stays.
    """
    items.sort(
        key=lambda item: (
            item.path.name != "test_chain.py",
            item.path.name not in _OF_COMPILERS,
            item.path.parent.name != "tui",
        )
    )


def pytest_collection_finish() -> None:
    """What was collected stays: no search for garbage goes through it again, nor those with which pytest
    ends.
    """
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def kept_zygotes(worker_id: str, testrun_uid: str) -> Iterator[None]:
    """A compiler that a test has started serves the tests after it too, in all processes of the run; a test
    that looks at what `Workers` leave behind has zygotes of its own.
    """
    if worker_id != "master":
        ZYGOTES.share_as(f"tests {testrun_uid}")
    ZYGOTES.keep_idle(14, ignored=_NOT_FOR_COMPILERS)
    yield
    ZYGOTES.keep_idle(0)


@pytest.fixture(scope="session", autouse=True)
def lane_here() -> Iterator[None]:
    """The first lane of a `fuzz` that a test runs in its own process is a thread of it; what is started with
    `run` says so itself.
    """
    import thread_lanes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_spawn, "spawn_lane", thread_lanes.spawn)
        yield


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Workers with limits that a test can reach quickly."""
    with Workers(Limits(seconds=20.0, memory=2 << 30, printed=16 << 20)) as every:
        yield every


@contextlib.contextmanager
def _shared_folder(factory: pytest.TempPathFactory, worker_id: str, name: str) -> Iterator[Path]:
    """A folder that all pytest processes of a run share; one of them at a time is inside."""
    mine = factory.getbasetemp()
    folder = (mine if worker_id == "master" else mine.parent) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def hostile_corpus(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> list[tuple[Path, str]]:
    """The corpus of hostile files (support/hostile.py), written once for all processes of a run: to read
    only.
    """
    import hostile

    with _shared_folder(tmp_path_factory, worker_id, "hostile") as folder:
        made = folder / "made.json"
        if not made.exists():
            items = [(str(path), why) for path, why in hostile.corpus(folder / "corpus")]
            made.write_text(json.dumps(items))
    return [(Path(path), why) for path, why in json.loads(made.read_text())]


@pytest.fixture(scope="session")
def node_tests(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> list[Any]:
    """ONNX's own node tests (support/node_tests.py), collected once for all processes of a run: to read
    only.
    """
    import node_tests

    with _shared_folder(tmp_path_factory, worker_id, "node_tests") as folder:
        made = folder / "tests.pickle"
        if not made.exists():
            subprocess.run([sys.executable, node_tests.__file__, made], check=True, timeout=300)
    return node_tests.load(made)


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with the sdist and the wheel that is built from it, made once for all processes of a run: to
    read only.
    """
    from repository import ROOT

    if "DISTRIBUTIONS" in os.environ:  # make dist
        return ROOT / os.environ["DISTRIBUTIONS"]
    with _shared_folder(tmp_path_factory, worker_id, "distributions") as folder:
        if not (folder / "dist").exists():
            # A copy, because a build writes the version into the tree that it builds.
            command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.split("\0")
            for name in filter(None, listed):
                if (ROOT / name).exists():
                    (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, folder / "copy" / name, follow_symlinks=False)
            command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "made")]
            subprocess.run([*command, str(folder / "copy")], capture_output=True, check=True)
            shutil.rmtree(folder / "copy")
            (folder / "made").rename(folder / "dist")
    return folder / "dist"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for the terminal app, made once for a file of tests: to look at only."""
    from tui_driving import store_at

    return store_at(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to change."""
    return Path(shutil.copytree(made, tmp_path / "store"))
