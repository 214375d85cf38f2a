"""Hostile files of each class, given to the commands that read them: a sentence, nothing written elsewhere, and no
more time and memory than the file is worth.
"""

import base64
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import opsieve
from models import X, chain
from repository import ROOT
from slow_params import keep_quick
from stores import done, filled, finding

from opsieve.backends.workers.sandbox.limited_process import read_limited
from opsieve.gen.case.case import Case, save
from opsieve.gen.case.plain_pickle import read_oracle
from opsieve.gen.errors import BadInput
from opsieve.gen.model import files
from opsieve.gen.model.durable import check_output, write_output
from opsieve.triage.campaign.coverage_record import load_record
from opsieve.triage.external.external_records import read_records
from opsieve.triage.store.artifacts import read_artifacts
from opsieve.tui.app.services.job_board import OPSIEVE

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, beside a file of the user's."""
    (tmp_path / "mine").write_text("years of work\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


# -- the current folder


def test_the_current_folder_supplies_no_module(folder: Path) -> None:
    """`python -m` and `python -c` import from the current folder first, which a stranger may have filled."""
    Path("opsieve.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nraise ImportError('evil')\n")
    subprocess.run([*OPSIEVE, "--version"], check=False, capture_output=True)
    assert not (folder / "ran").exists()


def test_every_python_that_is_started_ignores_the_current_folder() -> None:
    """Workers are left out: they start in their scratch folder, within the sandbox."""
    lines = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for name in ("backends", "bisect", "gen", "reducer", "triage", "tui")
        for path in (ROOT / name).rglob("*.py")
        if not path.is_relative_to(ROOT / "backends" / "compilers")
        for line in path.read_text().splitlines()
        if re.search(r"""(sys\.executable|python\)), ["']|"-m", "opsieve|OPSIEVE\[0\]""", line)
    ]
    assert len(lines) >= 8
    assert [line for line in lines if not re.search('"-[IP]"', line)] == []


# -- writing

ISSUES = [{"number": 1, "title": "t", "url": "https://github.com/a/b/issues/1", "state": "OPEN"}]


def link(path: Path, mine: Path) -> None:
    path.symlink_to(mine)


def dangling(path: Path, mine: Path) -> None:
    path.symlink_to(mine.with_name("new"))


def hard(path: Path, mine: Path) -> None:
    os.link(mine, path)


def fifo(path: Path, mine: Path) -> None:
    os.mkfifo(path)


def into(path: Path, mine: Path) -> None:
    mine.with_name("elsewhere").mkdir()
    path.symlink_to(mine.with_name("elsewhere"))


PLACES = {  # what a stranger puts where, and the command that would write there
    "found/known/a~b.issues.json": "known import issues.json --store found",
    "found/known/.a~b.issues.json.new": "known import issues.json --store found",
    "report.html": "report found",
    "page.html": "report found -o page.html",
    "results.xml": "corpus run kept -t fake --junit results.xml",
    "results.sarif": "corpus run kept -t fake --sarif results.sarif",
    "repro.py": "export case -t fake:error@Relu",
    "out/case-fake_error_Relu": "run case -t fake:error@Relu --save out",
    "kept/corpus.json": "corpus add kept case -t fake",
    "case.reduced": "reduce case -t fake:error@Relu",
}


# `test_an_output_is_a_regular_file_or_a_new_one` tries the others in make test, on the one function that writes.
SLOW = pytest.mark.slow(seconds=4)
PUTS = [link, hard, *(pytest.param(put, marks=SLOW) for put in (dangling, fifo, into))]


@pytest.mark.parametrize("put", PUTS, ids=lambda put: put.__name__)
def test_nothing_is_written_through_a_link_or_into_a_pipe(
    put: Callable[[Path, Path], None], folder: Path, capsys: Capture
) -> None:
    save(Case(chain("Relu"), X), Path("case"))
    filled(Path("found"), [done(0, finding("a message", frames=["f"]))])
    Path("issues.json").write_text(json.dumps(ISSUES))
    assert opsieve("corpus", "add", "kept", "case", "-t", "fake", capsys=capsys)[0] == 0
    for name, words in PLACES.items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if (folder / "elsewhere").is_dir():
            (folder / "elsewhere").rmdir()
        put(path, folder / "mine")
        before = sorted(os.listdir(folder))
        code, _, err = opsieve(*words.split(), capsys=capsys)
        assert code in (0, 1, 2), (name, err)
        assert (folder / "mine").read_text() == "years of work\n", name
        assert sorted(os.listdir(folder)) == before, name
        assert not (folder / "elsewhere").exists() or not os.listdir(folder / "elsewhere"), name
        if path.is_symlink() or path.is_fifo():
            path.unlink()


def test_an_output_is_a_regular_file_or_a_new_one(folder: Path) -> None:
    for put in (link, dangling, fifo, into):
        path = Path(put.__name__)
        put(path, folder / "mine")
        with pytest.raises(BadInput, match="name a regular file or a new one"):
            write_output(path, "text")
    for path in (Path("no/folder/x"), Path("x" * 300), Path("nul\0")):
        with pytest.raises(BadInput, match="cannot write"):
            check_output(path)
    write_output(Path("new"), "a lone surrogate: \udcff")
    assert Path("new").read_bytes() == b"a lone surrogate: \\udcff"


# -- reading


def test_a_reader_in_a_process_has_limits() -> None:
    where = "opsieve.triage.known.report_models"
    assert read_limited(f"{where}:parse_text", b'<ir_version: 8, opset_import: ["": 17]> g () => () {}')
    with pytest.raises(BadInput, match="ParseError"):
        read_limited(f"{where}:parse_text", b"nothing")
    with pytest.raises(BadInput, match=r"more than 1 s of CPU"):
        read_limited(f"{where}:encode_contents", b"<html>" + b"<!--" * 400_000, seconds=1)


BOMBS = {
    "doubled lists": "a=[1]\n" + "a=a+a\n" * 60,
    "shared lists": "a=[1,1]\n" + "a=[a,a]\n" * 60 + "b=np.array(a)\n",
    "shared dicts": "a={}\n" + "a={'x':a,'y':a}\n" * 60 + "b=np.array(a)\n",
    "broken models": 'onnx.parser.parse_model("<ir_version: 8> g () => () { a = b() }")\n' * 3000,
    "many arrays": "".join(f"a{at}=np.zeros((1<<22,))\n" for at in range(400)),
}


@pytest.mark.parametrize("name", keep_quick(BOMBS, 1))
def test_a_script_of_a_report_takes_little(name: str, capsys: Capture) -> None:
    Path("issue.md").write_text(f"```\n{BOMBS[name]}```\n")
    code, _, err = opsieve("replay", "issue.md", "--offline", "--no-history", capsys=capsys)
    assert code == 2
    assert len(err.splitlines()) == 1 + (name == "broken models")


def test_a_pickle_makes_no_room_for_what_it_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places of the memo, and arrays that share what they are made of."""
    monkeypatch.setattr(files, "READING_THREADS", 0)  # those of earlier tests need little
    for at in (1 << 20, 1 << 29, (1 << 32) - 1):
        Path("oracle.pkl").write_bytes(b"\x80\x04Nr" + struct.pack("<I", at) + b".")
        with pytest.raises(BadInput, match="not an oracle of arrays"):
            read_oracle(Path("oracle.pkl"))
    shared = np.zeros(1 << 16, np.uint8)
    Path("oracle.pkl").write_bytes(pickle.dumps({"input": {f"x{at}": shared for at in range(99)}}))
    with pytest.raises(BadInput, match="several names"):
        read_oracle(Path("oracle.pkl"))
    Path("oracle.pkl").write_bytes(b"(" + b"]" * (8 << 20) + b"t.")
    with pytest.raises(BadInput, match="MemoryError"):
        read_oracle(Path("oracle.pkl"))


def test_what_lies_in_a_failure_is_its_text() -> None:
    """Else each of many that are not closed would be as long as the report."""
    inner = "<failure><error>" * 30_000
    Path("l.xml").write_text(f"<testsuite><failure>{inner}no room</failure><error>no air</error></testsuite>")
    assert len(list(read_records(Path("l.xml")))) == 2


def test_a_reference_of_many_digits_is_text() -> None:
    Path("l.xml").write_text(
        f"<testsuite><error message='&#{DIGITS};'>no air &#{DIGITS};</error></testsuite>"
    )
    assert [found.message[:3] for _, found in read_records(Path("l.xml"))] == ["&#9"]


def record(addresses: bytes, path: str, libraries: int = 1) -> str:
    packed = base64.b64encode(zlib.compress(addresses, 9)).decode()
    library = {"path": path, "build_id": "", "probes": 3, "addresses": packed}
    of = {"growth": [[0, 1, 2]], "effects": [], "libraries": [library] * libraries}
    return json.dumps(
        {"format": 1, "campaign": "c", "generator": "g", "kind": "functions", "compilers": {"tvm": of}}
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [('"path": "x"', r'"path": "\u0000\u001b[31m\u202e"'), ('"probes": 3', f'"probes": {"9" * 4000}')],
)
def test_a_record_is_shown_escaped_and_short(old: str, new: str, capsys: Capture) -> None:
    Path("a.json").write_text(record(struct.pack("<3I", 1, 2, 3), "x").replace(old, new))
    for words in (["a.json"], ["a.json", "a.json"]):
        code, out, _ = opsieve("coverage", *words, capsys=capsys)
        assert (code, len(out) < 500) == (0, True)
        assert "".join(out.split("\n")).isprintable()


def odd_libraries() -> Iterator[str]:
    os.mkfifo("lib.so")
    yield "lib.so"
    yield "/dev/zero"
    yield "."
    for name, data in (("empty.so", b""), ("elf.so", b"\x7fELF\x02\x01" + b"\xff" * 200)):
        Path(name).write_bytes(data)
        yield name
    header = b"\x7fELF\x02\x01" + bytes(12) + struct.pack("<H", 62) + bytes(20) + struct.pack("<Q", 64)
    Path("zeros.so").write_bytes(header + bytes(10) + struct.pack("<HHH", 40, 3, 0) + bytes(200))
    yield "zeros.so"


def test_the_library_of_a_record_is_not_waited_for(capsys: Capture) -> None:
    for path in odd_libraries():
        Path("a.json").write_text(record(struct.pack("<3I", 1, 2, 3), path))
        assert opsieve("coverage", "a.json", "a.json", capsys=capsys)[0] == 0, path


def test_a_record_unfolds_to_no_more_than_compilers_have() -> None:
    for text in (record(bytes(20 << 20), "x"), record(bytes(2 << 20), "x", 12)):
        Path("a.json").write_text(text)
        with pytest.raises(BadInput, match="is not the coverage"):
            load_record(Path("a.json"))
    Path("a.json").write_text(record(struct.pack("<3I", 3, 1, 2), "x", 99))
    libraries = load_record(Path("a.json")).compilers["tvm"].libraries
    assert (libraries[0].addresses.tolist(), len(libraries)) == ([1, 2, 3], 32)


# -- bytes that are not text, and numbers that are too long

ODD = os.fsdecode(b"m\xff\xfe")
DIGITS = "9" * 5000
TEXTS = {  # a file, what is in it, and the command that reads it
    "opsieve.toml": (f"seconds = {DIGITS}", "run case -t fake"),
    "found/known/r.toml": (f"title = 't'\nversions = {DIGITS}", "triage found"),
    f"found/known/{ODD}.toml": ("title = 't'\nkind = 'error'", "triage found"),
    f"found/known/{ODD}2.toml": ("title = 't'\nkind = 3", "triage found --json"),
    "issues.json": (
        '[{"number": 1, "title": "t\\ud800", "body": "\\udfff", "url": "https://github.com/a/b/issues/1"}]',
        "known import issues.json --store found",
    ),
    "long.json": (f'[{{"number": {DIGITS}, "title": "t"}}]', "known import long.json --store found"),
    "old.json": (f'{{"results": [{DIGITS}]}}', "corpus diff old.json old.json"),
    "kept/corpus.json": (f'{{"format": {DIGITS}}}', "corpus run kept"),
    "case/attribution.json": (f'{{"passes": {DIGITS}}}', "show case"),
    "found/decisions.jsonl": (f'{{"at": {DIGITS}}}', "index --store found"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_text_is_a_sentence(name: str, capsys: Capture) -> None:
    save(Case(chain("Relu"), X), Path("case"))
    filled(Path("found"), [done(0, finding("a message", frames=["f"]))])
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    text, words = TEXTS[name]
    path.write_text(text)
    code, out, err = opsieve(*words.split(), capsys=capsys)
    assert code in (0, 1, 2), err
    (out + err).encode()


@pytest.mark.parametrize(
    "line",
    [
        "run {} -t fake:wrong@Relu --save kept",
        "reduce {} -t fake:wrong@Relu -o {}.small",
        "export {} -t fake:wrong@Relu -o {}.py",
        "import . -o kept",
        "corpus add kept {} -t fake",
        "attribute {} -t fake:wrong@Relu",
        "bisect {} -t fake --releases onnxruntime --offline",
        "note c1 {} --store found",
        "clusters {} --store found",
        "report found -o {}.html",
    ],
)
def test_a_name_that_is_no_text_is_shown_escaped(line: str, capsys: Capture) -> None:
    filled(Path("found"), [done(0, finding("a message", frames=["f"]))])
    name = f"{ODD}.onnx"
    Path(name).write_bytes(chain("Relu").model)
    code, out, err = opsieve(*(word.replace("{}", name) for word in line.split()), capsys=capsys)
    assert code in (0, 1, 2, 3), err
    (out + err).encode()


# -- a machine that is short of something


@pytest.mark.parametrize("limit", keep_quick(["-v 900000", "-n 12", "-n 16"], 1))
def test_a_short_machine_is_not_the_fault_of_the_model(limit: str) -> None:
    Path("m.onnx").write_bytes(chain("Relu").model)
    command = f"ulimit {limit}; exec {sys.executable} -m opsieve run m.onnx -t fake"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 2), done.stderr
    assert "is not a valid ONNX model" not in done.stderr


def test_a_reduction_that_was_killed_is_not_done(folder: Path) -> None:
    """Its story says that the failure is the same, and that it has not finished: the next one goes on with
    it.
    """
    save(Case(chain("Relu"), X), Path("case/reduced"))
    story = {"same": True, "nodes_after": 1, "inner_nodes_after": 0}
    for finished, nodes in ((False, None), (True, 1)):
        Path("case/reduced/reduction.json").write_text(json.dumps({**story, "finished": finished}))
        assert read_artifacts(Path("case")).nodes == nodes


def test_a_sentence_has_an_end(capsys: Capture) -> None:
    Path("opsieve.toml").write_text(f"seconds = '{'a' * 30_000}'\n")
    code, _, err = opsieve("run", "m.onnx", capsys=capsys)
    assert code == 2
    assert 3000 < len(err) < 5000
    assert "is not a valid float" in err


def test_a_limit_of_the_machine_is_no_limit_of_the_model() -> None:
    """With a hard limit on addresses below the one of a worker, the model is judged all the same."""
    Path("m\n'.onnx").write_bytes(chain("Relu").model)
    model = r"$'m\x0a\x27.onnx'"
    command = f"ulimit -v 3000000; exec {sys.executable} -m opsieve run {model} -t fake:wrong@Relu"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        1,
        # It can be pasted, though the name of the model holds a line end.
        f"opsieve: reduce it: opsieve reduce {model} -t fake:wrong@Relu\n",
    )


@pytest.mark.parametrize("version", [2**31, 2**62, -(2**63)])
@pytest.mark.parametrize("place", ["model", "function"])
def test_an_operator_set_beyond_onnx_is_a_sentence(version: int, place: str, capsys: Capture) -> None:
    model = onnx.load_from_string(chain("Relu").model)
    function = model.functions.add(name="f", domain="me", input=["a"], output=["b"])
    function.node.add(op_type="Relu", input=["a"], output=["b"])
    for owner in (model, function) if place == "model" else (function,):
        owner.opset_import.add(domain="me" if owner is model else "", version=version)
    Path("m.onnx").write_bytes(model.SerializeToString())
    code, _, err = opsieve("run", "m.onnx", "-t", "fake", capsys=capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"it imports version {version} of an operator set" in err


@pytest.mark.parametrize("key", ["case", "target", "verdict", "fingerprint"])
def test_a_result_without_end_is_a_sentence(key: str, capsys: Capture) -> None:
    after = {"verdict": "fail", "kind": "crash", "stage": "run", "fingerprint": "f"}
    result = {"case": "c", "target": "t", "after": after}
    Path("a.json").write_text(json.dumps({"results": [result]}))
    assert opsieve("corpus", "diff", "a.json", "a.json", capsys=capsys)[0] == 0
    (after if key in after else result)[key] = "n" * 20_000
    Path("b.json").write_text(json.dumps({"results": [result]}))
    code, _, err = opsieve("corpus", "diff", "a.json", "b.json", capsys=capsys)
    assert (code, len(err.splitlines()), len(err) < 500) == (2, 1, True)
