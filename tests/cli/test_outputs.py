"""What commands print, word for word: sessions on the small store in corpus/store and on a small model, as
transcripts in corpus/golden/outputs.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import opsieve
from golden import assert_golden, normalised
from models import X, chain
from repository import CORPUS
from stores import NOW

from opsieve.gen.case.case import Case, save

ON_A_STORE = (  # in this order: each sees what those before it did
    "index", "index", "triage", "clusters", "clusters --sort id --limit 3", "clusters --group kind", "clusters kind:crash op:Relu",
    "clusters nothing-has-this-word", "clusters --non-bugs", "show c1", "show c1 --why", "show cases/CRASH/1", "show c99",
    "mark c2 known --issue https://example.org/7", "note c2 'seen on arm'", "rename c3 'the third'", "pin c3", "merge c1 c5",
    "show c1", "split MERGED", "undo", "redo", "redo", "clusters", "triage --refingerprint --dry-run", "triage",
)  # fmt: skip
FAULTY = "fake:wrong@Tanh"
ON_A_CASE = (
    f"run case -t fake -t {FAULTY}", f"reduce case -t {FAULTY} -o small", "run small/model.onnx -t fake",
    f"attribute small -t {FAULTY}", f"export small -t {FAULTY} --as script -o repro.py",
    f"export small -t {FAULTY} --as issue -o issue.md", "export case -t fake --as script",
    "bisect case --releases fake", "import case -o taken", "import nothing", "sample nothing-like-this",
    "metrics case",
)  # fmt: skip
GENERATED = (  # figures move whenever the generator does, words do not
    f"fuzz -t {FAULTY} --no-probe --strategy isra --nodes 5 --tests 16 --seed 3 --store found", "fuzz --store found --resume --tests 16",
    "coverage found", "gen --strategy isra --nodes 5 --seed 3 --models 2 --check -o made", "gen -n 3 -o made",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and a terminal of 100 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def transcript(commands: Sequence[str], capsys: pytest.CaptureFixture[str], *more: str, **words: str) -> str:
    """The commands as one types them, and what each prints: stdout, then stderr behind `! `, then the exit
    code where it is not 0.
    """
    told = []
    for line in commands:
        typed = [words.get(word, word) for word in shlex.split(line.replace("CRASH", words.get("CRASH", "")))]
        code, out, err = opsieve(*typed, *more, capsys=capsys)
        told.append(
            f"$ opsieve {line}\n{out}"
            + "".join(f"! {said}\n" for said in err.splitlines())
            + f"[{code}]\n" * bool(code)
        )
    return "\n".join(told)


def test_commands_on_a_store(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(CORPUS / "store", folder / "store")
    for path in (folder / "store").rglob("*"):
        os.utime(path, (NOW, NOW))  # when a failure was seen
    (crash,) = (place.name for place in (folder / "store" / "cases").glob("fake-crash-*"))
    (merged,) = (place.name for place in (folder / "store" / "cases").glob("onnxruntime-*"))
    told = transcript(ON_A_STORE, capsys, "--store", "store", CRASH=crash, MERGED=merged)
    today = re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d(?=  )", re.MULTILINE)
    assert_golden("outputs/store.txt", today.sub("TODAY", normalised(told, FOLDER=folder)))


def test_commands_on_a_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(Case(chain("Relu", "Tanh", "Neg"), dict(X)), folder / "case")
    told = normalised(transcript(ON_A_CASE, capsys), FOLDER=folder)
    assert_golden("outputs/case.txt", re.sub(r"seen in \d+ of \d+ runs", "seen in N of N runs", told))


def test_commands_that_generate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = normalised(transcript(GENERATED, capsys), FOLDER=folder)
    # How far it is: where it takes long.
    told = re.sub(r"^! opsieve: \d+ of \d+ tests, .*\n", "", told, flags=re.MULTILINE)
    told = re.sub(r"(?<=[ (])\d[\d.]*(?=[ %,)\n])", "N", told)
    told = re.sub(r"(  new: .*\n)+", "  new: CLUSTERS\n", told)  # what a seed finds is another matter
    told = re.sub(r"(?<=: )N \w+(, N \w+)*(?= \()", "VERDICTS", told)
    assert_golden("outputs/generated.txt", re.sub(r"(?<=failures: ).*(?=; store)", "KINDS", told))


def test_bytes_of_a_name_that_are_not_text_are_shown_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = Path(os.fsdecode(b"b\xff.onnx"))
    odd.write_bytes(chain("Tanh").model)
    for words in (["run", odd, "-t", "fake"], ["import", odd, "-o", "taken"]):
        code, out, _ = opsieve(*words, capsys=capsys)
        assert (code, r"b\udcff.onnx" in out) == (0, True), out
