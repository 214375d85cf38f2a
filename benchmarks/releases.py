"""What a release costs: the first install (download), an install from uv's cache, and finding one that is
there.

    python benchmarks/releases.py [RELEASE]...

Prints one line for each release of onnxruntime: wall seconds, CPU seconds of this process and its children,
and bytes. The store and uv's cache are made in a temporary folder, so that `cold` is cold whatever ran
before; the first release of each Python, marked in the last column, pays for the base environment too.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from opsieve.backends.registry import plugin
from opsieve.backends.releases.interpreters import find_interpreters
from opsieve.backends.releases.releases import Environment, ReleaseStore

RELEASES = ("1.31.0", "1.20.1", "1.14.1", "1.12.1", "1.10.0", "1.9.0")
ROUNDS = 100
Result = TypeVar("Result")


def main() -> None:
    start = time.perf_counter()
    found = find_interpreters()
    versions = ", ".join(".".join(map(str, one.version)) for one in found)
    print(f"{len(found)} Pythons found in {time.perf_counter() - start:.2f} s: {versions}\n")
    print(
        f"{'release':<9}{'python':<8}{'cold s':>8}{'CPU s':>8}{'warm s':>8}{'CPU s':>8}{'reuse ms':>10}{'MB':>7}"
        "  first of its Python"
    )
    bases: set[Path] = set()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UV_CACHE_DIR"] = f"{folder}/cache"
        stores = [ReleaseStore(Path(folder) / name) for name in ("cold", "warm")]
        for release in sys.argv[1:] or RELEASES:
            measured = [timed(partial(install, store, release)) for store in stores]
            environment = measured[0][0]
            _, reuse, _ = timed(partial(reuse_often, stores[0], release))
            size = sum(path.stat().st_size for path in environment.path[0].rglob("*") if path.is_file())
            row = f"{release:<9}{'.'.join(map(str, environment.python_version[:2])):<8}"
            row += "".join(f"{wall:>8.2f}{cpu:>8.2f}" for _, wall, cpu in measured)
            first = "yes" if environment.python not in bases else ""
            bases.add(environment.python)
            print(f"{row}{1000 * reuse / ROUNDS:>10.2f}{size / 1e6:>7.0f}  {first}")
        every, wall, cpu = timed(partial(stores[0].available, plugin("onnxruntime").facts.package))
        print(f"\n{len(every)} releases listed in {wall:.2f} s, {cpu:.2f} CPU s")


def install(store: ReleaseStore, release: str) -> Environment:
    return store.environment(plugin("onnxruntime").backend, release)


def reuse_often(store: ReleaseStore, release: str) -> None:
    for _ in range(ROUNDS):
        install(store, release)


def timed(action: Callable[[], Result]) -> tuple[Result, float, float]:
    """What the action gives, its wall seconds, and the CPU seconds of this process and its ended children."""
    start, before = time.perf_counter(), cpu_seconds()
    result = action()
    return result, time.perf_counter() - start, cpu_seconds() - before


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
