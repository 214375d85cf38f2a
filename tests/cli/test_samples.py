"""Every sample fails where it says it does, with the kind its name tells, and passes where it says that it
passes.
"""

import importlib.metadata
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from repository import SAMPLES as FOLDER

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import DERIVING, SECOND_ORACLES
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.verdict import Verdict
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.open_case import open_case

SAMPLES = sorted(path.parent for path in FOLDER.glob("*/sample.toml"))
FACTS = {folder: tomllib.loads((folder / "sample.toml").read_text()) for folder in SAMPLES}
# Of each compiler one in make test.
FIRST = {resolve(FACTS[folder]["fails"]).name: folder for folder in reversed(SAMPLES)}
EACH = [
    pytest.param(folder, id=folder.name, marks=() if folder in FIRST.values() else pytest.mark.slow)
    for folder in SAMPLES
]


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
    if target.release and target.release in {release for release, _ in ReleaseStore().installed(package)}:
        return target
    wanted = f"{package} {target.release}".strip()
    pytest.skip(f"needs {wanted}; {f'{installed} is' if installed else 'none is'} installed")


def verdict(workers: Workers, folder: Path, target: ResolvedTarget) -> Verdict:
    case = open_case(folder)
    assert case.expected, "a sample brings the outputs that it should give"
    lab = ObservationCache(workers)
    return judge_program(
        case.program, case.inputs, target, lab, expected=case.expected, oracles=SECOND_ORACLES
    ).verdict


@pytest.mark.parametrize("folder", EACH)
def test_a_sample_fails_where_it_says(workers: Workers, folder: Path) -> None:
    found = verdict(workers, folder, here(FACTS[folder]["fails"]))
    assert found.verdict == "fail", found.reason
    kind = {"crash": "crash", "error": "error", "value": "mismatch", "shape": "mismatch"}[
        folder.name.rpartition("-")[2]
    ]
    assert found.kind == kind, found.reason
    if kind == "mismatch":
        assert found.mismatch is not None
        what = "value" if found.mismatch.what == "nan" else found.mismatch.what
        assert what == folder.name.rpartition("-")[2]
        # A shape or dtype is judged by what shape inference derives, before anything is evaluated.
        assert {"reference:float64", str(DERIVING)} & set(found.oracles)


@pytest.mark.parametrize("folder", EACH)
def test_a_sample_passes_where_it_says(workers: Workers, folder: Path) -> None:
    found = verdict(workers, folder, here(FACTS[folder]["passes"]))
    assert found.verdict == "pass", found.reason


def test_there_are_samples_of_many_compilers_and_each_is_told() -> None:
    compilers = Counter(resolve(told["fails"]).name for told in FACTS.values())
    assert len(SAMPLES) >= 8
    assert len(compilers) >= 5
    table = (FOLDER / "README.md").read_text()
    for folder, told in FACTS.items():
        assert set(told) == {"fails", "passes", "what"}
        assert (folder / "README.md").read_text().strip() == told["what"]
        assert f"| [{folder.name}]({folder.name}) | {told['fails']} |" in table
