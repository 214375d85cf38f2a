"""Libraries that count by themselves (SanitizerCoverage): their counters are read, also those of a worker
that died.

The C compiler may be gcc, which cannot instrument as clang does: the library says in C what clang would have
added. Where a clang is on PATH, it makes the same library by its own instrumentation.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import X, chain

from opsieve.backends.coverage import callbacks, tracer
from opsieve.backends.coverage.coverage import Coverage, Probes
from opsieve.backends.coverage.elf import Library
from opsieve.backends.coverage.notes import Notes
from opsieve.backends.coverage.points import points_of
from opsieve.backends.coverage.sources import Names
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.builds import allow
from opsieve.backends.target import Target
from opsieve.backends.workers.workers import Test, Workers

CODE = """
int twice(int x) { B(0); return 2 * x; }
int sign(int x) { B(1); if (x < 0) { B(2); return -1; } B(3); return x > 0; }
void die(int x) { B(4); twice(x); *(volatile int *)0 = x; }
"""
# What clang adds: a counter for each block, their addresses and whether they are a function's entry, and
# calls at loading.
GUARDED = """
typedef unsigned long word;
int twice(int); int sign(int); void die(int);
extern KIND __start_SECTION[], __stop_SECTION[];
__attribute__((section("SECTION"), used)) static KIND counters[5];
__attribute__((section("__sancov_pcs"), used)) static word table[10] =
    {(word)twice, 1, (word)sign, 1, (word)sign + 1, 0, (word)sign + 2, 0, (word)die, 1};
void INIT(KIND *begin, KIND *end); void __sanitizer_cov_pcs_init(const word *begin, const word *end);
void __sanitizer_cov_trace_pc_guard(KIND *guard);
__attribute__((constructor)) static void begin(void) { INIT(counters, counters + 5); __sanitizer_cov_pcs_init(table, table + 10); }
"""
KINDS = {
    "inline-8bit-counters": (
        "__sancov_cntrs",
        "unsigned char",
        "__sanitizer_cov_8bit_counters_init",
        "counters[k]++",
    ),
    "inline-bool-flag": (
        "__sancov_bools",
        "unsigned char",
        "__sanitizer_cov_bool_flag_init",
        "counters[k] = 1",
    ),
    "trace-pc-guard": (
        "__sancov_guards",
        "unsigned",
        "__sanitizer_cov_trace_pc_guard_init",
        "__sanitizer_cov_trace_pc_guard(&counters[k])",
    ),
}
FLAGS = [
    "-O1",
    "-shared",
    "-fPIC",
    "-fno-inline",
    "-fasynchronous-unwind-tables",
    "-Wl,--build-id",
    "-nostartfiles",
]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc") or "64" not in __import__("platform").machine(),
    reason="needs a C compiler on x86-64 Linux",
)


def source(kind: str) -> str:
    """The library in C with what clang's instrumentation of that kind would add."""
    section, ctype, init, count = KINDS[kind]
    head = GUARDED.replace("SECTION", section).replace("KIND", ctype).replace("INIT", init)
    return f"{head}\n#define B(k) {count}\n{CODE}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("counted")

    def make(kind: str) -> Path:
        library = folder / f"lib{kind}.so"
        if not library.exists():
            (folder / f"{kind}.c").write_text(source(kind))
            subprocess.run(["cc", *FLAGS, "-s", f"{kind}.c", "-o", library.name], cwd=folder, check=True)
        return library

    return make


def counted(library: Path, cache: Path, do: str, granularity: str = "blocks") -> tuple[Any, list[int]]:
    """What the text `do` left in `answer` in a process of its own, and the addresses of the probes, from the
    first function on.
    """
    points = points_of(library, granularity, cache)
    assert points.counters is not None
    facts = Probes([points]).libraries()[0]
    told = {"library": str(library), "do": do, "callbacks": callbacks.__file__, **facts}
    run = subprocess.run(
        [sys.executable, Path(__file__).with_name("traced.py"), tracer.__file__, json.dumps(told)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout), [int(at) for at in points.addresses]


@pytest.mark.parametrize("kind", KINDS)
def test_counters_say_what_a_call_reached_and_what_was_new(
    kind: str, made: Callable[[str], Path], tmp_path: Path
) -> None:
    do = "probes.plant(); answer = []\n"
    do += "for call, x in ((library.sign, 1), (library.sign, -1), (library.twice, 1), (library.twice, 2)):\n"
    do += "    call(x); probes.collect(); answer.append(numbers())"
    answer, addresses = counted(made(kind), tmp_path, do)
    assert len(addresses) == 5
    assert [len(item) for item in answer] == [2, 3, 4, 4]  # each is noted once


def test_all_that_a_run_reaches_can_be_asked_for_again(made: Callable[[str], Path], tmp_path: Path) -> None:
    do = (
        "answer = []\nfor x in (1, -1, 1):\n    probes.begin_again(); library.sign(x); probes.collect(True);"
        " answer.append(numbers())"
    )
    (first, other, again), _ = counted(made("inline-8bit-counters"), tmp_path, do)
    assert first == again
    assert set(first) ^ set(other)


def test_functions_are_the_blocks_at_their_entries(made: Callable[[str], Path], tmp_path: Path) -> None:
    library = made("inline-8bit-counters")
    do = "probes.plant(); library.sign(-1); library.twice(1); probes.collect(); answer = numbers()"
    answer, addresses = counted(library, tmp_path, do, "functions")
    names = Names(Library(library))
    assert sorted(names.symbol(addresses[at]) for at in answer) == ["sign", "twice"]
    assert len(addresses) == 3


def test_what_a_crashed_worker_reached_is_in_its_counters(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    do = "probes.plant(); answer = child(lambda: (library.sign(1), probes.collect(), library.die(1)))"
    points = points_of(made("inline-8bit-counters"), "functions", tmp_path)
    answer, addresses = counted(points.library, tmp_path, do, "functions")
    names = Names(Library(points.library))
    assert answer["status"] & 127 == signal.SIGSEGV
    assert [names.symbol(addresses[at]) for at in answer["reached"]] == ["sign"]
    left = Probes([points])
    fresh = left.collect(memoryview(bytes.fromhex(answer["pages"])))
    assert sorted(names.symbol(addresses[at]) for at in fresh) == ["die", "twice"]
    assert left.collect(memoryview(bytes.fromhex(answer["pages"]))) == ()
    assert left.count == 2


def test_a_file_of_notes_has_room_for_the_counters(made: Callable[[str], Path], tmp_path: Path) -> None:
    probes = Probes([points_of(made("trace-pc-guard"), "blocks", tmp_path)])
    assert probes.counter_pages in (4096, 8192)
    notes = Notes(probes.total, probes.counter_pages)
    with notes.counters() as pages:
        assert probes.collect(pages) == ()
    notes.close()


def test_guards_that_a_library_counts_itself_are_left_to_it(tmp_path: Path) -> None:
    own = (
        "\nvoid INIT(unsigned *a, unsigned *b) {}\nvoid __sanitizer_cov_trace_pc_guard(unsigned *guard) {}\n"
    )
    (tmp_path / "own.c").write_text(
        source("trace-pc-guard") + own.replace("INIT", KINDS["trace-pc-guard"][2])
    )
    subprocess.run(["cc", *FLAGS, "own.c", "-o", "libown.so"], cwd=tmp_path, check=True)
    assert points_of(tmp_path / "libown.so", "functions", tmp_path).counters is None


def test_a_library_without_a_table_of_addresses_gets_probes(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    text = source("inline-8bit-counters").replace('section("__sancov_pcs"), ', "")
    (tmp_path / "bare.c").write_text(text)
    subprocess.run(["cc", *FLAGS, "bare.c", "-o", "libbare.so"], cwd=tmp_path, check=True)
    assert points_of(tmp_path / "libbare.so", "functions", tmp_path).counters is None


@pytest.mark.skipif(not shutil.which("clang"), reason="needs clang")
@pytest.mark.parametrize("kind", KINDS)
def test_what_clang_instruments_is_read(kind: str, tmp_path: Path) -> None:
    (tmp_path / "plain.c").write_text("static volatile int sink;\n#define B(k) sink = k\n" + CODE)
    library = tmp_path / "libplain.so"
    command = ["clang", *FLAGS, f"-fsanitize-coverage={kind},pc-table", "plain.c", "-o", library.name]
    subprocess.run(command, cwd=tmp_path, check=True)
    do = (
        "probes.plant(); answer = []\nfor x in (1, -1):\n    library.sign(x); probes.collect();"
        " answer.append(numbers())"
    )
    (first, both), addresses = counted(library, tmp_path, do)
    names = Names(Library(library))
    assert {names.symbol(names.function(addresses[at])) for at in both} == {"sign"}
    assert set(first) < set(both)
    assert list(np.diff(addresses) > 0) == [True] * (len(addresses) - 1)


CALLS = """

import ctypes
_counted = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libcounted.so"))
_plain = optimize


def optimize(model, *given):
    names = {node.op_type for node in model.graph.node}
    _counted.sign(-1 if "Tanh" in names else 1)
    if "Exp" in names:
        _counted.die(1)
    return _plain(model, *given)
"""


@pytest.fixture
def build(made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResolvedTarget:
    """A build of onnxoptimizer with a library that counts; its own extension is as it was released."""
    pytest.importorskip("onnxoptimizer")
    package = tmp_path / "tree" / "onnxoptimizer"
    found = find_spec("onnxoptimizer")
    assert found is not None
    assert found.origin is not None
    shutil.copytree(
        Path(found.origin).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.h", "*.cc")
    )
    shutil.copy(made("inline-8bit-counters"), package / "libcounted.so")
    with (package / "__init__.py").open("a") as init:
        init.write(CALLS)
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "releases"))
    target = resolve(str(Target("onnxoptimizer", build=str(package.parent))))
    allow(target)
    return target


def test_workers_tell_of_counters_and_probes_alike(build: ResolvedTarget, tmp_path: Path) -> None:
    coverage = Coverage("functions", ["onnxoptimizer"], tmp_path / "points")
    with Workers(coverage=coverage) as workers:
        answers = list(
            workers.observe_many(
                build, [Test(chain(name), X) for name in ("Relu", "Tanh", "Relu", "Exp", "Exp")]
            )
        )
    assert [item.outcome for item in answers] == ["ok", "ok", "ok", "crash", "crash"]
    probes = coverage.maps()[build.zygote]
    assert isinstance(probes, Probes)
    both = {item.library.name: item for item in probes.reached()}
    assert both["libcounted.so"].probes == 3
    # sign, and what the worker that died of Exp left: die and twice
    assert len(both["libcounted.so"].addresses) == 3
    assert sum(len(item.addresses) for item in both.values()) > 10  # of its own extension
    first = min(
        item for points, item in zip(probes.points, probes._firsts.tolist(), strict=False) if points.counters
    )
    ours = [sum(number in range(first, first + 3) for number in item.reached or ()) for item in answers]
    assert ours == [1, 0, 0, 2, 0]


def test_a_build_that_counts_loads_without_coverage_too(build: ResolvedTarget) -> None:
    with Workers() as workers:
        assert workers.observe(build, chain("Relu"), X).outcome == "ok"
