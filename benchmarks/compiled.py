"""The generator compiled by mypyc beside the same in Python: whether programs are equal, and how much faster
it is.

    python benchmarks/compiled.py [NAME ...] [--nodes 10,100] [--rounds 2] [--programs 200] [--keep FOLDER]

Builds the wheel as users do (docs/how-to/generate.md), which takes some minutes, and unpacks it; `--keep` has
it lie there, or takes what lies there already. Then equal_programs.py compares `--programs` of every
strategy, and two processes take turns program by program, as `speed.py --before` has them. The exit code is 1
where a program differs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from speed import beside

ROOT = Path(__file__).resolve().parent.parent


def unpacked(folder: Path) -> Path:
    """A folder with `src/opsieve` as the compiled wheel has it."""
    if not (folder / "src").exists():
        command = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(folder),
            str(ROOT),
        ]
        subprocess.run(command, env={**os.environ, "HATCH_BUILD_HOOK_ENABLE_CUSTOM": "1"}, check=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            wheel.extractall(folder / "src")
    assert list(folder.glob("src/opsieve__mypyc.*")), "nothing is compiled"
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["mix", "isra"], help="strategies to time")
    parser.add_argument("--nodes", default="10,100")
    parser.add_argument("--rounds", type=int, default=2, help="of timing; 0 leaves it out")
    parser.add_argument("--programs", type=int, default=200, help="of each strategy to compare")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = unpacked((given.keep or Path(scratch)).resolve())
        script = str(ROOT / "benchmarks" / "equal_programs.py")
        command = [sys.executable, script, "--tree", str(folder), "--programs", str(given.programs)]
        differs = subprocess.run(command).returncode
        print(f"load {os.getloadavg()[0]:.1f}; Python, compiled", flush=True)
        for name in given.names if given.rounds else ():
            for nodes in given.nodes.split(","):
                beside(name, int(nodes), given.rounds, ROOT, folder)
    return differs


if __name__ == "__main__":
    sys.exit(main())
