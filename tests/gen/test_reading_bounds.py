"""What a reader of a stranger's file may take of this process, and which readers there are."""

import ast
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import opsieve
from models import X, chain
from onnx import helper
from repository import ROOT
from stores import done, filled, finding

from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.model import files
from opsieve.gen.model.files import bound_reading

Capture = pytest.CaptureFixture[str]


@bound_reading
def spin(path: Path) -> None:
    while True:
        pass


@bound_reading
def hoard(path: Path, kept: list[bytes]) -> None:
    while True:
        kept.append(os.urandom(1 << 20))


def test_a_reader_that_takes_too_long_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READING_SECONDS", 0.2)
    with pytest.raises(BadInput, match="'there' takes more time to read than a file of its size may"):
        spin(Path("there"))
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    os.kill(os.getpid(), signal.SIGPROF)  # a late one finds nothing that is read


def test_a_reader_that_goes_on_after_bad_items_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    @bound_reading
    def read_items(path: Path, items: int) -> None:
        for _ in range(items):
            with suppress(Exception):
                spin(path)

    monkeypatch.setattr(files, "READING_SECONDS", 0.2)
    with pytest.raises(BadInput, match="takes more time"):
        read_items(Path("there"), 1 << 30)


def test_a_reader_that_takes_too_much_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READING_MEMORY", 64 << 20)
    monkeypatch.setattr(files, "READING_THREADS", 0)  # those of pytest need little
    kept: list[bytes] = []
    with pytest.raises(BadInput, match="takes more memory to read"):
        hoard(Path("there"), kept)
    assert len(kept) < 1000


def test_a_call_of_c_takes_no_more_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes of a model make a node of a hundred: protobuf itself gets no more memory."""
    monkeypatch.setattr(files, "READING_MEMORY", 8 << 20)
    monkeypatch.setattr(files, "READING_THREADS", 0)
    graph = b"\x0a\x00" * (1 << 21)
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08\x3a\x80\x80\x80\x02" + graph)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(BadInput, match="takes more memory to read"):
        load_program(tmp_path / "m.onnx")
    assert resource.getrlimit(resource.RLIMIT_AS) == limit


BESIDE = """
import threading
from pathlib import Path
import numpy as np
from opsieve.gen.model.files import bound_reading

@bound_reading
def read(path):
    matrix = np.ones((200, 200))
    threads = [threading.Thread(target=lambda: matrix @ matrix) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

waiting = threading.Event()
threading.Thread(target=waiting.wait, daemon=True).start()
read(Path("there"))
print("read")
"""


def test_other_threads_get_what_they_need_meanwhile() -> None:
    """A thread that multiplies matrices asks OpenBLAS, which ends the process if it gets no memory."""
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")


def test_external_data_may_take_memory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors beside a model are taken into it, large ones are not."""
    model = onnx.load_model_from_string(chain("Relu").model)
    for at, side in enumerate([200_000] * 80):
        tensor = helper.make_tensor(f"w{at}", onnx.TensorProto.FLOAT, [side], bytes(4 * side), raw=True)
        model.graph.initializer.append(tensor)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data")
    monkeypatch.setattr(files, "READING_MEMORY", 8 << 20)
    monkeypatch.setattr(files, "READING_THREADS", 0)
    assert len(load_program(tmp_path / "m.onnx").model) > 60 << 20


def test_a_larger_file_may_take_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READING_SECONDS", 0.0)
    (tmp_path / "file").write_bytes(bytes(1 << 18))
    for place in (tmp_path, tmp_path / "file"):
        before = time.process_time()
        with pytest.raises(BadInput, match="more time"):
            spin(place)
        assert time.process_time() - before >= 0.25


def test_a_reader_that_a_bounded_one_calls_counts_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READING_SECONDS", 0.2)
    with pytest.raises(BadInput, match="'outer' takes more time"):
        bound_reading(lambda path: spin(Path("inner")))(Path("outer"))
    answers: list[int] = []
    thread = threading.Thread(target=bound_reading(lambda path: answers.append(1)), args=[Path("x")])
    thread.start()  # no signal reaches it: it reads without a bound
    thread.join()
    assert answers == [1]


READS = {"read_file", "read_part", "open_file"}
# Functions that read a file and are not bounded themselves, and why.
BOUNDED_ELSEWHERE = {
    "gen/irs/onnx/model_file.py:_take_in": "load_program calls it",
    "gen/irs/onnx/model_file.py:_chunks": "load_program calls it",
    "gen/irs/tvm/program.py:_read_passes": "TvmProgram.read calls it",
    "gen/model/files.py:read_file": "it gives bytes, and unfolds none",
    "gen/model/files.py:read_part": "it gives bytes, and unfolds none",
    "gen/model/durable.py:read": "lines of a count that is limited, each a value of msgspec",
    "bisect/sources/git_history.py:_check_config": "paths of a clone's configuration, of which 100 are read",
    "backends/workers/questions/programs.py:read_script": "a worker runs it (--script)",
    "triage/distributed/remote_lane.py:pack_files": "it sends bytes, and unfolds none",
    "triage/external/external_records.py:_read_file": "read_and_cluster calls it",
    "triage/known/issues.py:_iter_entries": "read_export calls it",
    "triage/known/report_models.py:read_contents": "a process of its own reads the bytes",
    "triage/store/artifacts.py:_read_object": "one value of JSON of at most 16 MiB",
    "reducer/sessions/export.py:_beside": "one value of JSON of at most 16 MiB",
    "reducer/sessions/session.py:_story": "a value of msgspec",
    "reducer/sessions/session.py:_question": "it counts the bytes of the user's own script",
    "bisect/sources/build_sandbox.py:hash_script": "it counts the bytes of the user's own script",
    "tui/app/services/demo_store.py:make_demo": "a file that opsieve brings along",
    "tui/commands/triage/report_command.py:_read_script": "text, of which none is unfolded",
}


def test_every_reader_has_a_bound_or_a_reason() -> None:
    """A new reader is bounded, or says here why it needs no bound."""
    found = set()
    for folder in ("gen", "backends", "triage", "reducer", "bisect", "tui"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in READS) else ():
                if not isinstance(node, ast.FunctionDef):
                    continue
                calls = (ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call))
                names = {each.removeprefix("files.") for each in calls}
                bounded = any("bound_reading" in ast.unparse(each) for each in node.decorator_list)
                if names & READS and not bounded:
                    found.add(f"{path.relative_to(ROOT)}:{node.name}")
    assert found == BOUNDED_ELSEWHERE.keys()


def _case(folder: Path) -> None:
    save(Case(chain("Relu"), X), folder / "case")


def _model(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(chain("Relu").model)


def _values(folder: Path) -> None:
    _model(folder)
    np.savez(folder / "in.npz", **X)


def _pickle(folder: Path) -> None:
    (folder / "case").mkdir()
    (folder / "case" / "model.onnx").write_bytes(chain("Relu").model)
    (folder / "case" / "oracle.pkl").write_bytes(pickle.dumps({"input": X}))


def _store(folder: Path) -> None:
    filled(folder / "s", [done(0, finding("a message", frames=["f"]))])
    (folder / "s" / "known").mkdir(exist_ok=True)
    (folder / "s" / "known" / "r.toml").write_text("issue = 'u'\nmessage = 'a'\n")


def _corpus(folder: Path) -> None:
    (folder / "kept").mkdir()
    (folder / "kept" / "corpus.json").write_text('{"format": 1, "cases": {}}')


def _json(folder: Path) -> None:
    (folder / "a.json").write_text(json.dumps({"results": []}))


def _text(folder: Path) -> None:
    _model(folder)
    (folder / "a.toml").write_text("")
    (folder / "log.txt").write_text("error")


# Each kind of file a stranger may send, with a command that reads it.
KINDS: list[tuple[str, Callable[[Path], None]]] = [
    ("run m.onnx -t fake", _model),
    ("import m.onnx -o out", _model),
    ("run case -t fake", _case),
    ("run m.onnx --inputs in.npz -t fake", _values),
    ("import case -o out", _pickle),
    ("triage s", _store),
    ("corpus run kept -t fake", _corpus),
    ("corpus diff a.json a.json", _json),
    ("coverage a.json", _json),
    ("triage --logs log.txt", _text),
    ("known import a.json --store s", lambda folder: (_store(folder), _json(folder))[0]),
]


@pytest.mark.parametrize(("command", "make"), KINDS, ids=[command for command, _ in KINDS])
def test_each_command_bounds_each_kind_of_file(
    command: str,
    make: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """Were there no time to read at all, each file would be refused in a sentence."""
    make(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "READING_SECONDS", -1e9)
    monkeypatch.setattr(
        signal, "setitimer", lambda _, *given: given[0] and signal.raise_signal(signal.SIGPROF)
    )
    code, out, err = opsieve(*command.split(), capsys=capsys)
    assert code == 2
    assert "takes more time to read" in out + err


@pytest.mark.slow(seconds=30)
def test_the_checker_has_a_limit_of_its_own(tmp_path: Path, capsys: Capture) -> None:
    equation = helper.make_node("Einsum", ["x"], ["y"], equation="." * 9999)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([equation], "g", [value("x", 1, [2])], [value("y", 1, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    code, out, err = opsieve("run", tmp_path / "m.onnx", "-t", "reference", capsys=capsys)
    assert (code, out) == (2, "")
    assert "was not checked: onnx's checker gave no answer within 10 s; --no-check runs it anyway" in err
