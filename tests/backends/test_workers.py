"""Workers: whatever a program or a compiler does is an observation, the next test runs, and nothing is left
behind.
"""

import itertools
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import X, chain, program
from repository import SUPPORT

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.stacks import native
from opsieve.backends.workers.inside import wire
from opsieve.backends.workers.inside.processes import find_children
from opsieve.backends.workers.observe import read_reply
from opsieve.backends.workers.workers import COMPILED, GROWTH, Test, Workers
from opsieve.backends.workers.zygotes.shared_zygotes import SharedZygotes
from opsieve.backends.workers.zygotes.zygote import Death, Limits, Zygote

RELU = chain("Relu", "Tanh")
ORT = resolve("onnxruntime")


def fake(faults: str) -> ResolvedTarget:
    return resolve(f"fake:faults={faults}")


def processes_of(folder: Path) -> list[str]:
    """Command lines of the worker processes whose scratch lies in `folder`."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "child.py" in command and str(folder) in command:
            found.append(command)
    return found


def test_a_program_runs(workers: Workers) -> None:
    seen = workers.observe(ORT, RELU, X)
    assert seen.outcome == "ok"
    assert seen.outputs is not None
    np.testing.assert_allclose(seen.outputs["y"], np.tanh(np.maximum(X["x"], 0)), rtol=1e-6)
    assert set(seen.seconds) >= {"import", "compile", "run"}
    assert seen.version
    assert seen.knobs["OMP_NUM_THREADS"] == "1"


# The fault drill: (fault, limits changed, outcome, stage, signal, what the message tells)
DRILL = [
    ("crash", {}, "crash", "compile", signal.SIGSEGV, "Segmentation fault"),
    ("abort", {}, "crash", "compile", signal.SIGABRT, "Abort"),
    ("fpe/run", {}, "crash", "run", signal.SIGFPE, "Floating"),
    ("overflow", {}, "crash", "compile", signal.SIGSEGV, "stack overflow"),
    ("exit/import", {}, "crash", "import", 0, "exit code 0"),
    ("hang", {"seconds": 0.5}, "hang", "compile", 0, "0.5 s"),
    ("spin/run", {"seconds": 0.5}, "hang", "run", 0, "0.5 s"),
    ("ignore-term", {"seconds": 0.5}, "hang", "compile", 0, "0.5 s"),
    ("memory", {"memory": 1 << 30}, "out-of-memory", "compile", 0, ""),
    ("print", {}, "error", "compile", signal.SIGXFSZ, "wrote more than 16 MiB"),
    ("close", {}, "ok", "run", 0, ""),
]


@pytest.mark.parametrize(
    ("fault", "limits", "outcome", "stage", "number", "told"), DRILL, ids=[row[0] for row in DRILL]
)
def test_the_fault_drill(
    workers: Workers, fault: str, limits: dict[str, int], outcome: str, stage: str, number: int, told: str
) -> None:
    before = workers.limits
    workers.limits = replace(before, **limits)
    try:
        target = fake(fault + "@Relu" if "/" not in fault else fault.replace("/", "@Relu/"))
        seen = workers.observe(target, RELU, X, fresh=True)
    finally:
        workers.limits = before
    assert (seen.outcome, seen.stage, seen.signal) == (outcome, stage, number)
    assert told.lower() in seen.message.lower()
    assert workers.observe(target, chain("Tanh"), X).outcome == "ok"


def test_a_crash_tells_python_frames(workers: Workers) -> None:
    seen = workers.observe(fake("crash@Relu"), RELU, X)
    functions = [frame.function for frame in seen.frames if frame.language == "python"]
    assert "misbehave" in functions
    assert functions.index("misbehave") > functions.index("prepare")  # innermost last


@pytest.mark.skipif(native.shim() is None, reason="no C compiler on this machine, so no native frames")
def test_a_crash_tells_native_frames(workers: Workers) -> None:
    seen = workers.observe(fake("abort@Relu"), RELU, X)
    modules = {frame.module for frame in seen.frames if frame.language == "native"}
    assert any(module.startswith("libc") for module in modules)


def test_a_hang_tells_where(workers: Workers) -> None:
    with Workers(Limits(seconds=0.5)) as quick:
        seen = quick.observe(fake("hang@Relu"), RELU, X)
    assert "misbehave" in [frame.function for frame in seen.frames]


def test_an_exception_tells_its_class_message_and_frames(workers: Workers) -> None:
    seen = workers.observe(fake("error@Relu>Tanh"), RELU, X)
    assert seen.outcome == "error"
    assert seen.exception.endswith("FakeError")
    assert "fuse Relu_Tanh" in seen.message
    assert [frame.function for frame in seen.frames][-1].endswith("act")
    assert not any(frame.file.endswith("child.py") for frame in seen.frames)
    assert "FakeError" in seen.traceback


def test_tests_behind_a_crash_in_the_same_frame_still_run(workers: Workers) -> None:
    target = fake("crash@Relu>Tanh+error@Exp")
    programs = [chain("Tanh"), RELU, chain("Exp"), chain("Relu"), RELU, chain("Neg")] * 9
    seen = [answer.outcome for answer in workers.observe_many(target, [Test(each, X) for each in programs])]
    assert seen == ["ok", "crash", "error", "ok", "crash", "ok"] * 9


def test_many_small_and_large_tests_come_back_in_order(workers: Workers) -> None:
    sizes = [1, 500_000, 3, 2_000_000, 7] * 4
    double = program("g (float[N] x) => (float[N] y) { y = Add(x, x) }")
    tests = [Test(double, {"x": np.full(size, number, np.float32)}) for number, size in enumerate(sizes)]
    for number, (size, seen) in enumerate(zip(sizes, workers.observe_many(ORT, tests), strict=True)):
        assert seen.outputs is not None
        assert seen.outputs["y"].shape == (size,)
        assert seen.outputs["y"][-1] == 2 * number


def test_a_caller_that_stops_listening_does_not_confuse_the_next(workers: Workers) -> None:
    answers = workers.observe_many(ORT, [Test(RELU, X)] * 40)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    seen = workers.observe(ORT, chain("Neg"), X)
    assert seen.outputs is not None
    np.testing.assert_array_equal(seen.outputs["y"], -X["x"])


def test_a_fresh_fork_forgets_what_a_persistent_worker_keeps(workers: Workers) -> None:
    target = fake("leak@Relu")
    first = workers.observe(target, RELU, X)
    again = workers.observe(target, RELU, X)
    fresh = workers.observe(target, RELU, X, fresh=True)
    assert again.peak_memory > first.peak_memory + (32 << 20)
    assert fresh.peak_memory < again.peak_memory


def test_a_worker_that_grows_is_replaced() -> None:
    with Workers() as workers:
        target = fake("leak@Relu")
        peaks = [workers.observe(target, RELU, X).peak_memory for _ in range(12)]
    assert max(peaks) < peaks[0] + GROWTH + (128 << 20), "what one test takes may come on top"
    assert any(later < earlier for earlier, later in itertools.pairwise(peaks))


def test_outputs_over_the_limit_are_no_outputs() -> None:
    with Workers(Limits(output=1 << 20)) as workers:
        large = program("g (int64[1] s) => (float[N] y) { y = ConstantOfShape(s) }")
        seen = workers.observe(ORT, large, {"s": np.array([1 << 20], np.int64)})
        assert seen.outcome == "out-of-memory"
        assert "over the limit" in seen.message
        assert workers.observe(ORT, RELU, X).outcome == "ok"


def test_what_is_printed_is_kept_with_the_test_that_printed_it(workers: Workers) -> None:
    target = fake("slow@Exp+unsupported@Tanh")
    assert workers.observe(target, chain("Tanh"), X).log == ""


def test_values_of_every_kind_arrive(workers: Workers) -> None:
    import ml_dtypes

    texts = program("g (string[2] x) => (string[2] y) { y = Identity(x) }")
    seen = workers.observe(ORT, texts, {"x": np.array(["ä\n", ""], dtype=object)})
    assert seen.outputs is not None
    assert seen.outputs["y"].tolist() == ["ä\n", ""]
    lists = program("g (seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence <axis=0> (x) }")
    seen = workers.observe(ORT, lists, {"x": [np.ones(2, np.float32), np.zeros(1, np.float32)]})
    assert seen.outputs is not None
    assert seen.outputs["y"].tolist() == [1, 1, 0]
    scalar = program("g (float x) => (float y) { y = Neg(x) }")
    seen = workers.observe(ORT, scalar, {"x": np.array(2.0, np.float32)})
    assert seen.outputs is not None
    assert seen.outputs["y"].shape == ()
    empty = program("g (float[0, 3] x) => (float[0, 3] y) { y = Neg(x) }")
    seen = workers.observe(ORT, empty, {"x": np.zeros((0, 3), np.float32)})
    assert seen.outputs is not None
    assert seen.outputs["y"].shape == (0, 3)
    for kind, dtype in [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16), ("int4", ml_dtypes.int4)]:
        cast = program(f"g ({kind}[3] x) => (float[3] y) {{ y = Cast <to=1> (x) }}", opset=21, ir=10)
        seen = workers.observe(ORT, cast, {"x": np.array([1, -2, 3]).astype(dtype)})
        assert seen.outputs is not None, seen.message
        assert seen.outputs["y"].tolist() == [1, -2, 3]
        back = program(
            f"g (float[3] x) => ({kind}[3] y) {{ y = Cast <to={cast_number(kind)}> (x) }}", opset=21, ir=10
        )
        seen = workers.observe(ORT, back, {"x": np.array([1, -2, 3], np.float32)})
        assert seen.outputs is not None, seen.message
        assert seen.outputs["y"].astype(np.float32).tolist() == [1, -2, 3]


def cast_number(kind: str) -> int:
    return {"bfloat16": 16, "float16": 10, "int4": 22}[kind]


def test_an_absent_optional_arrives(workers: Workers) -> None:
    text = "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }"
    seen = workers.observe(resolve("reference"), program(text), {"x": None})
    assert seen.outputs is not None
    assert not seen.outputs["y"]


def test_a_model_of_a_newer_ir_version_is_asked_in_an_older_one(workers: Workers) -> None:
    newer = program("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", opset=18, ir=14)
    assert workers.observe(ORT, newer, X).outcome == "ok"
    assert next(workers.observe_many(ORT, [Test(newer, X, as_is=True)])).outcome == "environment"


def test_a_newer_opset_is_lowered_where_the_operators_are_the_same(workers: Workers) -> None:
    seen = workers.observe(
        ORT, program("g (float[2, 3] x) => (float[2, 3] y) { y = Tanh(x) }", opset=28, ir=14), X
    )
    assert seen.outcome == "ok", seen.message
    assert "opset was lowered" in " ".join(seen.notes)


def test_a_compiler_that_is_not_there_is_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    # what other uses of uv left there would answer
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path))
    with Workers(offline=True) as workers:
        seen = workers.observe(resolve("onnxruntime==0.0.1"), RELU, X)
    assert (seen.outcome, seen.outputs) == ("environment", None)
    assert seen.message.startswith("onnxruntime 0.0.1 could not be installed for Python ")
    assert "nothing may be downloaded (offline)" in seen.message


DRILL_BACKEND = """
import os, socket, struct, subprocess, sys, tempfile

class Drill:
    def load(self):
        return "1"

    def prepare(self, request):
        return lambda inputs: getattr(self, request.options["do"])()

    def classify(self, stage, exception, message):
        return "error"

    def scribble(self, data):
        for fd in range(3, 40):
            try:
                socket.socket(fileno=os.dup(fd)).send(data)
            except OSError:
                pass
        return {}

    def garbage(self):
        return self.scribble(b"x" * 1000)

    def nested(self):
        text = b"[" * 100000
        return self.scribble(struct.pack(">4sIQ", b"OPSV", len(text), 0) + text)

    def list(self):
        return self.scribble(struct.pack(">4sIQ", b"OPSV", 2, 0) + b"[]")

    def giant(self):
        return self.scribble(struct.pack(">4sIQ", b"OPSV", 2, 1 << 50) + b"{}")

    def close(self):
        os.closerange(0, 256)
        return {}

    def escape(self):
        code = "import time; time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        with open(os.path.join(tempfile.gettempdir(), "left"), "w") as file:
            file.write("x")
        os.environ["GRANDCHILD"] = str(child.pid)
        print("grandchild", child.pid, flush=True)
        os.abort()

BACKEND = Drill()
"""


@pytest.fixture
def drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], tuple[dict[str, Any], Any] | Death]]:
    """Ask a worker of a backend that attacks its own process to do one thing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path.parent / f"{tmp_path.name}.py"
    file.write_text(DRILL_BACKEND)
    zygote = Zygote(
        ("drill", str(file), "BACKEND"), Path(sys.executable), [], dict(os.environ), native.shim()
    )
    limits = Limits(seconds=10.0)

    def ask(action: str) -> tuple[dict[str, Any], Any] | Death:
        worker = zygote.fork_worker(limits)
        header = {"model": 0, "span": 0, "inputs": {}, "options": {"do": action}, "repeat": 0}
        worker.submit_frame([wire.encode_frame({"tests": [header]}, [])], 1)
        return worker.read_reply(limits.seconds)

    yield ask
    zygote.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("action", ["garbage", "nested", "list", "giant", "close"])
def test_a_worker_that_scribbles_on_its_channel_is_ended(
    drill: Callable[[str], tuple[dict[str, Any], Any] | Death], action: str
) -> None:
    answer = drill(action)
    assert isinstance(answer, Death)
    assert answer.stage == "run"


def test_what_a_program_started_in_a_session_of_its_own_is_ended_with_it(
    drill: Callable[[str], tuple[dict[str, Any], Any] | Death],
) -> None:
    answer = drill("escape")
    assert isinstance(answer, Death)
    assert os.WTERMSIG(answer.status) == signal.SIGABRT
    number = re.search(r"grandchild (\d+)", answer.log)
    assert number is not None
    try:
        watched = os.pidfd_open(int(number[1]))
    except ProcessLookupError:
        return
    assert select.select([watched], [], [], 20)[0]
    os.close(watched)


def test_a_reply_that_makes_no_sense_is_an_error_of_the_program() -> None:
    for reply in (
        {},
        {"ok": True, "seconds": {}, "peak": 0},
        {"ok": True, "seconds": 3, "peak": [], "outputs": 1},
    ):
        seen = read_reply(ORT, "1", reply, memoryview(b""))
        assert (seen.outcome, seen.exception) == ("error", "GarbledAnswer")


def test_two_threads_may_ask_at_once(workers: Workers) -> None:
    outcomes: list[str] = []

    def ask(target: ResolvedTarget) -> None:
        outcomes.extend(workers.observe(target, RELU, X).outcome for _ in range(20))

    threads = [threading.Thread(target=ask, args=(target,)) for target in (ORT, ORT, resolve("reference"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["ok"] * 60


@pytest.mark.slow(seconds=3)
def test_compilers_unused_for_long_are_closed_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("opsieve.backends.workers.workers.COMPILERS", 1)
    with Workers(zygotes=SharedZygotes()) as workers:
        for target in (ORT, resolve("reference"), resolve("checker"), ORT):
            assert workers.observe(target, RELU, X).outcome == "ok"
            assert len(os.listdir(tmp_path)) == 1


def test_the_checker_shares_the_zygote_of_the_reference() -> None:
    with Workers() as workers:
        assert workers.observe(resolve("reference"), RELU, X).outputs is not None
        assert workers.observe(resolve("checker"), RELU, X).outputs == {}
        assert workers.observe(resolve("checker"), chain("Nonsense"), X).outcome == "rejected"
        assert len(workers._zygotes) == 1
        assert workers.version(resolve("checker")) == workers.version(resolve("reference"))


def test_what_is_compiled_only_is_not_run() -> None:
    with Workers() as workers:
        seen = workers.observe(ORT, RELU, X, repeat=COMPILED)
        assert (seen.outcome, seen.outputs) == ("ok", {})
        assert "run" not in seen.seconds
        assert set(workers.observe(ORT, RELU, X).outputs or {}) == {"y"}


def test_a_zygote_that_died_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Workers(zygotes=SharedZygotes()) as workers:
        assert workers.observe(ORT, RELU, X).outcome == "ok"
        (zygote,) = workers._zygotes.values()
        zygote._process.kill()
        zygote._process.wait()
        assert workers.observe(ORT, RELU, X).outcome == "ok"
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_behind_on_a_normal_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = set(os.listdir("/dev/shm"))
    with Workers(Limits(seconds=0.5), zygotes=SharedZygotes()) as workers:
        for fault in ("crash", "hang", "print", "memory"):
            workers.observe(fake(f"{fault}@Relu"), RELU, X)
        workers.observe(ORT, RELU, X)
        assert processes_of(tmp_path)
        assert os.listdir(tmp_path)
    assert processes_of(tmp_path) == []
    assert os.listdir(tmp_path) == []
    new = set(os.listdir("/dev/shm")) - shared
    assert not [name for name in new if not name.startswith("sem.")]  # semaphores are other processes'
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in find_children()]
    assert "Z" not in states


def test_nothing_is_left_behind_when_the_main_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, threading\n"
        "from opsieve.backends.workers.workers import Workers\n"
        "from opsieve.backends.registry import resolve\n"
        "from models import X, chain\n"
        "w = Workers()\n"
        "w.observe(resolve('onnxruntime'), chain('Relu'), X)\n"
        "hang = lambda: w.observe(resolve('fake:faults=spin@Relu'), chain('Relu'), X)\n"
        "threading.Thread(target=hang, daemon=True).start()\n"
        "w.version(resolve('reference'))\n"
        "import time\n"
        "while len(w._zygotes) < 2: time.sleep(0.01)\n"
        "print(' '.join(str(z._process.pid) for z in w._zygotes.values()), flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as main:
        assert main.stdout is not None
        zygotes = [int(pid) for pid in main.stdout.readline().split()]
        assert len(zygotes) == 2
        watched = [os.pidfd_open(pid) for pid in zygotes]
        main.kill()
    for fd in watched:  # readable once the process has ended
        assert select.select([fd], [], [], 20)[0]
        os.close(fd)
    assert os.listdir(tmp_path) == []
