"""The shim that writes native frames, in processes that die for it, and the build-ids of modules."""

import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from opsieve.backends.stacks import native
from opsieve.backends.stacks.death_message import summary
from opsieve.backends.stacks.frames import parse_log

# What dies: the source of a function `die`, called in a forked child as a worker's test would be.
DEATHS = {
    "segv": (signal.SIGSEGV, "ctypes.string_at(0)"),
    "abort": (signal.SIGABRT, "ctypes.CDLL(None).abort()"),
    "sent": (signal.SIGBUS, "os.kill(os.getpid(), 7)"),
    "null call": (signal.SIGSEGV, "ctypes.CFUNCTYPE(None)(0)()"),
    "double free": (
        signal.SIGABRT,
        (
            "c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; c.free.argtypes = [ctypes.c_void_p];"
            " p = c.malloc(64); c.free(p); c.free(p)"
        ),
    ),
    "smash": (signal.SIGABRT, "ctypes.CDLL(None).__stack_chk_fail()"),
    "thread": (
        signal.SIGSEGV,
        "import threading; t = threading.Thread(target=ctypes.string_at, args=(0,)); t.start(); t.join()",
    ),
    "overflow": (
        signal.SIGSEGV,
        (
            "sys.setrecursionlimit(10**8); c = ctypes.CDLL(None); a = (ctypes.c_int * 2)(2, 1); T ="
            " ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)\n    f = T(lambda x, y:"
            " c.qsort(a, 2, 4, f) or 0)\n    f(None, None)"
        ),
    ),
}
SCRIPT = """
import ctypes, faulthandler, os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
{imports}
def die():
    {body}
child = os.fork()
if not child:
    faulthandler.enable(2)
    assert ctypes.CDLL(sys.argv[1]).opsieve_install(2) == 0
    die()
    os._exit(99)
status = os.waitpid(child, 0)[1]
print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status))
"""
ORT = """
import numpy as np, onnxruntime
from onnx import TensorProto, helper
def model():
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.INT32, [3])
    graph = helper.make_graph([helper.make_node("Div", ["a", "b"], ["c"])], "g", [value("a"), value("b")], [value("c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
"""
ORT_BODY = """options = onnxruntime.SessionOptions(); options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
    session.run(None, {"a": np.full(3, -2**31, np.int32), "b": np.full(3, -1, np.int32)})"""
TVM = """
import numpy as np
tvm = __import__("tvm")
from onnx import TensorProto, helper
def model():
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.INT32, [3])
    graph = helper.make_graph([helper.make_node("Mod", ["a", "b"], ["c"])], "g", [value("a"), value("b")], [value("c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
"""
TVM_BODY = """from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx
    built = relax.build(relax.get_pipeline("zero")(from_onnx(model())), "llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())
    machine["main"](tvm.runtime.tensor(np.ones(3, np.int32)), tvm.runtime.tensor(np.zeros(3, np.int32)))"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("native")
    built = native.shim(cache)
    if built is None:
        pytest.skip(native.reason(cache))
    return built


def die(shim: Path, body: str, imports: str = "") -> tuple[int, str]:
    """The signal that a forked child died of, and what it wrote."""
    script = SCRIPT.format(body=body, imports=imports)
    done = subprocess.run(
        [sys.executable, "-c", script, str(shim)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=True,
    )
    return int(done.stdout), done.stderr


@pytest.mark.parametrize("name", DEATHS)
def test_deaths_are_told_and_kept(shim: Path, name: str) -> None:
    expected, body = DEATHS[name]
    number, log = die(shim, body)
    frames = parse_log(log, native.build_id)
    assert number == expected
    natives = [frame for frame in frames if frame.language == "native"]
    assert len(natives) >= 3, log
    assert any(frame.build_id for frame in natives)
    if name != "thread":
        assert any(frame.function in ("die", "<lambda>") for frame in frames if frame.language == "python"), (
            log
        )
    if name == "overflow":
        assert summary(log) == "stack overflow"
    if name == "null call":
        assert summary(log) == "call of a bad address"
        assert natives[-1].module == "<jit>"
        assert any(frame.function == "ffi_call" for frame in natives)


def test_a_real_crash_of_onnxruntime(shim: Path) -> None:
    number, log = die(shim, ORT_BODY, ORT)
    frames = parse_log(log, native.build_id)
    assert number == signal.SIGFPE
    assert "onnxruntime" in frames[-1].module
    assert frames[-1].offset > 0
    assert len(frames[-1].build_id) >= 32
    assert any(frame.function == "die" for frame in frames)
    assert parse_log(die(shim, ORT_BODY, ORT)[1], native.build_id)[-3:] == frames[-3:], (
        "the same crash has the same frames"
    )


@pytest.mark.slow(seconds=3)
def test_a_real_crash_of_tvm_is_unwound_through_generated_code(shim: Path) -> None:
    pytest.importorskip("tvm")
    number, log = die(shim, TVM_BODY, TVM)
    frames = parse_log(log, native.build_id)
    assert number == signal.SIGFPE
    assert frames[-1].module == "<jit>"
    assert any(frame.module.startswith("libtvm") and frame.build_id for frame in frames)
    assert any(frame.function == "die" for frame in frames)


def test_one_compilation_serves_all(shim: Path) -> None:
    before = shim.stat().st_mtime_ns
    native._build.cache_clear()
    assert native.shim(shim.parent) == shim
    assert native.reason(shim.parent) == ""
    assert shim.stat().st_mtime_ns == before
    assert sorted(shim.parent.iterdir()) == [shim]


def test_without_a_compiler_there_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.shim(tmp_path / "cache") is None
    assert "C compiler" in native.reason(tmp_path / "cache")


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "cc"
    fake.write_text("#!/bin/sh\necho 'error: no' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert native.shim(tmp_path / "cache") is None
    assert str(fake) in native.reason(tmp_path / "cache")


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf tells what is right")
def test_build_ids_are_those_that_readelf_tells() -> None:
    import numpy.linalg._umath_linalg as module

    for path in (os.path.realpath(sys.executable), module.__file__):
        told = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
        found = native.build_id(path)
        assert found == (told.partition("Build ID: ")[2].split() or [""])[0]


def test_paths_that_are_no_modules(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text("no")
    (tmp_path / "short").write_bytes(b"\x7fELF\x02\x01")
    for path in (
        tmp_path,
        tmp_path / "absent",
        tmp_path / "fifo",
        tmp_path / "text",
        tmp_path / "short",
        "a\0b",
        "/dev/zero",
    ):
        assert native.build_id(path) == ""


HEAD = struct.Struct("<16sHHIQQQIHHHHHH")


@given(
    st.binary(max_size=200), st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1)
)
def test_hostile_elf_files(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes, table: int, size: int, count: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile"
    path.write_bytes(HEAD.pack(b"\x7fELF\x02\x01", 3, 62, 1, 0, table, 0, 0, 64, size, count, 0, 0, 0) + rest)
    native._build_id.cache_clear()
    assert isinstance(native.build_id(path), str)


def test_an_id_of_a_made_module(tmp_path: Path) -> None:
    note = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(range(20))
    header = struct.pack("<II6Q", 4, 0, 120, 0, 0, len(note), len(note), 4)
    path = tmp_path / "module.so"
    path.write_bytes(HEAD.pack(b"\x7fELF\x02\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0) + header + note)
    assert native.build_id(path) == bytes(range(20)).hex()
