"""Every case of the collection of bugs fails where it says it does, with the kind its name tells, passes where
it says that it passes, and has a script that confirms it without opsieve.
"""

import ast
import importlib.metadata
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from repository import SAMPLES as FOLDER

from opsieve.backends.judge.judge import Judged, judge_program
from opsieve.backends.judge.oracles import DERIVING, SECOND_ORACLES
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import open_case
from opsieve.triage.corpus.corpus_file import read_bugs
from opsieve.triage.fingerprint.fingerprint import VERSION
from opsieve.triage.fingerprint.sameness import make_failure

BUGS = read_bugs(FOLDER)
FACTS = {FOLDER / name: bug for name, (_, bug) in BUGS.items()}
SAMPLES = list(FACTS)
# Of each compiler one, of the first dozen in make test.
FIRST = {resolve(FACTS[folder].fails).name: folder for folder in reversed(SAMPLES)}
EACH = [
    pytest.param(
        folder, id=folder.name, marks=() if folder in list(FIRST.values())[:12] else pytest.mark.slow
    )
    for folder in SAMPLES
]

# That a sample passes: of a compiler that runs models and of one that rewrites them.
PASSING_FIRST = (FIRST["onnxruntime"], FIRST["onnxoptimizer"])
PASSING = [
    pytest.param(folder, id=folder.name, marks=() if folder in PASSING_FIRST else pytest.mark.slow)
    for folder in SAMPLES
]
# A script takes a process that imports the compiler: of onnxruntime one, the others in make test-all.
SCRIPTS = [
    pytest.param(
        folder, id=folder.name, marks=() if folder == FIRST["onnxruntime"] else pytest.mark.slow(seconds=2)
    )
    for folder in SAMPLES
]


def test_the_demo_has_the_hashes_of_every_release_that_it_installs() -> None:
    named = {resolve(text) for bug in FACTS.values() for text in (bug.fails, bug.passes)}
    releases = {target.release for target in named if target.name == "onnxruntime" and target.release}
    missing = [each for each in releases if not (FOLDER / "hashes" / f"onnxruntime-{each}.txt").exists()]
    assert not missing, "uv pip compile --no-deps --generate-hashes makes the file"


def here(text: str) -> ResolvedTarget:
    """The target as it can be asked without installing anything: by the package that is installed, or out of
    the store of releases.
    """
    target = resolve(text)
    package = target.facts.package
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    if installed and target.release in ("", installed):
        return target.with_release("")
    if target.release and target.release in {
        release for release, _ in ReleaseStore().list_installed(package)
    }:
        return target
    wanted = f"{package} {target.release}".strip()
    pytest.skip(f"needs {wanted}; {f'{installed} is' if installed else 'none is'} installed")


def judge(workers: Workers, folder: Path, target: ResolvedTarget) -> Judged:
    case = open_case(folder)
    assert case.expected, "a sample brings the outputs that it should give"
    lab = ObservationCache(workers)
    return judge_program(
        case.program, case.inputs, target, lab, expected=case.expected, oracles=SECOND_ORACLES
    )


@pytest.mark.parametrize("folder", EACH)
def test_a_sample_fails_where_it_says(workers: Workers, folder: Path) -> None:
    judged = judge(workers, folder, here(FACTS[folder].fails))
    found, run = judged.verdict, judged.observations[0]
    assert found.verdict == "fail", found.reason
    kind = {"crash": "crash", "error": "error", "value": "mismatch", "shape": "mismatch"}[
        folder.name.rpartition("-")[2]
    ]
    assert found.kind == kind, found.reason
    if kind == "mismatch":
        assert found.mismatch is not None
        what = "value" if found.mismatch.what in ("nan", "inf") else found.mismatch.what
        assert what == folder.name.rpartition("-")[2]
        # A shape or dtype is judged by what shape inference derives, before anything is evaluated.
        assert {"reference:float64", str(DERIVING)} & set(found.oracles)
    recorded = BUGS[folder.name][0].targets.get(FACTS[folder].fails)
    if recorded and (recorded.version, recorded.key_version) == (run.version, VERSION):
        key = make_failure(found, run, open_case(folder).program).fingerprint.key
        assert key == recorded.fingerprint, "changed rules of fingerprints need a new VERSION"


@pytest.mark.parametrize("folder", PASSING)
def test_a_sample_passes_where_it_says(workers: Workers, folder: Path) -> None:
    found = judge(workers, folder, here(FACTS[folder].passes)).verdict
    assert found.verdict == "pass", found.reason


def test_each_case_has_a_script_of_its_own() -> None:
    for folder in SAMPLES:
        text = (folder / "confirm.py").read_text()
        assert len(text.splitlines()) <= 30, folder.name
        assert "opsieve" not in text, folder.name
        assert ast.get_docstring(ast.parse(text)), folder.name


@pytest.mark.parametrize("folder", SCRIPTS)
def test_a_script_confirms_its_bug(folder: Path) -> None:
    """Run the script where the release on which the bug was found is what is installed."""
    bug = FACTS[folder]
    target = here(bug.fails)
    if target.release:
        pytest.skip(f"the script runs what is installed, and the bug is one of {target.release}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", folder / "confirm.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "confirmed" in done.stdout
    assert "not confirmed" not in done.stdout


def test_there_are_samples_of_many_compilers_and_each_is_whole() -> None:
    compilers = Counter(resolve(bug.fails).name for bug in FACTS.values())
    assert len(SAMPLES) >= 8
    assert len(compilers) >= 5
    assert {path.parent for path in FOLDER.glob("*/case.json")} == set(SAMPLES)
    for folder, bug in FACTS.items():
        assert bug.what.endswith(".")
        assert resolve(bug.fails).release
        assert not bug.same_as or FOLDER / bug.same_as in FACTS
        assert (folder / "README.md").read_text().startswith("# ")


def test_a_full_disk_leaves_no_part_of_a_sample(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk; the same command works once there is room."""
    command = f"{sys.executable} -m opsieve sample pad-avgpool-wrong-value -o {tmp_path / 'case'}"
    full = f"ulimit -f 0; trap '' XFSZ; exec {command}"
    ended = subprocess.run(["bash", "-c", full], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        f"opsieve: cannot write '{tmp_path / 'case'}': File too large\n",
    )
    assert list(tmp_path.iterdir()) == []
    assert subprocess.run(command.split(), capture_output=True, check=False).returncode == 0
