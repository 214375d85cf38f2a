"""A package of a user's own, as a page of docs/how-to shows it, and commands typed where it is installed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

SESSION = """
import contextlib, io, json, sys
from opsieve.tui.cli import main
told = []
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(words)
    told.append(out.getvalue())
print(json.dumps(told))
"""


def blocks(page: Path, language: str) -> list[str]:
    """The texts of a page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def installed(folder: Path, source: str, project: str) -> Path:
    """The one module of a package with its entry points, as an installer would leave them in a folder."""
    group = re.search(r'entry-points\."([\w.]+)"\]\n([\w-]+) = "([\w.]+):(\w+)"', project)
    assert group is not None
    *packages, module = group[3].split(".")
    place = folder.joinpath(*packages)
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{module}.py").write_text(source)
    facts = folder / "users_package-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: users-package\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[{group[1]}]\n{group[2]} = {group[3]}:{group[4]}\n")
    return folder


def session(package: Path, *commands: str) -> list[str]:
    """The outputs of commands, in one process in which the package is installed."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION, json.dumps([command.split() for command in commands])],
        env={**os.environ, "PYTHONPATH": str(package)},
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
    )
    outputs: list[str] = json.loads(done.stdout)
    return outputs
