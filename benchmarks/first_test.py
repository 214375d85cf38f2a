"""Seconds from the command to the first test and to the first failure, with an empty cache, for one target
and for many.

    python benchmarks/first_test.py [--minutes 5] [--seed 1] [--jobs 2] [--rounds 1]

`opsieve fuzz` as a person types it, with a cache folder and a store of its own each time. Rows of a Markdown
table: seconds on the wall's clock, and CPU seconds of the command and of everything it had started by then,
since on a busy machine the clock says little. A failure is one that the store has recorded as such. A run
ends with its first failure, or after `--minutes`.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from campaign_faults import asked, done_in
from process_tree import samples

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.errors import BadInput

ONE = ("onnxruntime",)
MANY = (
    "onnxruntime",
    "onnxruntime:disable_all",
    "tvm",
    "onnxoptimizer",
    "onnxsim",
    "onnxscript",
    "onnxslim",
    "openvino",
)
_LOOK = 0.05


def main() -> None:
    """Run, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    many = installed(MANY)
    print("| targets | first test, s | CPU s | first failure, s | CPU s | load |\n|---|---|---|---|---|---|")
    for round_ in range(given.rounds):
        for targets in (ONE, many):
            test, failure = measured(targets, given.seed + round_, given.minutes, given.jobs)
            cells = [f"{wall:.1f} | {cpu:.1f}" if wall else "none | " for wall, cpu in (test, failure)]
            name = targets[0] if len(targets) == 1 else f"{len(targets)}: {', '.join(targets)}"
            print(f"| {name} | {cells[0]} | {cells[1]} | {os.getloadavg()[0]:.1f} |", flush=True)


def installed(wanted: Sequence[str]) -> tuple[str, ...]:
    """Those of the targets that can be run here."""
    found = []
    with Workers() as workers:
        for name in wanted:
            try:
                workers.version(resolve(name))
                found.append(name)
            except (Unavailable, BadInput) as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
    return tuple(found)


def measured(
    targets: Sequence[str], seed: int, minutes: float, jobs: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds and CPU seconds until the first test, and until the first failure; 0 where there was none."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        words = [word for target in targets for word in ("-t", target)]
        command = [
            Path(sys.executable).parent / "opsieve",
            "fuzz",
            *words,
            "--seed",
            str(seed),
            "-j",
            str(jobs),
        ]
        begun = time.monotonic()
        running = subprocess.Popen(
            [*command, "--store", store], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"},
        )  # fmt: skip
        test = failure = (0.0, 0.0)
        with running:
            while not failure[0] and time.monotonic() - begun < 60 * minutes and running.poll() is None:
                now = time.monotonic() - begun
                if done_in(store) and not test[0]:
                    test = (now, cpu(running.pid))
                if test[0] and asked(store, "SELECT 1 FROM failures WHERE verdict = 'fail' LIMIT 1"):
                    failure = (now, cpu(running.pid))
                time.sleep(_LOOK)
            with suppress(ProcessLookupError):
                running.send_signal(signal.SIGINT)
            said = running.communicate()[1]
        if not test[0]:
            print(f"no test of {', '.join(targets)}: {said.strip()[-300:]}", file=sys.stderr)
        return test, failure


def cpu(pid: int) -> float:
    """CPU seconds of a process and all below it."""
    return sum(sample.cpu for sample in samples(pid))


if __name__ == "__main__":
    main()
