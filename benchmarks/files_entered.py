"""Count the product's files that two commands enter: what a reader opens to follow one failure.

    python benchmarks/files_entered.py [--names] [--repository FOLDER]

A file counts when one of its functions is called in the main process or, of `fuzz`, in a lane; importing a
file does not count, workers of compilers do not either. The lane of `fuzz` runs as a thread, as the tests run
it (tests/support/thread_lanes.py), so that one profiler sees all. On dcbb0cb this prints 173 for `reduce` and
227 for `fuzz` with seed 0, 217 to 227 with the seeds 0 to 4. The review of dcbb0cb says 204 and 219: it drew
the seed of `fuzz`, and how it counted 31 files more of `reduce` is not known (it counts the same 59 of the
reducer and 5 of tui).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

COMMANDS = {
    "reduce": "reduce {root}/samples/resnet-pad-maxpool-wrong-value --offline -o out",
    "fuzz": "fuzz -t fake --tests 16 --no-probe --seed 0",
}
FOLDERS = ("gen", "backends", "triage", "reducer", "bisect", "tui", "src")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", action="store_true", help="print the files too")
    parser.add_argument("--repository", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--trace", choices=COMMANDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    root = options.repository.resolve()
    if options.trace:
        print("\n".join(sorted(trace(COMMANDS[options.trace].format(root=root).split(), root))))
        return 0
    own = root / ".venv" / "bin" / "python"
    sources = [
        path
        for folder in FOLDERS
        for path in (root / folder).rglob("*.py")
        if not any(above.is_symlink() for above in path.parents)
    ]
    for name in COMMANDS:
        with tempfile.TemporaryDirectory() as scratch:
            python = own if own.exists() else sys.executable
            script = Path(__file__).resolve()
            done = subprocess.run(
                [python, "-W", "ignore", script, "--repository", root, "--trace", name],
                cwd=scratch,
                env={**os.environ, "PYTHONPATH": str(root / "tests" / "support")},
                capture_output=True,
                text=True,
                check=True,
            )
        entered = done.stdout.split()
        folders = Counter(Path(file).parts[0] for file in entered)
        print(
            f"{name}: {len(entered)} of {len(sources)} files in {len({Path(f).parent for f in entered})} folders"
            f" ({', '.join(f'{folder} {count}' for folder, count in folders.most_common())})"
        )
        if options.names:
            print("\n".join(f"    {file}" for file in entered))
    return 0


def trace(words: list[str], root: Path) -> set[str]:
    """Paths of the files that a command enters, relative to the repository."""
    from opsieve.tui.cli import main as opsieve

    codes: set[object] = set()

    def record(frame: object, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)  # type: ignore[attr-defined]

    with suppress(ImportError):
        import thread_lanes

        from opsieve.triage.campaign import lane_spawn

        lane_spawn.spawn_lane = thread_lanes.spawn  # type: ignore[attr-defined]
    threading.setprofile(record)
    sys.setprofile(record)
    try:
        with redirect_stdout(sys.stderr), redirect_stderr(sys.stderr), suppress(SystemExit):
            opsieve(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    files = {Path(code.co_filename).resolve() for code in codes if code.co_name != "<module>"}  # type: ignore[attr-defined]
    return {
        str(file.relative_to(root))
        for file in files
        if file.is_relative_to(root) and file.relative_to(root).parts[0] in FOLDERS
    }


if __name__ == "__main__":
    sys.exit(main())
