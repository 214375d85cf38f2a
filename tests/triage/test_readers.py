"""Whatever a file of a stranger holds, its reader reads it or says in one sentence why not: damage that keeps
the structure, drawn anew by each reader.

What was found is kept as an explicit example. `make test-all` draws ten times as many.
"""

import base64
import ctypes
import gzip
import io
import json
import lzma
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import damage
import numpy as np
import pytest
import valid_models
from hypothesis import HealthCheck, given, settings, strategies as st
from models import X, chain
from onnx import numpy_helper
from stores import done, filled, finding
from tvm_programs import RELAX

from opsieve.backends.probing.operator_support import ProbeAnswer
from opsieve.backends.probing.support_tables import SupportTable
from opsieve.gen.case.case import Case, open_case, save
from opsieve.gen.case.import_folder import Imported, gather
from opsieve.gen.errors import BadInput
from opsieve.triage.campaign import coverage_record, plan
from opsieve.triage.campaign.coverage_record import CompilerCoverage, CoverageRecord, ReachedLibrary
from opsieve.triage.external.external_logs import read_and_cluster
from opsieve.triage.review.review import review_store
from opsieve.triage.store.decision_log import FILE
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.index.index_file import INDEX
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store

_ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
_LOG = b"""=== test_one ===
Traceback (most recent call last):
  File "/site-packages/tvm/relax/op.py", line 12, in convert
    raise ValueError("cannot convert")
ValueError: cannot convert 7 of float32
____ test_two ____
[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Mul node. Name:'a'
"""
_RECORDS = [
    {
        "backend": "tvm",
        "phase": "convert",
        "exc_type": "ValueError",
        "message": "no",
        "traceback": _LOG.decode(),
    },
    {"backend": "onnxruntime", "message": "failed", "signal": 11, "op": "Relu", "timed_out": False},
    {"backend": "tvm", "message": "hangs", "timed_out": True, "ops": ["Relu", "Tanh"]},
]


@dataclass(frozen=True, slots=True)
class Reader:
    """A folder with what is sound, the file in it to damage, how, and what reads it."""

    make: Callable[[Path], None]
    file: str
    kinds: tuple[damage.Damage, ...]
    read: Callable[[Path], object]


def _model(folder: Path) -> None:
    model = valid_models.branching()
    model.graph.initializer.extend(valid_models.plain().graph.initializer)
    valid_models.file(folder / "model.onnx", model.SerializeToString())


def _functions(folder: Path) -> None:
    valid_models.file(folder / "model.onnx", valid_models.functional().SerializeToString())


def _case(folder: Path) -> None:
    save(Case(chain("Relu", "Tanh"), dict(X)), folder / "case")


def _with_npz(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(chain("Relu").model)
    np.savez(folder / "inputs.npz", **X)


def _with_oracle(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(chain("Relu").model)
    (folder / "oracle.pkl").write_bytes(pickle.dumps({"input": X, "output": {"y": _ARRAY}}))


def _with_polygraphy(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(chain("Relu").model)
    array = io.BytesIO()
    np.save(array, _ARRAY)
    packed = {"array": base64.b64encode(array.getvalue()).decode(), "polygraphy_class": "ndarray"}
    (folder / "feeds.json").write_text(json.dumps([{"x": packed}]))


def _data_set(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(chain("Relu").model)
    (folder / "test_data_set_0").mkdir()
    (folder / "test_data_set_0" / "input_0.pb").write_bytes(
        numpy_helper.from_array(_ARRAY, "x").SerializeToString()
    )


def _module(folder: Path) -> None:
    shutil.copy(RELAX, folder / "module.json")


def _records(folder: Path) -> None:
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in _RECORDS))
    (folder / "log.gz").write_bytes(gzip.compress((folder / "log.jsonl").read_bytes(), 1))
    (folder / "log.txt").write_bytes(_LOG)


def _store(folder: Path) -> None:
    filled(folder / "s", [done(at, finding(f"no {word}")) for at, word in enumerate(["room", "air"])])
    with Ledger(folder / "s") as ledger:
        ledger.mark("c1", "known")
        ledger.note("c1", "seen")
        ledger.merge("c1", "c2")


def _coverage(folder: Path) -> None:
    (folder / "coverage").mkdir()
    library = ReachedLibrary("/lib/libtvm.so", "ab12", 9, np.array([16, 64], np.int64))
    compiler = CompilerCoverage([(0.5, 1, 2), (1.5, 7, 3)], [library], ["relu"])
    coverage_record.save_record(CoverageRecord("c0ffee", "small-1", "functions", {"tvm": compiler}), folder)


def _tables(folder: Path) -> None:
    answers = (
        ProbeAnswer("Relu", "float32", 2, "ok", ""),
        ProbeAnswer("Relu", "", -1, "generator", "small-1"),
    )
    plan.save_tables([SupportTable("tvm", "0.27", "2026-11-22", ("float32",), answers)], "c0ffee", folder)


def _opened(folder: Path) -> object:
    return open_case(
        next(path for path in (folder / "case", folder / "module.json", folder) if path.exists())
    )


def _gathered(folder: Path) -> list[str]:
    return [item.kind for item in gather(folder) if isinstance(item, Imported)]


def _rebuilt(folder: Path) -> int:
    (folder / "s" / INDEX).unlink(missing_ok=True)
    with Store(folder / "s") as store:
        added, problems = store.adopt_cases()
    assert all(problem.isprintable() for problem in problems)
    _looked(folder)
    return added


def _looked(folder: Path) -> None:
    with Queries(folder / "s") as queries:
        for row in queries.clusters().rows:
            queries.fingerprints(row.id)
            for member in queries.members(row.id).rows:
                queries.case(f"{member.campaign}:{member.test}:{member.target}")
        queries.history()
    review_store(folder / "s")


READERS = {
    "model": Reader(_model, "model.onnx", (damage.model, damage.model, damage.raw), _opened),
    "functions": Reader(_functions, "model.onnx", (damage.model,), _opened),
    "case.json": Reader(_case, "case/case.json", (damage.json_values, damage.raw), _opened),
    "npz": Reader(_with_npz, "inputs.npz", (damage.archive, damage.raw), _opened),
    "pb": Reader(_data_set, "test_data_set_0/input_0.pb", (damage.tensor, damage.raw), _opened),
    "oracle.pkl": Reader(_with_oracle, "oracle.pkl", (damage.raw,), _gathered),
    "polygraphy": Reader(_with_polygraphy, "feeds.json", (damage.json_values, damage.raw), _gathered),
    "module.json": Reader(_module, "module.json", (damage.json_values, damage.raw), _opened),
    "log.jsonl": Reader(
        _records, "log.jsonl", (damage.json_lines,), lambda at: read_and_cluster(at / "log.jsonl")
    ),
    "log.gz": Reader(
        _records,
        "log.gz",
        (damage.gzipped(damage.json_lines), damage.raw),
        lambda at: read_and_cluster(at / "log.gz"),
    ),
    "log.txt": Reader(_records, "log.txt", (damage.raw,), lambda at: read_and_cluster(at / "log.txt")),
    "coverage": Reader(
        _coverage, "coverage/*.json", (damage.json_values, damage.raw), coverage_record.load_record
    ),
    "tables": Reader(
        _tables,
        "support/*.xz",
        (damage.xz(damage.json_values), damage.raw),
        lambda at: plan.load_tables("c0ffee", at),
    ),
    "decisions": Reader(_store, f"s/{FILE}", (damage.json_lines,), _rebuilt),
    "failure.json": Reader(_store, "s/cases/*/1/failure.json", (damage.json_values, damage.raw), _rebuilt),
    "index": Reader(_store, f"s/{INDEX}", (damage.raw,), _looked),
}

STORES = ("decisions", "failure.json", "index")
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders with what is sound, one for each reader."""
    folder = tmp_path_factory.mktemp("sound")
    for name, reader in READERS.items():
        (folder / name).mkdir()
        reader.make(folder / name)
    return folder


@pytest.mark.parametrize("name", READERS)
def test_what_is_sound_is_read(name: str, sound: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sound / name, tmp_path / "copy")
    found = READERS[name].read(Path(folder))
    assert found or found is None


@pytest.mark.parametrize("name", [name for name in READERS if name not in STORES])
@settings(suppress_health_check=SHARED)
@given(data=st.data())
def test_what_is_damaged_is_read_or_refused_in_a_sentence(
    name: str, sound: Path, data: st.DataObject
) -> None:
    check(READERS[name], sound / name, data)


@pytest.mark.parametrize("name", STORES)
@settings(suppress_health_check=SHARED, max_examples=settings.default.max_examples // 5)  # each takes 50 ms
@given(data=st.data())
def test_a_damaged_store_is_read_or_refused_in_a_sentence(
    name: str, sound: Path, data: st.DataObject
) -> None:
    check(READERS[name], sound / name, data)


def check(reader: Reader, sound: Path, data: st.DataObject) -> None:
    """Nothing but BadInput, its message a printable line, may come out of a reader."""
    place = min(sound.glob(reader.file)).relative_to(sound)
    kind = data.draw(st.sampled_from(reader.kinds))
    content = data.draw(st.composite(lambda draw: kind(draw, (sound / place).read_bytes()))())
    with tempfile.TemporaryDirectory(prefix="readers-") as scratch:
        folder = Path(shutil.copytree(sound, Path(scratch) / "copy"))
        (folder / place).write_bytes(content)
        try:
            reader.read(folder)
        except BadInput as error:
            said = str(error)
            assert said.isprintable()
            assert 0 < len(said) < 600


@pytest.mark.parametrize(
    "number", [b"Infinity", b"-Infinity", b"NaN", b"1e999", b"1" + b"0" * 400], ids=lambda it: it[:9]
)
@pytest.mark.parametrize(("name", "field"), [("coverage", b'"probes": 9'), ("tables", b'"float32",2')])
def test_a_figure_that_is_no_integer(
    name: str, field: bytes, number: bytes, sound: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(sound / name, tmp_path / "copy"))
    (place,) = folder.glob(READERS[name].file)
    text = lzma.decompress(place.read_bytes()) if name == "tables" else place.read_bytes()
    assert field in text
    changed = text.replace(field, field[:-1] + number)
    place.write_bytes(lzma.compress(changed) if name == "tables" else changed)
    if number.isdigit():
        READERS[name].read(folder)
    else:
        with pytest.raises(BadInput):
            READERS[name].read(folder)


def _drop_rights() -> None:
    """Make permissions hold for root, too, in the program that this process becomes."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_a_store_in_a_folder_that_cannot_be_written_is_readable(tmp_path: Path) -> None:
    store = tmp_path / "store"
    filled(store, [done(0, finding("no kernel", frames=["main", "f"]))])
    store.chmod(0o555)
    for command, code, words in (("clusters", 0, "no kernel"), ("pin c1", 2, "a readonly database")):
        told = subprocess.run(
            [sys.executable, "-m", "opsieve", *command.split(), "--store", store],
            preexec_fn=_drop_rights,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (told.returncode, words in told.stdout + told.stderr) == (code, True), told
    assert {entry.name for entry in store.iterdir()} == {"cases", "index.sqlite", "lock", "staging"}
