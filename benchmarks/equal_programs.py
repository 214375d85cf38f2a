"""Whether the generator still makes the same programs: digests of programs and their inputs, here and in
another revision.

    python benchmarks/equal_programs.py --against main~20 [--programs 150] [--nodes 4-9] [--strategies
    NAME,...] python benchmarks/equal_programs.py --tree FOLDER

Each tree generates in a process of its own, from the seeds 0, 1, ... of each strategy that both have. The
first seed that gives something else is named, and the exit code is 1. A revision is unpacked into a temporary
folder; FOLDER is the root of any working tree.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from opsieve.gen.case.case import Case
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.generation.request import parse_nodes
from opsieve.gen.strategies import registry

ROOT = Path(__file__).resolve().parent.parent
# Of a process that is to print the digests of its own tree: strategies, programs of each, nodes.
_HERE = "--digests"


def _fed(held: "hashlib._Hash", value: object) -> None:
    if isinstance(value, np.ndarray) and value.dtype != object:
        held.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    elif isinstance(value, list | tuple):
        held.update(f"{len(value)}".encode())
        for each in value:
            _fed(held, each)
    else:
        held.update(repr(value.tolist() if isinstance(value, np.ndarray) else value).encode())


def digest(case: Case) -> str:
    """Of a program's bytes and those of all of its inputs."""
    held = hashlib.sha256(case.program.digest.encode())
    for name in sorted(case.inputs):
        held.update(name.encode())
        _fed(held, case.inputs[name])
    return held.hexdigest()[:16]


def digests(names: Sequence[str], programs: int, size: str) -> dict[str, list[str]]:
    """By strategy, of those that this tree has, the digests of its seeds."""
    here = [name for name in registry.list_names() if not names or name in names]
    least, most = parse_nodes(size)
    request = GenRequest(nodes=least, between=(least, most) if most > least else None)
    return {
        name: [digest(registry.generate(name, seed, request)) for seed in range(programs)] for name in here
    }


def of_tree(tree: Path, options: argparse.Namespace) -> dict[str, list[str]]:
    """The digests of a tree, made by this file in a process that imports opsieve from there."""
    command = [sys.executable, __file__, _HERE, options.strategies, str(options.programs), options.nodes]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {name: list(each) for name, each in json.loads(done.stdout).items()}


def unpacked(revision: str, folder: Path) -> Path:
    """The files of a revision of this repository, in a folder."""
    with (
        subprocess.Popen(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE) as archive,
        tarfile.open(fileobj=archive.stdout, mode="r|") as files,
    ):
        files.extractall(folder, filter="tar")
    return folder


def main() -> int:
    """Print a line a strategy; 1 where a program differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument("--against", metavar="REVISION")
    other.add_argument("--tree", type=Path)
    parser.add_argument("--programs", type=int, default=150, help="of each strategy")
    parser.add_argument("--nodes", default="4-9")
    parser.add_argument("--strategies", default="")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.tree or unpacked(
            options.against, Path(stack.enter_context(tempfile.TemporaryDirectory()))
        )
        there, here = of_tree(folder, options), of_tree(ROOT, options)
    wrong = 0
    for name in sorted(here.keys() | there.keys()):
        if name not in here or name not in there:
            print(f"{name}: only {'here' if name in here else 'there'}")
            continue
        differ = [
            seed
            for seed, (one, other) in enumerate(zip(here[name], there[name], strict=True))
            if one != other
        ]
        wrong += len(differ)
        print(
            f"{name}: {len(here[name]) - len(differ)} equal"
            + (f", {len(differ)} not: seed {differ[0]}" if differ else "")
        )
    total = sum(len(here[name]) for name in here.keys() & there.keys())
    print(f"{total - wrong} of {total} programs are equal byte for byte")
    return int(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == [_HERE]:
        wanted, count, size = sys.argv[2:]
        print(json.dumps(digests(list(filter(None, wanted.split(","))), int(count), size)))
    else:
        sys.exit(main())
