"""One version, from the git tag (pyproject.toml, opsieve/version.py); generated programs do not depend on the
commit.
"""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.version import Version
from repository import ROOT, TESTS

import opsieve
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.strategies.registry import generate
from opsieve.version import BASE_VERSION, VERSION, format_requirement

FALLBACK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"][
    "fallback-version"
]


def read_version_module(monkeypatch: pytest.MonkeyPatch, version: str | None) -> dict[str, Any]:
    """What `opsieve/version.py` defines when the build has written this version, or, for None, nothing."""
    written = None if version is None else SimpleNamespace(VERSION=version)
    monkeypatch.setitem(sys.modules, "opsieve._version", written)  # type: ignore[arg-type]  # None: cannot be imported
    return runpy.run_path(str(ROOT / "src" / "opsieve" / "version.py"))


@pytest.mark.parametrize(
    ("version", "base"),
    [
        ("1.2.0", "1.2.0"),
        ("1.2.0rc1", "1.2.0rc1"),
        ("0.1.0.dev1203+g8f4613c38", "0.1.0"),
        ("0.1.0.dev1+gbbee34967.d20261123", "0.1.0"),
        ("0.1.0.dev0", "0.1.0"),
        (None, "0"),
    ],
)
def test_the_base_version_is_the_same_at_every_commit(
    monkeypatch: pytest.MonkeyPatch, version: str | None, base: str
) -> None:
    module = read_version_module(monkeypatch, version)
    assert module["BASE_VERSION"] == base
    assert Version(module["VERSION"]) >= Version("0")  # what pip understands
    assert module["VERSION"] == (version or "0+unknown")


def test_a_generated_case_names_the_base_version() -> None:
    assert generate("mix", 0, GenRequest(nodes=3)).origin.versions["opsieve"] == BASE_VERSION
    assert opsieve.__version__ == VERSION


def test_no_module_of_the_generator_knows_the_commit() -> None:
    imports = re.compile(
        r"from opsieve import|^import opsieve$|opsieve\.version import .*\bVERSION\b", re.MULTILINE
    )
    assert [str(path) for path in (ROOT / "gen").rglob("*.py") if imports.search(path.read_text())] == []


def test_no_kept_file_names_a_development_version() -> None:
    texts = [
        path
        for folder in (TESTS / "corpus", ROOT / "samples")
        for path in folder.rglob("*")
        if path.is_file()
    ]
    named = re.compile(rb"opsieve\W{1,8}(version )?\d[\d.]*dev\d")
    assert [str(path) for path in texts if named.search(path.read_bytes())] == []


def test_a_script_requires_what_an_index_has() -> None:
    assert format_requirement("1.2.0") == "opsieve==1.2.0"
    assert format_requirement("1.2.0rc1") == "opsieve==1.2.0rc1"
    assert {format_requirement(each) for each in ("0.1.0.dev3+g8f4613c38", "0.1.0.dev0", "0+unknown")} == {
        "opsieve"
    }


def test_without_a_tag_it_is_the_release_that_the_changelog_prepares() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert f"{newest[1]}.dev0" == FALLBACK


def read_built_version(folder: Path) -> str:
    return str(ProjectMetadata(str(folder), PluginManager()).version)


def run_git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def unpack_archive(repository: Path, folder: Path) -> Path:
    """What GitHub offers as an archive of the newest commit."""
    folder.mkdir()
    run_git(repository, "archive", "--output", str(folder / "archive.tar"), "HEAD")
    subprocess.run(["tar", "-xf", "archive.tar"], cwd=folder, check=True)
    return folder


@pytest.mark.filterwarnings("ignore")  # of shallow clones
def test_the_version_in_every_kind_of_checkout(tmp_path: Path) -> None:
    here = tmp_path / "full"
    here.mkdir()
    (here / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    run_git(here, "init", "--quiet")
    run_git(here, "add", "--all")
    run_git(here, "commit", "--quiet", "-m", "first")
    base = FALLBACK.removesuffix(".dev0")
    assert re.fullmatch(rf"{base}\.dev1\+g[0-9a-f]+", read_built_version(here))
    assert read_built_version(unpack_archive(here, tmp_path / "untagged")) == FALLBACK
    run_git(here, "tag", "v7")  # what users of the action name
    assert read_built_version(here).startswith(f"{base}.dev1+g")
    run_git(here, "tag", "v7.1.0")
    assert read_built_version(here) == "7.1.0"
    run_git(here, "commit", "--quiet", "--allow-empty", "-m", "second")
    assert re.fullmatch(r"7\.1\.1\.dev1\+g[0-9a-f]+", read_built_version(here))
    run_git(tmp_path, "clone", "--quiet", "--depth", "1", here.as_uri(), "shallow")
    assert read_built_version(tmp_path / "shallow").startswith(f"{base}.dev1+g")
    run_git(here, "tag", "v7.2.0rc1")
    assert read_built_version(here) == "7.2.0rc1"
