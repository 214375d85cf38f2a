"""Install anvil: its releases in a store of releases, as an installer would leave them there, without one."""

import json
import shutil
import sys
import sysconfig
from importlib.metadata import EntryPoint
from pathlib import Path

from repository import ROOT

from opsieve.backends.protocol import Backend
from opsieve.backends.releases import releases

COMMAND = """\
#!/bin/sh
# A compiler that is a command: it gives its first input back, and goes wrong on a model in which there is PATTERN.
if grep -q "PATTERN" "$2"; then
  case "$1" in
    crash) kill -SEGV $$ ;;
    error) echo "it cannot be lowered" >&2; exit 3 ;;
    wrong) LC_ALL=C tr '?' '\\277' < "$3/input_0.npy" > "$4/output_0.npy"; exit 0 ;;
  esac
fi
cp "$3/input_0.npy" "$4/output_0.npy"
"""
HERE = Path(__file__).parent
ENTRY = EntryPoint("anvil", "anvil_plugin:BACKEND", "opsieve.backends")
OPERATOR = "new_ops=[planted_operator(planted)]"


def write_package(folder: Path, release: str) -> Path:
    """The package of a release in a folder; gives the folder."""
    package = folder / "anvil"
    package.mkdir(parents=True)
    engine = (ROOT / "backends" / "compilers" / "fake.py").read_text()
    common = "from opsieve.backends.compilers.worker_common"
    assert common in engine
    assert OPERATOR in engine
    engine = engine.replace(common, "from anvil.common")
    engine = engine.replace(OPERATOR, "new_ops=[planted_operator(planted), *USERS]")
    (package / "faults.py").write_text(
        engine + (HERE / "anvil_operators.py").read_text().partition('"""\n')[2]
    )
    shutil.copy(ROOT / "backends" / "compilers" / "worker_common.py", package / "common.py")
    (package / "__init__.py").write_text((HERE / "anvil_compiler.py").read_text().replace("RELEASE", release))
    facts = folder / f"anvil-{release}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: anvil\nVersion: {release}\n")
    return folder


def write_plugin(folder: Path, release: str) -> Path:
    """The backend, with a release beside it that runs where no release is named; gives the folder."""
    write_package(folder, release)
    shutil.copy(HERE / "anvil_backend.py", folder / "anvil_plugin.py")
    return folder


def write_store(root: Path, backend: Backend, *numbers: str) -> None:
    """A store of releases that has these, and the environment that they share: this Python's own packages."""
    python = sys.version_info
    minor, tag = f"{python[0]}.{python[1]}", f"cp{python[0]}{python[1]}"
    (root / ".chosen").mkdir(parents=True)
    root.chmod(0o700)
    for number in numbers:
        folder = write_package(root / f"anvil-{number}-{tag}", number)
        _mark(folder, "anvil", number)
        (root / ".chosen" / f"anvil-{number}-{tag}").write_text(minor)
    base = root / releases._base_entry(backend, python[:2])
    (base / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", base / "pyvenv.cfg")
    (base / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    packages = base / "lib" / f"python{minor}" / "site-packages"
    packages.parent.mkdir(parents=True)
    packages.symlink_to(sysconfig.get_path("purelib"))
    _mark(base, "", "0")


def write_command(path: Path, pattern: str) -> None:
    """A compiler that is a command."""
    path.write_text(COMMAND.replace("PATTERN", pattern))
    path.chmod(0o755)


def _mark(folder: Path, package: str, release: str) -> None:
    facts = {"package": package, "release": release, "python": list(sys.version_info[:3])}
    (folder / "opsieve.json").write_text(json.dumps(facts))
