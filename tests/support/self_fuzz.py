"""Our own readers fed with damaged files for as long as one likes: `make fuzz-self MINUTES=60`, or `python
tests/support/self_fuzz.py --minutes 60`.

Readers and kinds of damage are those of tests/triage/test_readers.py, here one upon the other, with new seeds
each time. Each round is a process of its own with limits on memory and on the time of one file. What a reader
answers with anything but a sentence is kept in the folder of findings, with a line that says how it was made.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent
sys.path[:0] = [str(SUPPORT), str(SUPPORT.parent / "triage")]

from test_readers import READERS, Reader  # noqa: E402

from opsieve.gen.errors import BadInput  # noqa: E402

ROUND = 300  # files of one process
SECONDS = 20  # of CPU, that a file may take
MEMORY = 6 << 30


class Draws:
    """What hypothesis gives to a composite strategy, from a plain random generator: the kinds of damage ask
    for these few.
    """

    def __init__(self, seed: str):
        self.random = random.Random(seed)

    def __call__(self, strategy: Any) -> Any:
        return draw(strategy, self.random)


def draw(strategy: Any, chance: random.Random) -> Any:
    """A value of the strategies that damage.py uses: far quicker than hypothesis, which would shrink what
    nobody reads.
    """
    inner = getattr(strategy, "wrapped_strategy", strategy)
    kind = type(inner).__name__
    if kind == "SampledFromStrategy":
        return chance.choice(list(inner.elements))
    if kind == "IntegersStrategy":
        return chance.randint(inner.start, inner.end)
    if kind == "BooleansStrategy":
        return chance.random() < 0.5
    if kind == "OneOfStrategy":
        return draw(chance.choice(list(inner.element_strategies)), chance)
    if kind == "BytesStrategy":
        return chance.randbytes(chance.randint(1, 8))
    if kind == "BuildsStrategy":
        given = [draw(argument, chance) for argument in inner.args]
        return inner.target(*given)
    raise TypeError(f"no draw of {kind}")


@dataclass(frozen=True)
class Finding:
    """A file that its reader did not answer as it should."""

    reader: str
    seed: str
    what: str
    trace: str
    content: bytes


def content_of(reader: Reader, sound: bytes, seed: str) -> bytes:
    """The sound file damaged once to four times, as the seed says."""
    draws: Any = Draws(seed)
    for _ in range(draws.random.choice((1, 1, 2, 3, 4))):
        try:
            sound = draws.random.choice(reader.kinds)(draws, sound)
        except Exception:  # noqa: BLE001  what is damaged may be no file any more that keeps its structure
            break
    return sound


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """TimeoutError after so much CPU time."""

    def over(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s of CPU")

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def tried(name: str, sound: Path, seed: str, scratch: Path) -> Finding | None:
    """One damaged file read; None when its reader reads it or says in a line why not."""
    reader = READERS[name]
    place = min(sound.glob(reader.file)).relative_to(sound)
    content = content_of(reader, (sound / place).read_bytes(), seed)
    return answered(name, sound, place, content, seed, scratch)


def answered(name: str, sound: Path, place: Path, content: bytes, seed: str, scratch: Path) -> Finding | None:
    """What is wrong with how the reader answers this content, None for nothing."""
    folder = scratch / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    (folder / place).write_bytes(content)
    try:
        with limited(SECONDS):
            READERS[name].read(folder)
    except BadInput as error:
        said = str(error)
        if not said.isprintable() or not 0 < len(said) < 600:
            return Finding(name, seed, "no sentence", said[:300], content)
    except Exception as error:  # noqa: BLE001  that is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return Finding(
            name, seed, f"{type(error).__name__} at {where}", traceback.format_exc()[-3000:], content
        )
    return None


def round_of(name: str, sound: Path, seeds: Sequence[str], keep: Callable[[Finding], None]) -> int:
    """One process: how many of the files were read; what it died of is a finding."""
    reached = os.memfd_create("reached")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            with tempfile.TemporaryDirectory(prefix="self-fuzz-") as scratch:
                for number, seed in enumerate(seeds):
                    os.pwrite(reached, b"%9d" % number, 0)
                    found = tried(name, sound, seed, Path(scratch))
                    if found is not None:
                        keep(found)
                os.pwrite(reached, b"%9d" % len(seeds), 0)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    done = int(os.pread(reached, 9, 0) or b"0")
    os.close(reached)
    if status:
        place = min(sound.glob(READERS[name].file))
        seed = seeds[min(done, len(seeds) - 1)]
        keep(
            Finding(
                name,
                seed,
                f"the process ended: {status}",
                "",
                content_of(READERS[name], place.read_bytes(), seed),
            )
        )
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--findings", type=Path, default=SUPPORT.parent.parent / "benchmarks" / "results" / "self-fuzz"
    )
    parser.add_argument("readers", nargs="*", help=f"of {', '.join(READERS)}; all by default")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    names, executions, number = given.readers or list(READERS), Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="self-fuzz-sound-") as folder:
        for name in names:
            (Path(folder) / name).mkdir()
            READERS[name].make(Path(folder) / name)
        while time.monotonic() < end:
            for name in names:
                seeds = [
                    f"{given.seed} {number} {at}"
                    for at in range(ROUND if name not in ("decisions", "failure.json", "index") else 40)
                ]
                executions[name] += round_of(
                    name, Path(folder) / name, seeds, lambda found: kept(found, given.findings)
                )
                if time.monotonic() > end:
                    break
            number += 1
    findings = list(given.findings.glob("*.json")) if given.findings.is_dir() else []
    kinds = Counter(
        f"{facts['reader']}: {facts['what']}" for facts in (json.loads(path.read_text()) for path in findings)
    )
    print(
        f"seed {given.seed}: {sum(executions.values()):,} files read"
        f" ({', '.join(f'{name} {count:,}' for name, count in executions.items())})"
    )
    print(f"{len(kinds)} kinds of findings in {given.findings}" if kinds else "no findings")
    for kind, count in kinds.most_common():
        print(f"  {count} {kind}")


def kept(found: Finding, folder: Path) -> None:
    """Write a finding, at most ten of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = sha256(f"{found.reader} {found.what}".encode()).hexdigest()[:8]
    with suppress(OSError):
        if len(list(folder.glob(f"{kind}-*.json"))) < 10:
            stem = f"{kind}-{sha256(found.content).hexdigest()[:8]}"
            (folder / f"{stem}.bin").write_bytes(found.content)
            facts = {"reader": found.reader, "seed": found.seed, "what": found.what, "trace": found.trace}
            (folder / f"{stem}.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
