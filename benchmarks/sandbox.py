"""What the sandbox costs: tests with and without it, in blocks that take turns, in one run.

    python benchmarks/sandbox.py [--blocks N] [--tests N] [TARGET ...]

For each target: CPU seconds of worker and main process for a block of tests in one persistent worker, and for
tests in a fresh fork each; the median over the blocks of with / without. CPU, since the machine may be busy.
"""

import argparse
import os
import statistics
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from models import X, chain

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.sandbox.policy import switch_off
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.shared_zygotes import SharedZygotes
from opsieve.backends.workers.zygotes.work_clock import read_load

PROGRAMS = [
    chain(*names) for names in (("Relu",), ("Tanh", "Exp"), ("Neg", "Sigmoid", "Relu"), ("Softplus", "Abs"))
]


def used() -> float:
    """CPU seconds of this process and all below it so far, ended workers too."""
    found = read_load(os.getpid())
    return found.cpu if found else 0.0


def block(workers: Workers, target: ResolvedTarget, tests: int, fresh: bool) -> float:
    asked = [Test(PROGRAMS[at % len(PROGRAMS)], X) for at in range(tests)]
    before = used()
    assert all(seen.outcome == "ok" for seen in workers.observe_many(target, asked, fresh=fresh))
    return used() - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", default=["onnxruntime", "reference"])
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--tests", type=int, default=400)
    given = parser.parse_args()
    for name in given.targets:
        target = resolve(name)
        with ExitStack() as stack:
            pair = []
            for around in (nullcontext(), switch_off()):
                with around:
                    workers = stack.enter_context(Workers(zygotes=SharedZygotes()))
                    print(
                        f"{name} {workers.version(target)}: {', '.join(workers.get_walls()[0]) or 'no sandbox'}",
                        flush=True,
                    )
                    block(workers, target, 50, False)
                    pair.append(workers)
            for fresh, tests in ((False, given.tests), (True, max(10, given.tests // 10))):
                seen = []
                for number in range(given.blocks):
                    turn = {
                        at: block(pair[at], target, tests, fresh) for at in ((0, 1) if number % 2 else (1, 0))
                    }
                    seen.append(turn)
                ratio = statistics.median(turn[0] / turn[1] for turn in seen)
                each = [1000 * statistics.median(turn[at] for turn in seen) / tests for at in (0, 1)]
                kind = "fresh fork" if fresh else "persistent worker"
                print(
                    f"  {kind}: {each[0]:.2f} / {each[1]:.2f} ms of CPU a test, ratio {ratio:.3f}"
                    f" ({given.blocks} blocks of {tests})"
                )


if __name__ == "__main__":
    main()
