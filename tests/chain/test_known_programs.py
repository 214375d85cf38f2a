"""`run`, `reduce` and `export` agree on every program whose verdict is known (tests/corpus/truth) and on
every sample.

What `run` calls a failure is reduced, and a script shows it; what passes ends with exit code 3 in both; what
was not judged with 2, but that `reduce` takes a doubtful result of a target that the user names.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import opsieve
from repository import SAMPLES
from truth import Known, known

from opsieve.backends.registry import resolve
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput
from opsieve.triage.corpus.corpus_file import read_bugs

TRUTH = {each.name: each for each in known()}
FAILS = {SAMPLES / name: bug.fails for name, (_, bug) in read_bugs(SAMPLES).items()}
# In make test: of the targets that are there at once, the first program of each verdict.
QUICK = {
    each.verdict: each.name
    for each in reversed(TRUTH.values())
    if each.target in ("onnxruntime", "fake:error@Exp>Neg")
}
NOT_SHOWN = ("slowdown",)  # kinds that no script shows
UNJUDGED = ("undecided", "invalid", "unsupported")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK.values() else pytest.mark.slow) for name in TRUTH]
)
def test_a_known_program(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    each: Known = TRUTH[name]
    save(Case(each.program, each.inputs), tmp_path / "case")
    agree(tmp_path, tmp_path / "case", each.target, capsys)


@pytest.mark.slow  # minutes, and releases of many compilers
@pytest.mark.parametrize("folder", FAILS, ids=lambda folder: folder.name)
def test_a_sample(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    word = agree(tmp_path, folder, FAILS[folder], capsys)
    assert word == "fail"


def agree(home: Path, case: Path, target: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The verdict of `run`; fails unless the other commands draw the same conclusion."""
    # Only `run` asks onnx's checker first.
    code, out, _ = opsieve("run", case, "-t", target, "--no-check", "--json", capsys=capsys)
    result = json.loads(out)["results"][0]
    word, said = result["verdict"], result["reason"]
    if word == "environment":
        pytest.skip(f"{target}: {said[:200]}")
    reduced, told, why = opsieve(
        "reduce", case, "-t", target, "-o", home / "reduced", "--json", capsys=capsys
    )
    facts = json.loads(told)
    script = home / "repro.py"
    exported, _, reason = opsieve("export", case, "-t", target, "-o", script, capsys=capsys)
    seen = f"{word}: {said}\nreduce {reduced}: {why}\nexport {exported}: {reason}"
    if word == "fail" and result["kind"] not in NOT_SHOWN:
        assert (code, reduced, exported) == (1, 0, 0), seen
        assert facts["same"], seen
        for path in (script, Path(facts["script"])):
            shown, line = ran(path, target)
            assert shown == 1, seen
            assert re.search("^BUG: ", line, re.MULTILINE), f"{seen}\n{path.name} {shown}: {line}"
    elif word == "fail":
        assert (code, reduced, exported) == (1, 0, 2), seen
    elif word == "pass":
        assert (code, reduced, exported) == (0, 3, 3), seen
    else:
        assert word in UNJUDGED, seen
        assert (code, exported) == (2, 2), seen
        assert reduced == 2 or (word == "undecided" and reduced == 0), seen
    return str(word)


def ran(script: Path, target: str) -> tuple[int, str]:
    """Exit code of a script in a process of its own, and what it printed."""
    python, path = [sys.executable], ""
    resolved = resolve(target)
    if resolved.release:
        try:
            found = ReleaseStore().environment(resolved.backend, resolved.release, offline=True)
        except BadInput as error:
            pytest.skip(str(error))
        path = str(found.path[0])
        if found.python_version[:2] != sys.version_info[:2]:
            python = [str(found.python)]
    done = subprocess.run(
        [*python, script.name],
        env=environment(path),
        capture_output=True,
        text=True,
        cwd=script.parent,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def environment(path: str) -> dict[str, str]:
    """The variables of a clean process that imports from a folder first."""
    return {**os.environ, **({"PYTHONPATH": path} if path else {})}
