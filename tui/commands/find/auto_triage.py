"""Examine new failures beside the campaign, within a share of the time: reduce them, find guilty passes and
first bad releases.

One command of opsieve runs at a time, each a process with a time limit; its errors leave the campaign alone,
and its results lie beside the case, as after a manual run.
"""

import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from opsieve.backends.registry import resolve
from opsieve.gen.errors import BadInput, NoFailure
from opsieve.triage.store import rows, store_folder
from opsieve.triage.store.index import index_file, index_reader

# The limit on one command in seconds, if the campaign has no end.
TURN = 60.0
# Less would end before the compiler is loaded.
_LEAST = 5.0
# Seconds in which an interrupted command saves its best
_GRACE = 15.0
# Seconds between two looks for new cases
_LOOK = 1.0
_GOOD = (0, 1)
# `end_with_parent`: a campaign that is killed must not leave its child running.
_COMMAND = (
    "from opsieve.reducer.sessions.case_process import end_with_parent; end_with_parent(); from"
    " opsieve.tui.cli import"
    " main; main()"
)


class AutoTriage:
    """Examines the cases of a store while its context is open, for at most `share` of the time.

    `whole` is the length of the campaign in seconds, or 0 if unknown.
    """

    def __init__(self, folder: Path, share: float, whole: float = 0.0):
        self._folder, self._share, self._whole = folder, share, whole
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, daemon=True)
        self._started = time.monotonic()
        self._spent = 0.0
        # Fingerprints
        self._asked: set[str] = set()
        self.done = {"reduced": 0, "attributed": 0, "bisected": 0}

    def __enter__(self) -> "AutoTriage":
        if self._share:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_running()

    def stop_running(self) -> None:
        """End the current command, which saves its best result."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def list_facts(self) -> dict[str, float]:
        """Return the figures for `--json`."""
        return {**self.done, "seconds": round(self._spent, 1), "share": self._share}

    def _run_loop(self) -> None:
        waiting: deque[rows.Candidate] = deque()
        while not self._stop.wait(0 if waiting and self._get_time_left() > 0 else _LOOK):
            # The share grows with the time of a campaign without an end.
            if self._get_time_left() <= 0:
                continue
            waiting = waiting or deque(self._list_new())
            if waiting:
                one = waiting.popleft()
                # Before it is examined: one that fails is not tried again and again.
                self._asked.add(one.fingerprint)
                try:
                    self._examine(one)
                except BadInput:
                    # The folder does not belong to opsieve.
                    continue

    def _get_time_left(self) -> float:
        """Return the unspent seconds of the share."""
        return self._share * (self._whole or time.monotonic() - self._started) - self._spent

    def _list_new(self) -> list[rows.Candidate]:
        """List the unexamined cases, one of each fingerprint."""
        found: dict[str, rows.Candidate] = {}
        try:
            with index_file.join_index(self._folder) as database:
                for one in index_reader.IndexReader(database).list_candidates():
                    if one.fingerprint not in self._asked:
                        found.setdefault(one.fingerprint, one)
        except BadInput:
            # It is locked for a moment
            return []
        return list(found.values())

    def _examine(self, one: rows.Candidate) -> None:
        case = store_folder.get_case_folder(self._folder, one.place)
        target, asked = ["-t", one.target], ["--offline", "--json"]
        code = self._run_command(
            "reduce", str(case), *target, "-o", str(case / "reduced"), "--seconds", "10", *asked
        )
        # It does not show any more, so that the others could only waste time.
        if code == NoFailure.exit_code:
            return
        small = case / "reduced" if (case / "reduced" / "case.json").exists() else case
        self.done["reduced"] += small != case
        self.done["attributed"] += self._run_command("attribute", str(small), *target, *asked) in _GOOD
        package = resolve(one.target).facts.package
        if package:
            self.done["bisected"] += (
                self._run_command("bisect", str(small), "--releases", package, *target, *asked) in _GOOD
            )

    def _run_command(self, *command: str) -> int:
        """Run a command of opsieve; return its exit code, or -1 without time left."""
        limit = max(_LEAST, min(TURN, self._get_time_left()))
        if self._stop.is_set():
            return -1
        began = time.monotonic()
        child = subprocess.Popen(
            # -P: the current folder, which may be a stranger's, supplies no modules.
            [sys.executable, "-P", "-c", _COMMAND, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # An interrupt of the terminal is not its own
            start_new_session=True,
        )
        # Short waits, so that the end of the campaign is not held up.
        while child.poll() is None and time.monotonic() - began < limit and not self._stop.wait(0.1):
            pass
        over = child.poll() is None
        if over:
            # SIGTERM: a reduction then saves the best that it has.
            child.terminate()
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._spent += time.monotonic() - began
        return -1 if over else child.returncode
