"""Run onnx's C++ shape inference and inliner for candidates in a process of its own.

Both may crash on a strange model (in onnx 1.23 inference reads through a null pointer at an EyeLike whose
input has no type), and a reducer makes strange models. The process imports onnx once and answers in a fork
that has given up files, network and processes, so that a crash costs a fork. It ends with its owner.

Run as `python -I -m opsieve.reducer.onnx_edit.onnx_subprocess`, it reads requests: a line of JSON with the
action and the number of bytes that follow, then a serialised model. Each answer is a line with the number of
bytes that follow, -1 for a refusal or a crash.
"""

import atexit
import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from opsieve.backends.workers.sandbox.helper_walls import drop_rights
from opsieve.gen.errors import BadInput

# The time limit of one answer, in seconds.
_SECONDS = 60
# Bytes of address space: inference can be made to propagate any size
_MEMORY = 8 << 30
# The exit status of a fork that read half a request.
_GARBLED = 3
# A process that somebody killed is started again once; one that cannot start ends each time.
_STARTS = 2


def infer_types(model: onnx.ModelProto, strict: bool, propagate: bool = False) -> onnx.ModelProto | None:
    """Return the model with all types that onnx's shape inference finds; `None` if inference refuses the
    model or crashes.

    With `strict` types are checked and every contradiction is a refusal; with `propagate` sizes are computed
    through nodes.
    """
    return _call(model, {"do": "infer", "strict": strict, "propagate": propagate})


def inline_functions(model: onnx.ModelProto, functions: Sequence[tuple[str, str]]) -> onnx.ModelProto | None:
    """Return the model with these local functions (domain, name) inlined; `None` if onnx's inliner refuses it
    or crashes.
    """
    return _call(model, {"do": "inline", "functions": list(functions)})


def outputs(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], known: Sequence[onnx.TensorProto], opset: int
) -> Mapping[str, onnx.TypeProto] | None:
    """Return the types of a node's outputs that its operator's inference derives, by name; `None` if it
    refuses the node or crashes.

    `types` are those of the inputs, `known` the values of some of them, by name; `opset` is that of the
    node's domain.
    """
    graph = onnx.GraphProto(node=[node], initializer=known)
    graph.input.extend(onnx.ValueInfoProto(name=name, type=type_) for name, type_ in types.items())
    found = _call(onnx.ModelProto(graph=graph), {"do": "outputs", "opset": opset})
    return None if found is None else {info.name: info.type for info in found.graph.output}


def _call(model: onnx.ModelProto, request: dict[str, Any]) -> onnx.ModelProto | None:
    try:
        data = model.SerializeToString()
    except (EncodeError, ValueError):
        # Protobuf cannot serialise a message of more than 2 GB.
        return None
    answer = HELPER.call(request, data)
    return None if answer is None else onnx.ModelProto.FromString(answer)


class _Helper:
    """The helper process, started by the first request; it answers one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process ahead of its first request."""
        with self._lock:
            self._process = self._process or _start_child()

    def call(self, request: dict[str, Any], data: bytes) -> bytes | None:
        """Return the answer to a request, `None` for a refusal. BadInput if the process ends twice without
        an answer: that says nothing about the model, because a crash costs a fork and is an answer.
        """
        with self._lock:
            # The process may have been killed for its memory. A second start tells whether that was chance.
            for _ in range(_STARTS):
                try:
                    return self._ask(request, data)
                except (OSError, ValueError):
                    self._end()
                except BaseException:
                    # An interruption would leave half a request, or the answer to another one, in the pipe.
                    self._end()
                    raise
        raise BadInput(
            "onnx's shape inference cannot run: its process ends as soon as it starts. Free memory and"
            f" processes, or repair the installation (try `{Path(sys.executable).name} -c 'import onnx'`)"
        )

    def _ask(self, request: dict[str, Any], data: bytes) -> bytes | None:
        process = self._process = self._process or _start_child()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**request, "bytes": len(data)}).encode() + b"\n" + data)
        process.stdin.flush()
        # An ended process gives an empty line, which `int` rejects with ValueError.
        size = int(process.stdout.readline())
        return process.stdout.read(size) if size >= 0 else None

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # The answering fork is not killed: it reads the end of the pipe and exits.
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            # Closing flushes unwritten data, which may fail.
            with contextlib.suppress(OSError):
                pipe.close()
        process.wait()


def _start_child() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-m", "opsieve.reducer.onnx_edit.onnx_subprocess"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


HELPER = _Helper()
atexit.register(HELPER.close)


def _main() -> None:
    """Fork a child that answers, and another one each time a child crashes, until the requests end."""
    # Ctrl-C reaches the whole process group; the owner decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # Imported before the fork, so that each new child starts without importing onnx again.
    for name in ("onnx.inliner", "onnx.shape_inference"):
        importlib.import_module(name)
    while True:
        child = os.fork()
        if not child:
            drop_rights()
            _serve(sys.stdin.buffer, sys.stdout.buffer)
        _, status = os.waitpid(child, 0)
        # Only a signal is a crash over a model. A child that exits by itself has no more requests, or
        # cannot parse them.
        if not os.WIFSIGNALED(status):
            os._exit(os.WEXITSTATUS(status))
        sys.stdout.buffer.write(b"-1\n")
        sys.stdout.buffer.flush()


def _serve(questions: BinaryIO, answers: BinaryIO) -> None:
    while line := questions.readline():
        try:
            request = json.loads(line)
            data = questions.read(request["bytes"])
        except (ValueError, KeyError):
            # The previous child died with a request half read, so what follows cannot be parsed.
            os._exit(_GARBLED)
        # SIGALRM without a handler kills this child, which the parent reports as a crash.
        signal.alarm(_SECONDS)
        try:
            answer = _answer_request(request, data).SerializeToString()
        except Exception:  # noqa: BLE001
            # Inference and inliner raise InferenceError, ValidationError, RuntimeError and more: all are
            # refusals.
            answer = None
        signal.alarm(0)
        answers.write(b"-1\n" if answer is None else b"%d\n" % len(answer) + answer)
        answers.flush()
    os._exit(0)


def _answer_request(request: dict[str, Any], data: bytes) -> onnx.ModelProto:
    import onnx.inliner
    import onnx.shape_inference

    if request["do"] == "infer":
        strict = request["strict"]
        return onnx.shape_inference.infer_shapes(
            data, check_type=strict, strict_mode=strict, data_prop=request["propagate"]
        )
    model = onnx.ModelProto.FromString(data)
    if request["do"] == "inline":
        return onnx.inliner.inline_selected_functions(model, [tuple(each) for each in request["functions"]])
    return _with_outputs(model, request["opset"])


def _with_outputs(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    node = model.graph.node[0]
    types = {info.name: info.type for info in model.graph.input}
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    found = onnx.shape_inference.infer_node_outputs(
        onnx.defs.get_schema(node.op_type, max(opset, 1), node.domain),
        node,
        types,
        known,
        opset_imports=[onnx.helper.make_opsetid(node.domain, opset)],
        ir_version=8,
    )
    infos = [onnx.ValueInfoProto(name=name, type=type_) for name, type_ in found.items()]
    return onnx.ModelProto(graph=onnx.GraphProto(output=infos))


if __name__ == "__main__":
    _main()
