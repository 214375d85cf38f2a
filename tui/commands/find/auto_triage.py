"""New failures looked into beside the hunt: reduced, asked for the guilty passes and the first bad release,
within a share of the time.

One command of opsieve's own at a time, each a process with a limit: the hunt goes on whatever becomes of it,
and what it finds lies beside the case, as when a person asks.
"""

import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from opsieve.backends.registry import resolve
from opsieve.gen.errors import BadInput, NoFailure
from opsieve.triage.store.index.index_file import joined
from opsieve.triage.store.index.index_reader import IndexReader
from opsieve.triage.store.rows import Candidate
from opsieve.triage.store.store_folder import case_folder

TURN = 60.0  # seconds that one command may take, where nothing says how long the campaign is
_LEAST = 5.0
_GRACE = 15.0  # seconds in which an interrupted command saves its best
_LOOK = 1.0  # seconds between two looks for new cases
_GOOD = (0, 1)
_COMMAND = (
    "from opsieve.reducer.sessions.case_process import end_with_parent; end_with_parent(); from opsieve.tui.cli import"
    " main; main()"
)


class AutoTriage:
    """Looks into the cases of a store while it is a context, for at most `share` of the time; `whole` is how
    long that will be, 0 for who knows.
    """

    def __init__(self, folder: Path, share: float, whole: float = 0.0):
        self._folder, self._share, self._whole = folder, share, whole
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._started = time.monotonic()
        self._spent = 0.0
        self._asked: set[str] = set()  # fingerprints
        self.done = {"reduced": 0, "attributed": 0, "bisected": 0}

    def __enter__(self) -> "AutoTriage":
        if self._share:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End what is under way, its best saved."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def facts(self) -> dict[str, float]:
        """For `--json`."""
        return {**self.done, "seconds": round(self._spent, 1), "share": self._share}

    def _work(self) -> None:
        waiting: deque[Candidate] = deque()
        while not self._stop.wait(0 if waiting and self._left() > 0 else _LOOK):
            if self._left() <= 0:
                continue
            waiting = waiting or deque(self._new())
            if waiting:
                one = waiting.popleft()
                self._asked.add(one.fingerprint)
                try:
                    self._look_into(one)
                except BadInput:
                    continue  # its folder is none of ours

    def _left(self) -> float:
        """Seconds of the share that are not spent."""
        return self._share * (self._whole or time.monotonic() - self._started) - self._spent

    def _new(self) -> list[Candidate]:
        """The cases that nobody looked into, one of each fingerprint."""
        found: dict[str, Candidate] = {}
        try:
            with joined(self._folder) as database:
                for one in IndexReader(database).candidates():
                    if one.fingerprint not in self._asked:
                        found.setdefault(one.fingerprint, one)
        except BadInput:
            return []  # it is locked for a moment
        return list(found.values())

    def _look_into(self, one: Candidate) -> None:
        case = case_folder(self._folder, one.place)
        target, asked = ["-t", one.target], ["--offline", "--json"]
        code = self._run("reduce", str(case), *target, "-o", str(case / "reduced"), "--seconds", "10", *asked)
        if code == NoFailure.exit_code:
            return
        small = case / "reduced" if (case / "reduced" / "case.json").exists() else case
        self.done["reduced"] += small != case
        self.done["attributed"] += self._run("attribute", str(small), *target, *asked) in _GOOD
        package = resolve(one.target).facts.package
        if package:
            self.done["bisected"] += (
                self._run("bisect", str(small), "--releases", package, *target, *asked) in _GOOD
            )

    def _run(self, *command: str) -> int:
        """Run a command of opsieve; its exit code, -1 where its time was over or there is none left."""
        limit = max(_LEAST, min(TURN, self._left()))
        if self._stop.is_set():
            return -1
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the terminal is not its own
        )
        while child.poll() is None and time.monotonic() - began < limit and not self._stop.wait(0.1):
            pass
        over = child.poll() is None
        if over:
            child.terminate()
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._spent += time.monotonic() - began
        return -1 if over else child.returncode
