"""A wheel whose generator is compiled by mypyc: `HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip install .`, or `make
compiled`.

Without that variable this file is not even read: the wheel is pure and needs no compiler. The sources are the
same; which modules are compiled stands in pyproject.toml. Extensions lie beside their `.py` files, which
Python passes over for them.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# A class that `slots=True` makes is another one than the class that mypyc compiled, and that has slots
# anyway.
_SLOTTED = re.compile(r"^(@dataclass\(.*), slots=True", re.MULTILINE)
# What runs once, at import, is most of the code: optimised, it takes twice as long to compile as all the
# rest.
_ONCE = re.compile(r"^char CPyDef_\w*_____top_level__\(void\) \{", re.MULTILINE)
_ONCE_AS_IT_IS = '__attribute__((optimize("O0"), cold)) '
_CONFIG = """[mypy]
namespace_packages = true
explicit_package_bases = true
ignore_missing_imports = true
mypy_path = {folder}
"""
_SETUP = """import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from mypyc.build import mypycify
from setuptools import setup
from hatch_build import plain_where_it_runs_once
options = dict(opt_level="2", debug_level="0", multi_file=True, group_name="opsieve")
made = mypycify(["--config-file", "mypy.ini", *{modules!r}], **options)
for source in Path("build").glob("*.c"):
    plain_where_it_runs_once(source)
setup(name="opsieve", packages=[], ext_modules=made)
"""


def plain_where_it_runs_once(source: Path) -> None:
    """Have a file of C leave the code of modules that runs at their import as it is; gcc and clang know how
    to.
    """
    if os.name == "posix":
        text = source.read_text(encoding="utf-8")
        source.write_text(_ONCE.sub(lambda found: _ONCE_AS_IT_IS + found[0], text), encoding="utf-8")


class CompiledGenerator(BuildHookInterface[Any]):
    """Puts extensions for the modules that pyproject.toml lists into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile a copy of the sources. Editable installs stay as they are: what is edited is to be what
        runs.
        """
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        build_data |= {"pure_python": False, "infer_tag": True}
        for built in compiled(Path(self.root), self.config["modules"], folder):
            build_data["force_include"][str(built)] = str(built.relative_to(folder))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        if version != "editable":
            self._folder.cleanup()


def compiled(root: Path, modules: list[str], folder: Path) -> list[Path]:
    """The extensions for modules (patterns below `root`), made in a folder that has the layout of the
    installed package.
    """
    package, wanted = folder / "opsieve", []
    for path in sorted(root.glob("gen/**/*.py")):
        copy = package / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if any(path.relative_to(root).match(pattern) for pattern in modules):
            wanted.append(copy.relative_to(folder).as_posix())
            text = _SLOTTED.sub(r"\1", text)
        copy.write_text(text, encoding="utf-8")
    for path in (root / "src" / "opsieve").glob("*.py"):
        shutil.copy(path, package)
    (folder / "mypy.ini").write_text(_CONFIG.format(folder=folder))
    (folder / "setup.py").write_text(_SETUP.format(here=str(root), modules=wanted))
    subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=folder, check=True)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return [*folder.glob(f"*{suffix}"), *package.rglob(f"*{suffix}")]
