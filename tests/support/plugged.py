"""A package of a user's own, as a page of docs/how-to shows it, and commands typed where it is installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
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


def environment(folder: Path, modules: Mapping[str, str], project: str) -> Path:
    """The Python of an environment in which a package of these modules is installed beside everything that is
    installed here.
    """
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for name, source in modules.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(source)
    (packages / "here.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    facts = packages / "users_package-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: users-package\nVersion: 1\n")
    groups = re.findall(r'entry-points\."([\w.]+)"\]\n([\w-]+) = "([\w.:]+)"', project)
    lines = [f"[{group}]\n{name} = {place}\n" for group, name, place in groups]
    (facts / "entry_points.txt").write_text("".join(lines))
    (folder / "bin").mkdir()
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder / "pyvenv.cfg")
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    return folder / "bin" / "python"


def session(package: Path, *commands: str, python: Path | str = sys.executable) -> list[str]:
    """The outputs of commands, in one process in which the package is installed."""
    done = subprocess.run(
        [python, "-c", SESSION, json.dumps([command.split() for command in commands])],
        env={**os.environ, "PYTHONPATH": str(package)},
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
    )
    outputs: list[str] = json.loads(done.stdout)
    return outputs
