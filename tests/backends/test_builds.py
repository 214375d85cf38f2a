"""Builds by their path: how they are written, what is told of a wrong one, and that the build is what
runs.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import opsieve
from hypothesis import given, settings, strategies as st
from models import X, chain

from opsieve.backends.registry import resolve
from opsieve.backends.releases import builds
from opsieve.backends.releases.builds import (
    allow,
    build_environment,
    check_allowed,
    check_trusted,
    stated_version,
    unstated_version,
)
from opsieve.backends.target import BadTarget, Target
from opsieve.backends.workers.workers import Workers
from opsieve.gen.errors import BadInput
from opsieve.tui import api

PATHS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from(":=,%@+/ ~\n"),
    min_size=1, max_size=30
)  # fmt: skip
OPTIONS = st.lists(
    st.tuples(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.from_regex(r"[\w+>@&=.:-]{1,12}", fullmatch=True)
    ),
    unique_by=lambda pair: pair[0],
    max_size=3,
)
RELEASED = "        return onnx.load_from_string(optimized_model_str)\n"
PLANTED = """        made = onnx.load_from_string(optimized_model_str)
        for node in made.graph.node:
            node.op_type = node.op_type.replace("Tanh", "Sin")
        return made
"""


@pytest.fixture(scope="module")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is named on the command line is remembered in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSIEVE_STORE", str(tmp_path_factory.mktemp("releases")))
        yield


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A build tree of onnxoptimizer as it is released."""
    found = find_spec("onnxoptimizer")
    assert found is not None
    assert found.origin is not None
    folder = tmp_path / "with a space:and=more,100%25" / "src"
    ignored = shutil.ignore_patterns("__pycache__", "*.h", "*.cc")
    shutil.copytree(Path(found.origin).parent, folder / "onnxoptimizer", ignore=ignored)
    return folder.parent


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A model of Relu and Tanh and its inputs."""
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(chain("Relu", "Tanh").model)
    np.savez(folder / "inputs.npz", **X)
    return folder


def plant(tree: Path) -> None:
    """From now on the build makes a Sin of a Tanh."""
    file = tree / "src" / "onnxoptimizer" / "__init__.py"
    text = file.read_text()
    assert RELEASED in text
    file.write_text(text.replace(RELEASED, PLANTED))


def written(path: Path) -> str:
    """The target of onnxoptimizer's build at a path."""
    return str(Target("onnxoptimizer", build=str(path)))


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script that lies in a folder."""
    script = folder / "repro.py"
    script.write_text(text)
    return subprocess.run([sys.executable, script], capture_output=True, check=False)


@settings(max_examples=15)
@given(st.sampled_from(["onnxruntime", "a-b_c"]), PATHS, OPTIONS)
def test_a_build_is_read_as_it_is_written(backend: str, path: str, options: list[tuple[str, str]]) -> None:
    target = Target(backend, "", tuple(sorted(options)), path)
    assert Target.parse(str(target)) == target
    assert str(target).isprintable()


@given(
    st.text("abz/._-~=,+@ #'", min_size=1, max_size=30), st.sampled_from(["", "basic", "level=all,trace=on"])
)
def test_a_path_ends_at_the_first_colon(path: str, options: str) -> None:
    target = Target.parse(f"onnxruntime@{path}:{options}")
    assert target.build == path
    assert target.options == Target.parse(f"onnxruntime:{options}").options


def test_an_at_sign_in_an_option_names_no_build() -> None:
    assert Target.parse("fake:wrong@Relu").build == ""
    assert resolve("fake:wrong@Relu").build == ""


@pytest.mark.parametrize(
    "text", ["onnxruntime@", "onnxruntime@:basic", "onnxruntime==1.2@/x", "onnxruntime@%00"]
)
def test_what_is_no_build_is_no_target(text: str) -> None:
    with pytest.raises(BadTarget, match="is not a target"):
        Target.parse(text)


def test_a_resolved_build_is_absolute_and_another_compiler_than_the_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/h")
    target = resolve("onnxruntime@~/a/../b:basic")
    assert str(target) == "onnxruntime@/h/b:level=basic"
    assert resolve(str(target)) == target
    assert str(target.baseline) == "onnxruntime@/h/b:level=disable_all"
    assert str(target.with_release("1.20.1")) == "onnxruntime==1.20.1:level=basic"
    assert target.zygote != resolve("onnxruntime").zygote
    with pytest.raises(BadTarget, match="fake has no builds"):
        resolve("fake@/x")


@pytest.mark.parametrize("version", ["", "1.2", "1.2+cpu", "0.27.dev3"])
def test_the_state_of_a_build_is_the_local_part_of_its_version(version: str) -> None:
    stated = stated_version(version, "0123456789")
    assert stated != version
    assert unstated_version(stated) == version
    assert stated_version(version, "") == unstated_version(version) == version


@pytest.mark.slow(seconds=3)
@pytest.mark.usefixtures("_store")
def test_a_fault_of_a_build_is_found_and_exported(
    tree: Path, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tree)
    code, out, _ = opsieve("run", case, "-t", "onnxoptimizer", "-t", written(tree), "--json", capsys=capsys)
    assert code == 1
    found = json.loads(out)
    verdicts = {
        item["target"]: item["verdict"] for item in (found if isinstance(found, list) else found["results"])
    }
    assert verdicts == {"onnxoptimizer": "pass", written(tree): "fail"}
    code, out, _ = opsieve("export", case, "-t", written(tree), "-o", "-", capsys=capsys)
    assert code == 0
    # Python finds what lies beside a script first.
    release, build = (run_script(folder, out) for folder in (tree.parent, tree / "src"))
    assert (release.returncode, build.returncode) == (0, 1)
    spec = find_spec("onnxoptimizer")
    assert spec
    for part in (b"no failure here", str(spec.origin).encode(), b"the bug was seen with a build of onnxopt"):
        assert part in release.stdout
    assert str(tree / "src").encode() in build.stdout
    assert b"the bug was seen" not in build.stdout
    target, folder = written(tree), tree.parent / "by-call"
    folder.mkdir()
    tree.rename(folder / "moved")  # another path, named in a call
    assert [run.judged.verdict.verdict for run in api.run(case, targets=[written(folder / "moved")])] == [
        "fail"
    ]
    check_allowed(resolve(target))
    head = out.partition('"""')[2].partition('"""')[0]
    assert "Seen with a build of onnxoptimizer of one's own" in " ".join(head.split())
    assert "'onnxoptimizer" not in head  # pip would install the release


@pytest.mark.usefixtures("_store")
def test_a_rebuilt_tree_has_another_version(tree: Path) -> None:
    target = resolve(written(tree))
    allow(target)
    versions = []
    for _ in range(2):
        with Workers() as workers:
            versions.append(workers.version(target))
            seen = workers.observe(target, chain("Tanh"), X)
            assert (seen.outcome, seen.version) == ("ok", versions[-1])
            assert seen.outputs is not None
            function: Any = np.tanh if len(versions) == 1 else np.sin
            assert np.allclose(seen.outputs["y"], function(X["x"]))
        if len(versions) == 1:
            plant(tree)
    assert len(set(versions)) == 2
    assert len({unstated_version(version) for version in versions}) == 1


@pytest.mark.usefixtures("_store")
def test_a_build_that_only_a_file_names_does_not_run(tree: Path) -> None:
    target = resolve(written(tree))
    (tree / "src" / "onnxoptimizer" / "__init__.py").write_text("open(__file__ + '.ran', 'w')")
    assert check_trusted("onnxoptimizer==0.4.2") == "onnxoptimizer==0.4.2"
    with pytest.raises(BadInput, match="never named on the command line"):
        check_trusted(str(target))
    with Workers() as workers, pytest.raises(BadInput, match="never named on the command line"):
        workers.version(target)
    assert not list(tree.rglob("*.ran"))


@pytest.mark.usefixtures("_store")
@pytest.mark.parametrize(
    ("place", "word"),
    [
        ("nothing", "nothing is there"),
        (".", "there is no package onnxoptimizer"),
        ("tree/onnxoptimizer", "is the package itself"),
        ("file", "name an environment, a folder or a wheel"),
        ("broken", "has no Python that runs"),
        ("dead", "does not run"),
        ("other", "is built for Python 3.9"),
        ("onnxsim-1.0-py3-none-any.whl", "is a wheel of onnxsim"),
        ("onnxoptimizer.whl", "is not the name of a wheel"),
    ],
)
def test_a_wrong_path_is_one_sentence(
    place: str, word: str, tmp_path: Path, case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("tree/onnxoptimizer", "other/onnxoptimizer", "broken", "dead/bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("file", "tree/onnxoptimizer/__init__.py", "other/onnxoptimizer/__init__.py", "broken/pyvenv.cfg",
                 "dead/pyvenv.cfg", "other/onnxoptimizer/c.cpython-39-x86_64-linux-gnu.so",
                 "onnxsim-1.0-py3-none-any.whl", "onnxoptimizer.whl"):  # fmt: skip
        (tmp_path / name).touch()
    (tmp_path / "dead" / "bin" / "python").symlink_to("/bin/false")
    code, out, err = opsieve("run", case, "-t", written(tmp_path / place), capsys=capsys)
    assert (code, out) == (2, "")
    assert word in err
    assert len(err.splitlines()) == 1
    with pytest.raises(BadInput, match="never named on the command line"):
        check_allowed(resolve(written(tmp_path / place)))


@pytest.mark.usefixtures("_store")
def test_an_environment_runs_with_its_own_python(tmp_path: Path) -> None:
    place = tmp_path / "venv"
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text(
        f"home = {Path(sys.base_prefix) / 'bin'}\ninclude-system-site-packages = false\n"
    )
    os.symlink(Path(sys.executable).resolve(), place / "bin" / "python")
    package = place / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "onnxoptimizer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    target = resolve(written(place))
    allow(target)
    home = build_environment(target.backend, target.build, True, lambda sentence: None)
    assert (home.python, home.path, home.python_version) == (
        place / "bin" / "python",
        (),
        sys.version_info[:3],
    )
    (package / "new.py").touch()
    assert build_environment(target.backend, target.build, True, lambda sentence: None).state != home.state
    with pytest.raises(BadInput, match="has no package tvm: install it there"):
        allow(resolve(str(Target("tvm", build=str(place)))))


@pytest.mark.usefixtures("_store")
def test_a_wheel_is_installed_once_for_each_state_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_releases import Fixture, wheel

    from opsieve.backends.releases.releases import ReleaseStore, default_root

    wheel(tmp_path, "opsieve-fixture", "1.2")
    backend, file = Fixture(), next(tmp_path.glob("*.whl"))
    target: Any = SimpleNamespace(backend=backend, libraries=(), build=str(file))
    allow(target)
    said: list[str] = []
    homes = [build_environment(backend, str(file), True, said.append) for _ in range(2)]
    assert homes[0] == homes[1]
    assert len([line for line in said if line.startswith("installing")]) == 1
    assert (homes[0].path[0] / "opsieve_fixture").is_dir() or list(homes[0].path[0].glob("*.dist-info"))
    assert ReleaseStore().list_installed(backend.package) == []  # it is no release
    os.utime(file, ns=(1, 1))
    assert build_environment(backend, str(file), True, said.append).path != homes[0].path
    assert default_root() in homes[0].path[0].parents
    other = file.rename(file.with_name("opsieve_fixture-1.2-cp399-cp399-any.whl"))
    with pytest.raises(BadInput, match=r"is for Python 3\.99, which was not found here"):
        builds._of_wheel(backend, other, True, said.append)
