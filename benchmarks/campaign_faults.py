"""Random kills of a campaign, a disk that fills up, and a reader throughout: is its store that of an
undisturbed one?

    python benchmarks/campaign_faults.py [--kills 100] [--full 5] [--tests-a-kill 4] [--seed 1] [--jobs 2]

`opsieve fuzz` runs on the fake compiler and onnxruntime, with its store on a tmpfs of its own. At moments
drawn by the seed the main process, a lane or a worker is killed with SIGKILL (`--kills`), and the tmpfs is
filled to its last byte for some seconds (`--full`), in half of the cases with a kill of the main process
while it is full. A campaign whose main process is gone is resumed. `opsieve clusters` and `show` read the
store all the while. In the end the campaign is brought to a whole number of tests and compared with one of as
many tests that nobody disturbed, with one lane: programs, tests, failures, fingerprints, totals and clusters
must be equal, `opsieve index` must find nothing to do, and no process may be left. Needs the right to mount
(root, or user namespaces). Exit code 1 when anything differs.
"""

import argparse
import collections
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any

from process_tree import below

FAKE = "fake:wrong@Softmax+wrong@Neg+wrong@Relu+crash@Identity+crash@Flatten+error@ReduceMax+error@Less+error@Reshape+unsupported@And"
OPSIEVE = str(Path(sys.executable).parent / "opsieve")
CAMPAIGN = ("-t", FAKE, "-t", "onnxruntime", "--nodes", "6", "--strategy", "isra", "--seed", "3", "--quiet")
SIZE = 96  # MB of the tmpfs
FULL_SECONDS = 20.0  # at most: until the campaign has said that it waits for space
STARTING = 0.25  # share of the kills that do not wait for a test
COMPARED = (
    "SELECT * FROM tests ORDER BY number",
    "SELECT test, target, verdict, kind, fingerprint, folder FROM failures ORDER BY test, target",
    "SELECT key, count, kept FROM fingerprints ORDER BY key",
    "SELECT target, verdict, count FROM totals ORDER BY target, verdict",
    "SELECT name, value FROM learnt WHERE name != 'growth' ORDER BY name",  # that is a picture by the clock
)


def main() -> None:
    """Run, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--full", type=int, default=5)
    parser.add_argument("--tests-a-kill", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--mounted", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mounted is None:
        with tempfile.TemporaryDirectory() as folder:
            rights = () if os.geteuid() == 0 else ("-r",)
            command = ["unshare", *rights, "-m", sys.executable, __file__, *sys.argv[1:], "--mounted", folder]
            sys.exit(subprocess.run(command).returncode)
    disturbed = given.mounted / "disk"
    disturbed.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", disturbed], check=True)
    try:
        facts = measured(given, disturbed)
    finally:
        subprocess.run(["umount", disturbed], check=False)
    print(json.dumps(facts))
    sys.exit(0 if facts["equal"] and not facts["complaints"] else 1)


def measured(given: argparse.Namespace, disk: Path) -> dict[str, Any]:
    """Disturb a campaign, end it, and compare."""
    begun, cpu = time.monotonic(), os.times()
    store = disk / "store"
    with (given.mounted / "log").open("w+", encoding="utf-8") as log, Reader(store) as reader:
        disturbed = Disturbed(store, given.jobs, random.Random(given.seed), log)
        actions = ["kill"] * given.kills + ["fill"] * given.full
        disturbed.draw.shuffle(actions)
        for action in actions:
            if action == "kill":
                disturbed.kill(given.tests_a_kill)
            else:
                disturbed.fill(disk)
        tests = -(-done_in(store) // 32) * 32 + 32
        disturbed.finish(tests)
        log.seek(0)
        complaints = [line.strip()[:300] for line in log if "Traceback" in line or "fault of opsieve" in line]
    undisturbed = given.mounted / "undisturbed"
    opsieve("fuzz", *CAMPAIGN, "--tests", tests, "-j", 1, "--store", undisturbed)
    there, here = contents(store), contents(undisturbed)
    different = [sql for sql, a, b in zip(("programs", *COMPARED), there, here, strict=True) if a != b]
    index = opsieve("index", "--store", store)
    now = os.times()
    return {
        "kills": dict(disturbed.killed), "full": given.full, "paused_for_space": disturbed.paused,
        "runs": disturbed.runs, "tests": tests, "equal": not different, "different": different,
        "index_says": index.strip(), "reads": reader.reads,
        "complaints": complaints + disturbed.complaints + reader.complaints,
        "wall_s": round(time.monotonic() - begun), "cpu_s": round(sum(now[:4]) - sum(cpu[:4])),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


class Disturbed:
    """A campaign that is killed and resumed."""

    def __init__(self, store: Path, jobs: int, draw: random.Random, log: IO[str]):
        self.store, self.jobs, self.draw, self.log = store, jobs, draw, log
        self.killed: collections.Counter[str] = collections.Counter()
        self.complaints: list[str] = []
        self.runs = self.paused = 0
        self._running: subprocess.Popen[bytes] | None = None

    def kill(self, tests: int) -> None:
        """Kill the main process, a lane or a worker, after some tests or at once."""
        running = self._started()
        if self.draw.random() < STARTING:
            time.sleep(self.draw.uniform(0, 3))
        else:
            self._go_on(running, self.draw.randint(1, 2 * tests))
        who = self.draw.choice(("main", "lane", "worker"))
        victims = [pid for pid, role in below(running.pid) if role == who]
        if victims:
            self.killed[who] += 1
            with suppress(ProcessLookupError):
                os.kill(self.draw.choice(victims), signal.SIGKILL)

    def fill(self, disk: Path) -> None:
        """Fill the disk for a while; half of the times the main process is killed meanwhile."""
        running = self._started()
        if self.draw.random() >= STARTING:
            self._go_on(running, 1)
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20 if free(disk) > 1 << 20 else 512))
        said, until = self._pauses(), time.monotonic() + FULL_SECONDS
        while self._pauses() == said and time.monotonic() < until and running.poll() is None:
            time.sleep(0.1)
        self.paused += self._pauses() > said
        if self.draw.random() < 0.5 and running.poll() is None:
            self.killed["main, disk full"] += 1
            running.kill()
        ballast.unlink()

    def _go_on(self, running: "subprocess.Popen[bytes]", tests: int) -> None:
        """Wait until so many more tests are recorded, or the run has ended."""
        wanted = done_in(self.store) + tests
        while done_in(self.store) < wanted and running.poll() is None:
            time.sleep(0.02)

    def finish(self, tests: int) -> None:
        """End what runs as a person does, and bring the campaign to so many tests."""
        if self._running is not None and self._running.poll() is None:
            self._running.send_signal(signal.SIGINT)
        self._ended()
        opsieve("fuzz", "--resume", "--quiet", "--tests", tests, "-j", self.jobs, "--store", self.store)

    def _started(self) -> "subprocess.Popen[bytes]":
        """The campaign's main process, a new one where it is gone."""
        if self._running is not None and self._running.poll() is None:
            return self._running
        self._ended()
        how = ("--resume", "--quiet") if campaigns_in(self.store) else CAMPAIGN
        self.runs += 1
        command = [OPSIEVE, "fuzz", *how, "-j", str(self.jobs), "--store", str(self.store)]
        self._running = subprocess.Popen(command, stdout=self.log, stderr=self.log, start_new_session=True)
        return self._running

    def _ended(self) -> None:
        """Take the end of a run down, and look that it left no process."""
        if self._running is None:
            return
        left = [pid for pid, _ in below(self._running.pid) if pid != self._running.pid]
        code = self._running.wait()
        if code not in (-signal.SIGKILL, 130, 2):  # 2: the disk was full when it began
            self.complaints.append(f"a run ended with {code}")
        deadline = time.monotonic() + 20
        while any(Path("/proc", str(pid)).exists() for pid in left):
            if time.monotonic() > deadline:
                self.complaints.append(f"{len(left)} processes outlived their run")
                break
            time.sleep(0.05)

    def _pauses(self) -> int:
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace").count("paused until")


class Reader(threading.Thread):
    """Reads the store with commands, one after the other; use it as a context manager."""

    def __init__(self, store: Path):
        super().__init__(daemon=True)
        self._store, self._over = store, threading.Event()
        self.reads, self.complaints = 0, list[str]()

    def __enter__(self) -> "Reader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Read until it is over."""
        while not self._over.wait(3.0):
            if not campaigns_in(self._store):
                continue
            for words in (("clusters", "--json"), ("show", "c1", "--json")):
                done = subprocess.run(
                    [OPSIEVE, *words, "--store", self._store], capture_output=True, text=True
                )
                self.reads += 1
                if done.returncode not in (0, 2) or (words[0] == "clusters" and done.returncode):
                    self.complaints.append(f"{words[0]} ended with {done.returncode}: {done.stderr[-200:]}")


def opsieve(*words: object) -> str:
    """What a command prints; its exit code must be 0 or 1."""
    done = subprocess.run([OPSIEVE, *map(str, words)], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def free(disk: Path) -> int:
    """Bytes that can still be written."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def asked(store: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of the index; none where there is no such table yet, or the disk has no room for a reader's
    files.
    """
    try:
        with closing(sqlite3.connect(f"file:{store / 'index.sqlite'}?mode=ro", uri=True)) as index:
            return index.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []


def done_in(store: Path) -> int:
    """Tests that are recorded."""
    return next((count for (count,) in asked(store, "SELECT count(*) FROM tests")), 0)


def campaigns_in(store: Path) -> bool:
    """Whether a campaign was begun."""
    return bool(asked(store, "SELECT 1 FROM campaigns"))


def contents(store: Path) -> list[Any]:
    """Programs by their place, and what the index has of the campaign."""
    if list((store / "staging").iterdir()) or asked(store, "PRAGMA integrity_check") != [("ok",)]:
        sys.exit(f"{store}: cases left in staging, or a damaged index")
    programs = {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in store.glob("cases/*/*/model.onnx")
    }
    return [programs, *(asked(store, sql) for sql in COMPARED)]


if __name__ == "__main__":
    main()
