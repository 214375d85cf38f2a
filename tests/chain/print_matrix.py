"""Print the matrix of the chain: rows (failures) and steps (commands). With arguments, of the rows with these
names alone.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from chain_rows import REAL_ROWS, ROWS, Row  # noqa: E402 -- the folders above first
from chain_steps import Answer, RealReleases, answers, installed_anvil, matrix  # noqa: E402

from opsieve.backends.workers.zygotes.shared_zygotes import ZYGOTES  # noqa: E402
from opsieve.tui.cli import main  # noqa: E402


def command(*words: str | Path) -> tuple[int, str]:
    """Exit code and output of a command, in this process."""
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, said.getvalue()


TOGETHER = 6  # rows that share a process for their scripts, and a corpus
MINUTES = 100  # seconds of a row that is printed only when it is named


if __name__ == "__main__":
    names = sys.argv[1:]
    rows = [row for row in ROWS if row.name in names or (not names and row.slow < MINUTES)]
    real = [row for row in REAL_ROWS if row.name in names]
    ZYGOTES.keep_idle(14)
    parts: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.limits):
        # One `corpus add` and one `corpus run` serve all rows of a part, so their limits are the same.
        if not parts or parts[-1][0].limits != row.limits or len(parts[-1]) == TOGETHER:
            parts.append([])
        parts[-1].append(row)
    found: list[Answer] = []
    with tempfile.TemporaryDirectory() as folder:
        with installed_anvil(Path(folder) / "anvil") as anvil:
            for number, part in enumerate(parts):
                for answer in answers(part, anvil, Path(folder) / str(number), command):
                    found.append(answer)
                    print("." if answer.is_right else f"\n{answer}", end="", file=sys.stderr, flush=True)
        for row in real:
            found += answers([row], RealReleases(), Path(folder), command)
    ZYGOTES.keep_idle(0)
    print(matrix(found))
    wrong = [each for each in found if not each.is_right]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)
