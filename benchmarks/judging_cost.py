"""What the judge costs a campaign: tests for each second of CPU time, with it as it is, with `--metamorphic`,
and in another tree.

    python benchmarks/judging_cost.py [--tests 200] [--rounds 3] [--seed 0] [--before PYTHON]

`PYTHON` is the interpreter of an environment with an older opsieve. Each round runs every variant once, one
after the other, on one seed of its own (programs are the same for variants of one tree; an older generator
makes others of equal number and size). Times are those of the command and everything it started, as the
kernel counts them, so that a busy machine alters them little.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TARGETS = ("-t", "onnxruntime", "-t", "onnxruntime:basic", "-t", "onnxruntime:disable_all")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--before", metavar="PYTHON", help="interpreter of an environment with an older opsieve"
    )
    asked = parser.parse_args()
    variants = {"as it is": (sys.executable, ()), "--metamorphic": (sys.executable, ("--metamorphic",))}
    if asked.before:
        variants["before"] = (asked.before, ())
    rates: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(asked.rounds):
        for name, (python, options) in variants.items():
            seconds = cpu_seconds(python, asked.tests, asked.seed + turn, options)
            rates[name].append(asked.tests / seconds)
            print(
                f"round {turn + 1}, {name}: {asked.tests / seconds:.1f} tests a second of CPU time",
                flush=True,
            )
    plain = statistics.median(rates["as it is"])
    for name, found in rates.items():
        print(
            f"{name}: median {statistics.median(found):.1f}, {statistics.median(found) / plain:.2f} of `as"
            " it is`"
        )


def cpu_seconds(python: str, tests: int, seed: int, options: Sequence[str]) -> float:
    """CPU seconds of one campaign and of all that it started."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        command = [
            python,
            "-m",
            "opsieve",
            "fuzz",
            *TARGETS,
            "--tests",
            str(tests),
            "--seed",
            str(seed),
            "--store",
            store,
        ]
        with open(os.devnull, "wb") as nowhere:
            process = subprocess.Popen([*command, *options], stdout=nowhere, stderr=nowhere)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
