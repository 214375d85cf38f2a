"""What users get: the contents of the sdist and of the wheel that is built from it (pyproject.toml)."""

import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest
from repository import ROOT

from opsieve.tui.samples import SAMPLES

PACKAGES = {"gen", "backends", "triage", "reducer", "bisect", "tui"}
# What each folder may hold, by kind of file. The packages ship what they read when they run; the samples are
# cases.
CODE = {".py", ".md"}
KINDS = {
    "gen": {*CODE, ".json", ".txt"},
    "backends": {*CODE, ".c", ".toml", ".xz"},
    "triage": {*CODE, ".toml"},
    "reducer": CODE,
    "bisect": CODE,
    "tui": {*CODE, ".tcss"},
    "samples": {*CODE, ".cpp", ".onnx", ".pb", ".json", ".jsonl", ".toml", ".txt"},
    "src": {".py", ".typed"},
    "docs": {".md", ".svg", ".cast", ".css"},
    "tests": {*CODE, ".c", ".json", ".log", ".onnx", ".pb", ".pt2", ".svg", ".toml", ".txt"},
}
FILES = {
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "README.md", "SECURITY.md",
    "constraints.txt", "hatch_build.py", "pyproject.toml", ".gitignore",
}  # fmt: skip
MEGABYTE = 1_000_000


def find_foreign_files(names: Iterable[str]) -> list[str]:
    """The files of a folder that has no such kind of file, and those of no known folder."""
    paths = map(PurePosixPath, names)
    return [str(path) for path in paths if path.suffix not in KINDS.get(path.parts[0], set())]


@pytest.fixture(scope="module")
def sdist(distributions: Path) -> dict[str, int]:
    """The files of the sdist, below its one folder, and their sizes."""
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        members = archive.getmembers()
    assert all(each.isfile() for each in members)  # no links: they would be lost on Windows
    assert len({each.name.partition("/")[0] for each in members}) == 1
    return {each.name.partition("/")[2]: each.size for each in members}


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> zipfile.ZipFile:
    # pure unless another one is asked for
    return zipfile.ZipFile(next(distributions.glob("*-py3-none-any.whl")))


def test_the_sdist_holds_code_tests_and_docs(sdist: dict[str, int]) -> None:
    assert {name.partition("/")[0] for name in sdist} == {*KINDS, *FILES}
    assert find_foreign_files(name for name in sdist if "/" in name) == []
    assert [name for name in sdist if name.startswith("docs/benchmarks/")] == []


def test_the_sdist_is_small(sdist: dict[str, int], distributions: Path) -> None:
    assert next(distributions.glob("*.tar.gz")).stat().st_size < 3.2 * MEGABYTE
    assert {name: size for name, size in sdist.items() if size >= MEGABYTE} == {}


def test_the_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if name.startswith("opsieve/")}
    wanted = {
        f"opsieve/{path.relative_to(ROOT)}"
        for name in (*PACKAGES, "samples")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert SAMPLES == ROOT / "samples"  # and so beside the packages in an installation
    own = {
        f"opsieve/{name}" for name in ("__init__.py", "__main__.py", "_version.py", "version.py", "py.typed")
    }
    assert held == wanted | own


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile, distributions: Path) -> None:
    info = {name.partition("/")[0] for name in wheel.namelist()} - {"opsieve"}
    assert len(info) == 1
    assert next(iter(info)).endswith(".dist-info")
    below = [name.removeprefix("opsieve/") for name in wheel.namelist() if name.startswith("opsieve/")]
    assert find_foreign_files(name for name in below if "/" in name) == []
    # The samples take a fifth of it, about 3 kB each; a measurement left in the tree takes more than what is left.
    assert next(distributions.glob("*.whl")).stat().st_size < 3.2 * MEGABYTE


@pytest.mark.slow(seconds=6)
def test_both_say_the_same_version(wheel: zipfile.ZipFile, distributions: Path) -> None:
    version = wheel.read("opsieve/_version.py").decode().removeprefix("VERSION = '").removesuffix("'\n")
    names = {path.name for path in distributions.iterdir()}
    assert names == {f"opsieve-{version}.tar.gz", f"opsieve-{version}-py3-none-any.whl"}


def test_links_of_the_readme_lead_somewhere_on_pypi(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    links = re.findall(r"\]\(([^)\s]+)\)", wheel.read(metadata).decode())
    assert len(links) >= 10
    assert [link for link in links if not link.startswith("https://")] == []


def test_all_brings_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    reached, left = set(), ["all"]
    while left:
        name = left.pop()
        reached.add(name)
        for requirement in extras[name]:
            found = re.fullmatch(r"opsieve\[(.+)\]", requirement)
            left += found[1].split(",") if found else []
    assert reached == set(extras)
