import hashlib
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from packaging.version import Version
from wheels import wheel

from opsieve.backends.protocol import Request, Run
from opsieve.backends.releases.installers import CONFIGURED, PackageIndex, release_key, understand
from opsieve.backends.releases.interpreters import Interpreter, find_interpreters
from opsieve.backends.releases.releases import Environment, PackageRelease, ReleaseStore
from opsieve.gen.errors import BadInput

HERE = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PLATFORM = "manylinux2014_x86_64"
OTHER = "cp399"  # a Python that nobody has


@dataclass
class Fixture:
    """A backend whose package is made by the test."""

    package: str = "opsieve-fixture"
    needs: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    name: str = "fixture"
    extra: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    main_option: str = ""
    baseline: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    def base(self, python: tuple[int, int]) -> tuple[str, ...]:
        return self.needs

    def companions(self, release: str) -> tuple[str, ...]:
        return self.beside

    def load(self) -> str:
        return ""

    def prepare(self, request: Request) -> Run:
        raise NotImplementedError

    def classify(self, stage: str, exception: str, message: str) -> str:
        return "error"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all uv and pip can see, and a cache that is empty."""
    folder = tmp_path / "wheels"
    wheel(folder, "opsieve-fixture", "1.0")
    for name, value in {
        "UV_FIND_LINKS": str(folder),
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "PIP_FIND_LINKS": str(folder),
        "PIP_NO_INDEX": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def store(tmp_path: Path, wheels: Path) -> ReleaseStore:
    return ReleaseStore(tmp_path / "store", lambda: find_interpreters()[:1])


def version_in(environment: Environment, module: str = "opsieve_fixture") -> str:
    """What the release says of itself when the environment's Python imports it."""
    program = (
        f"import sys; sys.path[:0] = {[str(entry) for entry in environment.path]!r}; import {module} as m"
    )
    command = [
        str(environment.python),
        "-I",
        "-c",
        f"{program}; print(getattr(m, 'VERSION', None) or m.__version__)",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def forbid_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"a process was started: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def test_a_release_is_installed_and_imports(store: ReleaseStore) -> None:
    said: list[str] = []
    environment = store.environment(Fixture(), "1.0", say=said.append)
    assert version_in(environment) == "1.0"
    assert environment.release == "1.0"
    assert environment.python_version == sys.version_info[:3]
    assert said[0] == f"installing opsieve-fixture 1.0 for Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert store.list_installed("opsieve-fixture") == [("1.0", sys.version_info[:2])]
    assert store.list_installed("opsieve") == []


def test_releases_do_not_see_each_other_nor_the_running_environment(
    store: ReleaseStore, wheels: Path
) -> None:
    wheel(wheels, "opsieve-fixture", "2.0")
    first, second = (store.environment(Fixture(), release) for release in ("1.0", "2.0"))
    assert (version_in(first), version_in(second)) == ("1.0", "2.0")
    assert first.python == second.python
    program = "import importlib.util as u; print(u.find_spec('opsieve_fixture'), u.find_spec('hypothesis'))"
    seen = subprocess.run([first.python, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["None", "None"]


def test_a_second_call_starts_no_process(store: ReleaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = store.environment(Fixture(), "1.0")
    forbid_processes(monkeypatch)
    assert ReleaseStore(store.root).environment(Fixture(), "1.0", offline=True) == first


def test_companions_lie_beside_the_release_and_base_requirements_below(
    store: ReleaseStore, wheels: Path
) -> None:
    wheel(wheels, "opsieve-beside", "0.1")
    wheel(wheels, "opsieve-below", "0.2")
    backend = Fixture(beside=("opsieve-beside==0.1",), needs=("opsieve-below==0.2",))
    environment = store.environment(backend, "1.0")
    assert version_in(environment) == "1.0"
    assert version_in(environment, "opsieve_beside") == "0.1"
    assert version_in(environment, "opsieve_below") == "0.2"
    assert (environment.path[0] / "opsieve_beside.py").exists()
    assert not (environment.path[0] / "opsieve_below.py").exists()
    alone = store.environment(Fixture(), "1.0")
    assert alone.path != environment.path
    assert alone.python != environment.python


def test_what_a_killed_install_left_is_not_taken_and_is_removed(store: ReleaseStore) -> None:
    entry = f"opsieve-fixture-1.0-{HERE}"
    for leftover in (f".partial/{entry}", ".partial/opsieve-fixture-0.9-cp38", entry):
        (store.root / leftover / "opsieve_fixture").mkdir(parents=True)
        (store.root / leftover / "opsieve_fixture" / "__init__.py").write_text("half")
    (store.root / ".locks").mkdir()
    assert store.list_installed("opsieve-fixture") == []
    assert version_in(store.environment(Fixture(), "1.0")) == "1.0"
    assert not list((store.root / ".partial").iterdir())
    assert not (store.root / entry / "opsieve_fixture").exists()


def test_a_failed_install_leaves_nothing(store: ReleaseStore, wheels: Path) -> None:
    (wheels / "opsieve_fixture-1.1-py3-none-any.whl").write_bytes(b"PK not a wheel")
    with pytest.raises(BadInput, match=r"opsieve-fixture 1\.1 could not be installed"):
        store.environment(Fixture(), "1.1")
    assert not [entry for entry in store.root.iterdir() if not entry.name.startswith(".")]
    assert not list((store.root / ".partial").iterdir())


def test_a_base_whose_python_is_gone_is_made_again(store: ReleaseStore) -> None:
    first = store.environment(Fixture(), "1.0")
    first.python.unlink()
    first.python.symlink_to(store.root / "gone")
    assert version_in(store.environment(Fixture(), "1.0")) == "1.0"


def obtain(root: Path, gate: Any, answers: Any) -> None:
    said: list[str] = []
    gate.wait()
    environment = ReleaseStore(root).environment(Fixture(), "1.0", say=said.append)
    answers.put(
        (str(environment.path[0]), [sentence for sentence in said if sentence.startswith("installing")])
    )


def test_two_processes_at_once_install_once(store: ReleaseStore) -> None:
    spawn = multiprocessing.get_context("spawn")
    gate, answers = spawn.Barrier(2), spawn.Queue()
    both = [spawn.Process(target=obtain, args=(store.root, gate, answers)) for _ in range(2)]
    for one in both:
        one.start()
    got = [answers.get(timeout=60) for _ in both]
    for one in both:
        one.join()
    assert len({path for path, _ in got}) == 1
    assert sum(len(installs) for _, installs in got) == 1


def test_a_release_that_is_not_there_is_named_with_its_neighbours(store: ReleaseStore, wheels: Path) -> None:
    for version in ("1.2", "1.10", "2.0", "3.0a1"):
        wheel(wheels, "opsieve-fixture", version)
    (wheels / "opsieve_fixture-1.9.5.tar.gz").write_bytes(b"a source distribution is not asked to build")
    with pytest.raises(BadInput) as caught:
        store.environment(Fixture(), "1.9")
    assert str(caught.value) == "there is no release 1.9 of opsieve-fixture: near it are 1.0, 1.2, 1.10, 2.0"
    assert store.available("opsieve-fixture") == ["1.0", "1.2", "1.10", "2.0"]


def test_a_release_that_only_pip_finds_is_not_called_absent(
    store: ReleaseStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with `find-links` in pip.conf, which uv does not read."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "empty"))
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    with pytest.raises(BadInput) as caught:
        store.environment(Fixture(), "1.0")
    assert str(caught.value) == (
        "pip lists opsieve-fixture 1.0, but uv, which installs it, does not find it: name its place in"
        " UV_FIND_LINKS or UV_INDEX"
    )


def test_offline_what_is_absent_is_refused_with_the_reason(
    store: ReleaseStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BadInput) as caught:
        store.environment(Fixture(), "1.0", offline=True)
    sentence = str(caught.value)
    assert sentence.startswith("opsieve-fixture 1.0 could not be installed for Python ")
    assert sentence.endswith(
        ": nothing may be downloaded (offline), and uv's cache does not have all that it needs"
    )
    assert "\n" not in sentence


def test_a_wheel_for_another_python_only_says_which(store: ReleaseStore, wheels: Path) -> None:
    wheel(wheels, "opsieve-fixture", "1.1", f"{OTHER}-{OTHER}-{PLATFORM}")
    with pytest.raises(BadInput) as caught:
        store.environment(Fixture(), "1.1")
    assert "has no wheel for Python" in str(caught.value)
    assert "install Python 3.99 (one is enough; uv python install 3.99)" in str(caught.value)


def test_wheels_for_pythons_too_old_say_so(store: ReleaseStore, wheels: Path) -> None:
    wheel(wheels, "opsieve-fixture", "1.1", f"cp37-cp37m-{PLATFORM}")
    with pytest.raises(BadInput, match=r"for Python 3\.7, are too old for opsieve"):
        store.environment(Fixture(), "1.1")


def test_another_python_of_the_machine_is_taken_and_remembered(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [one for one in find_interpreters() if one.minor != sys.version_info[:2]]
    if not others:
        pytest.skip("this machine has Pythons of one version only")
    other = others[0]
    tag = f"cp{other.minor[0]}{other.minor[1]}"
    wheel(wheels, "opsieve-fixture", "1.1", f"{tag}-{tag}-{PLATFORM}")
    store = ReleaseStore(tmp_path / "store")
    environment = store.environment(Fixture(), "1.1")
    assert version_in(environment) == "1.1"
    assert environment.python_version[:2] == other.minor
    forbid_processes(monkeypatch)
    find_interpreters.cache_clear()
    assert store.environment(Fixture(), "1.1") == environment


@pytest.mark.slow(seconds=3)
def test_another_index_has_versions_of_its_own(store: ReleaseStore, tmp_path: Path) -> None:
    """A folder of wheels is an index; nightlies are asked for; an equal number of another index is another
    file.
    """
    wheel(tmp_path / "nightly", "opsieve-fixture", "1.1.dev20260102")
    wheel(
        tmp_path / "nightly",
        "opsieve-fixture",
        "1.0",
        files={"opsieve_fixture.py": "VERSION = 'the other 1.0'\n"},
    )
    nightly = PackageIndex.named(str(tmp_path / "nightly"))
    assert store.available("opsieve-fixture", nightly) == ["1.0"]
    assert store.available("opsieve-fixture", nightly, preliminary=True) == ["1.0", "1.1.dev20260102"]
    for number, index, said in (
        ("1.0", CONFIGURED, "1.0"),
        ("1.0", nightly, "the other 1.0"),
        ("1.1.dev20260102", nightly, "1.1.dev20260102"),
    ):
        release = PackageRelease("opsieve-fixture", number, index)
        assert version_in(store.package_environment(Fixture(), release)) == said
    assert [number for number, _ in store.list_installed("opsieve-fixture")] == ["1.0"]
    assert [number for number, _ in store.list_installed("opsieve-fixture", nightly)] == [
        "1.0",
        "1.1.dev20260102",
    ]


def test_another_package_may_hold_the_same_compiler(store: ReleaseStore, wheels: Path) -> None:
    wheel(wheels, "opsieve-fixture-gpu", "1.0", files={"opsieve_fixture.py": "VERSION = 'gpu'\n"})
    found = store.package_environment(Fixture(), PackageRelease("opsieve-fixture-gpu", "1.0"))
    assert version_in(found) == "gpu"


@pytest.mark.parametrize(
    "text", ["ftp://x/simple", "nowhere/at/all", "https://", "http://a b/", "--index-url=x", ""]
)
def test_what_is_no_index_is_a_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="neither the URL of a package index nor a folder"):
        PackageIndex.named(text)


def test_the_password_of_an_index_is_not_told() -> None:
    assert PackageIndex.named("https://me:secret@host/simple").public == "https://host/simple"


def asked_for(store: ReleaseStore, release: str) -> list[str]:
    """The Python versions that uv was asked for, in order, until the release was refused."""
    asked: list[str] = []
    with pytest.raises(BadInput, match="has no wheel"):
        store.environment(Fixture(), release, say=asked.append)
    return [sentence.rpartition(" ")[2] for sentence in asked]


@pytest.fixture
def five(tmp_path: Path, wheels: Path) -> ReleaseStore:
    """A store of a machine that says to have five Python versions (all of them are the running one)."""
    minors = (10, 13, 8, 9, 12)
    return ReleaseStore(
        tmp_path / "store", lambda: [Interpreter(Path(sys.executable), (3, at, 0)) for at in minors]
    )


def test_the_first_python_is_preferred_then_older_ones_then_newer_ones(
    five: ReleaseStore, wheels: Path
) -> None:
    wheel(wheels, "opsieve-fixture", "1.1", "py3-none-win_amd64")
    assert asked_for(five, "1.1") == ["3.10", "3.9", "3.8", "3.12", "3.13"]


def test_pythons_that_a_refusal_rules_out_are_not_asked_for(five: ReleaseStore, wheels: Path) -> None:
    wheel(wheels, "opsieve-fixture", "1.1", f"cp38-cp38-{PLATFORM}")
    assert asked_for(five, "1.1") == ["3.10", "3.8"]


@pytest.mark.parametrize(
    "release",
    [
        "",
        "-1",
        "--index-url=x",
        "1/../../x",
        "..",
        "1.0;x",
        "1 .0",
        "1.*",
        "latest",
        "1.0\n",
        "9" * 70,
        "1.0@file",
        "٣.١",
    ],
)
def test_text_that_is_no_release_number_is_refused_before_anything_starts(
    store: ReleaseStore, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_processes(monkeypatch)
    with pytest.raises(BadInput, match="is not a release number"):
        store.environment(Fixture(), release)
    assert not store.root.exists()


def test_names_that_are_no_packages_are_refused(store: ReleaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    find_interpreters()
    forbid_processes(monkeypatch)
    for name in ("../x", "-r", "a b", "x/y"):
        with pytest.raises(BadInput, match="is not the name of a package"):
            store.environment(Fixture(package=name), "1.0")
        with pytest.raises(BadInput, match="is not the name of a package"):
            store.available(name)
    with pytest.raises(BadInput, match="has no releases"):
        store.environment(Fixture(package=""), "1.0")


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path, wheels: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="set OPSIEVE_STORE to a folder that can be written"):
        ReleaseStore(tmp_path / "file" / "store").environment(Fixture(), "1.0")


def test_the_store_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "elsewhere"))
    assert ReleaseStore().root == tmp_path / "elsewhere"
    monkeypatch.delenv("OPSIEVE_STORE")
    assert ReleaseStore().root.parts[-2:] == ("opsieve", "releases")


def test_a_marker_full_of_nonsense_is_no_release(store: ReleaseStore) -> None:
    for at, text in enumerate(
        ("", "[]", "{}", '{"package": "p", "release": 3, "python": [3, 8, 1]}', '{"python": "x"}')
    ):
        (store.root / f"entry-{at}").mkdir(parents=True)
        (store.root / f"entry-{at}" / "opsieve.json").write_text(text)
    assert store.list_installed("p") == []
    good = {"package": "p", "release": "1.0", "python": [3, 8, 1]}
    (store.root / "entry-0" / "opsieve.json").write_text(json.dumps(good))
    assert store.list_installed("p") == [("1.0", (3, 8))]


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (
            "error: x\n  cause: Because there is no version of pkg==9 and you require pkg==9, we ...",
            "no-release",
        ),
        ("error: x\n  cause: Because pkg was not found in the package registry and you ...", "no-release"),
        ("error: x\n  cause: Because there is no version of other==9 and you require other==9", "other"),
        (
            "error: x\n  cause: Because pkg==1 has no wheels with a matching Python ABI tag (e.g., `cp311`)",
            "no-wheel",
        ),
        ("error: x\n  cause: Because pkg==1 has no usable wheels and you require pkg==1", "no-wheel"),
        (
            "error: x\n  cause: Because the current Python version (3.9.1) does not satisfy Python>=3.10",
            "no-wheel",
        ),
        ("error: Request failed after 3 retries\n  cause: tcp connect error", "other"),
        (
            "error: x\n  cause: Because there is no version of pkg==9\n\nhint: the network was disabled.",
            "other",
        ),
        ("", "other"),
    ],
)
def test_refusals_of_uv_are_told_apart(output: str, kind: str) -> None:
    assert understand(output, "pkg").kind == kind


def test_a_refusal_that_names_wheels_rules_other_pythons_out() -> None:
    said = "cause: pkg==1 has no wheels hint: we only found wheels for `pkg` (v1) with the following Python "
    exact = understand(said + "ABI tags: `cp37m`, `cp39`", "pkg")
    assert [exact.rules_out((3, minor)) for minor in (7, 8, 9, 10)] == [False, True, False, True]
    stable = understand(said + "implementation tag: `cp39`", "pkg")
    assert [stable.rules_out((3, minor)) for minor in (8, 9, 10)] == [True, False, False]
    for unknown in (said + "ABI tags: `cp37m`, `abi3`", said + "implementation tag: `py2`", said):
        assert not understand(unknown, "pkg").rules_out((3, 8))
    assert not understand(said + "ABI tags: `cp37m`, `cp39`", "numpy").rules_out((3, 8))


def test_the_reason_of_a_refusal_is_one_short_printable_line() -> None:
    refusal = understand(
        "error: x\n  cause: first\n  cause: \x1b[31mlast " + "y" * 1000 + "\n  more\n\nhint: z", "pkg"
    )
    assert refusal.line.startswith("?[31mlast yyy")
    assert len(refusal.line) == 300


numbers = st.lists(st.sampled_from([0, 1, 10]), min_size=1, max_size=3).map(
    lambda parts: ".".join(map(str, parts))
)
releases = st.builds(
    lambda epoch, number, stage, post, dev: epoch + number + stage + post + dev,
    st.sampled_from(["", "1!"]),
    numbers,
    st.sampled_from(["", "a1", "b2", "rc1", "rc10"]),
    st.sampled_from(["", ".post0", ".post1"]),
    st.sampled_from(["", ".dev0", ".dev3"]),
)


@given(releases, releases)
@example("1.0.dev0", "1.0a1")
@example("1.post0.dev1", "1.post0")
def test_releases_are_ordered_as_the_packaging_standard_orders_them(one: str, other: str) -> None:
    keys, versions = (release_key(one), release_key(other)), (Version(one), Version(other))
    assert (keys[0] < keys[1], keys[0] == keys[1]) == (versions[0] < versions[1], versions[0] == versions[1])


def test_a_real_release_of_onnxruntime_is_installed_and_imports(tmp_path: Path) -> None:
    from opsieve.backends.registry import plugin

    store = ReleaseStore(tmp_path / "store")
    environment = store.environment(plugin("onnxruntime").backend, "1.20.1")
    assert version_in(environment, "onnxruntime") == "1.20.1"


def test_a_release_of_other_hashes_than_those_written_down_is_not_installed(
    store: ReleaseStore, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(wheel(wheels, "opsieve-fixture", "1.1").read_bytes()).hexdigest()
    monkeypatch.setenv("OPSIEVE_HASHES", str(tmp_path))
    with pytest.raises(BadInput, match=r"there is no .* with the hashes of opsieve-fixture 1\.1"):
        store.environment(Fixture(), "1.1")
    for known in ("0" * 64, digest):
        (tmp_path / "opsieve-fixture-1.1.txt").write_text(f"opsieve-fixture==1.1 --hash=sha256:{known}\n")
        if known != digest:
            with pytest.raises(BadInput, match=r"[Hh]ash"):
                store.environment(Fixture(), "1.1")
    assert version_in(store.environment(Fixture(), "1.1")) == "1.1"
