"""Real git repositories with a tiny compiler whose source changes from commit to commit.

The compiler turns `2*3+4` into a number by constant folding; its source is `fold.sh`, a build script makes
`out/compiler` of it. Histories are written by `git fast-import`, so that a thousand commits take a moment.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

GOOD = "#!/bin/sh\n# revision {}\necho $(($1))\n"
BAD = "#!/bin/sh\n# revision {}\necho $(($1 + 1))\n"  # the miscompilation
BROKEN = "#!/bin/sh\n# revision {}\nif then fi (\n"  # does not build
BUILD = """#!/bin/sh
set -e
source=fold.sh
test -e src/fold.sh && source=src/fold.sh
sh -n $source
mkdir -p "$OPSIEVE_BUILD"
cp $source "$OPSIEVE_BUILD/compiler"
chmod +x "$OPSIEVE_BUILD/compiler"
echo built $OPSIEVE_COMMIT
"""
CHECK = """#!/bin/sh
got=$("$OPSIEVE_BUILD/compiler" "2*3+4")
echo "2*3+4 = $got"
test "$got" = 10
"""


@dataclass
class History:
    """A repository under construction: `commit` adds one, `write` makes it; `shas[n]` is then the n-th
    commit's hash.
    """

    folder: Path
    stream: list[bytes] = field(default_factory=list)
    count: int = 0
    shas: list[str] = field(default_factory=list)

    def commit(
        self,
        parents: Sequence[int],
        source: str,
        subject: str = "",
        path: str = "fold.sh",
        plain: bool = False,
        files: Mapping[str, str] | None = None,
    ) -> int:
        """A commit whose compiler is `source`, with other files beside it; the same source with `plain` gives
        the same tree.
        """
        number = self.count
        self.count += 1
        text = (source if plain else source.replace("{}", str(number))).encode()
        message = (subject or f"compiler: step {number}").encode()
        lines = [
            b"commit refs/heads/main",
            b"mark :%d" % (number + 1),
            b"author A Person <a@example.org> %d +0000" % (1_600_000_000 + 86_400 * number),
            b"committer A Person <a@example.org> %d +0000" % (1_600_000_000 + 86_400 * number),
            b"data %d" % len(message),
            message,
        ]
        lines += [b"from :%d" % (parents[0] + 1)] if parents else []
        lines += [b"merge :%d" % (parent + 1) for parent in parents[1:]]
        lines.append(b"deleteall")
        for name, data in {
            path: text,
            **{name: other.encode() for name, other in (files or {}).items()},
        }.items():
            lines += [b"M 100644 inline " + name.encode(), b"data %d" % len(data), data]
        lines.append(b"")
        self.stream.append(b"\n".join(lines) + b"\n")
        return number

    def write(self) -> "History":
        """Make the repository, with `main` checked out and the two scripts beside it."""
        self.folder.mkdir(parents=True)
        git = ["git", "-C", str(self.folder)]
        subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
        marks = self.folder / ".git" / "marks"
        subprocess.run(
            [*git, "fast-import", "--quiet", f"--export-marks={marks}"],
            input=b"".join(self.stream),
            check=True,
        )
        table = dict(line.split() for line in marks.read_text().splitlines())
        self.shas = [table[f":{number + 1}"] for number in range(self.count)]
        subprocess.run([*git, "reset", "--quiet", "--hard", "main"], check=True)
        for name, text in (("build.sh", BUILD), ("check.sh", CHECK)):
            path = self.folder.parent / name
            path.write_text(text)
            path.chmod(0o755)
        return self


def row(folder: Path, kinds: str) -> History:
    """A row of commits: g good, b bad, - unbuildable, r good with the source moved to src/, R bad there."""
    history = History(folder)
    for number, kind in enumerate(kinds):
        source = {"g": GOOD, "r": GOOD, "b": BAD, "R": BAD, "-": BROKEN}[kind]
        history.commit(
            [number - 1] if number else [], source, path="src/fold.sh" if kind in "rR" else "fold.sh"
        )
    return history.write()
