"""A program of the user's as a compiler: it reads and writes files, so it may be in any language, or use a
remote board.

The words of the command are `options["command"]` (backends/target.py explains them). The program runs in the
worker's sandbox and limits; a worker ends as the program does that a signal kills, so a crash is seen as that
of any other compiler.
"""

import faulthandler
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.compilers.worker_common import (
    Adapter,
    drop_fed_defaults,
    numpy_name,
    onnx_name,
    refuse_border,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# Types whose `.npy` files every reader of the format understands.
PLAIN = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)
# 65 is EX_DATAERR of sysexits.h, 77 the `skip` of automake's tests; 126 and 127 are what shells give for a
# program that cannot be run.
MEANINGS = {65: "rejected", 77: "unsupported", 126: "environment", 127: "environment"}
# A shell tells of what it ran and a signal killed by 128 and the signal's number.
SIGNALS = frozenset(
    [
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGSEGV,
        signal.SIGSYS,
    ]
)
# The number of characters of the program's last output in its message.
REPEATED = 4000

SCRIPT = """\
def run(model, inputs):
    import os
    import shutil
    import subprocess
    import tempfile

    import onnx.numpy_helper

    program = %s
    if not shutil.which(program):
        raise ImportError(f"there is no program {program}")
    graph = onnx.load_model_from_string(model).graph
    with tempfile.TemporaryDirectory() as folder:
        path, given, made = (os.path.join(folder, name) for name in ("model.onnx", "inputs", "outputs"))
        os.mkdir(given)
        os.mkdir(made)
        with open(path, "wb") as file:
            file.write(model)
        for place, item in enumerate(graph.input):
            if item.name in inputs:
                %s
        subprocess.run([program, %s], check=True)
        return {item.name: %s for place, item in enumerate(graph.output)}
"""
WRITES = {
    False: 'np.save(f"{given}/input_{place}.npy", inputs[item.name])',
    True: (
        "onnx.save_tensor(onnx.numpy_helper.from_array(inputs[item.name], item.name),"
        ' f"{given}/input_{place}.pb")'
    ),
}
READS = {
    False: 'np.load(f"{made}/output_{place}.npy")',
    True: 'onnx.numpy_helper.to_array(onnx.load_tensor(f"{made}/output_{place}.pb"))',
}
VARIABLES = {
    "{model}": "path",
    "{inputs}": "given",
    "{inputs:pb}": "given",
    "{outputs}": "made",
    "{outputs:pb}": "made",
}


class ExitCode(Exception):
    """The program ended with an exit code other than 0; the message has it, and the last printed line."""


class CannotStart(Exception):
    """The system does not run the program."""


class NoAnswer(Exception):
    """The program ended well, but its output file is missing or unreadable."""


class CommandBackend(Adapter):
    """The backend `command`."""

    name = "command"
    runs_command = True
    options: Mapping[str, tuple[str, ...]] = {}
    main_option = ""
    baseline: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    lacks: tuple[str, ...] = (
        "sequences and optionals that are fed or read; releases, passes: it is one program as it is",
    )

    def load(self) -> str:
        """Import onnx; the version of the program is unknown."""
        import onnx.numpy_helper  # noqa: F401

        return ""

    def prepare(self, request: "Request") -> "Run":
        """Write the model; the program does the rest when it runs."""
        import onnx

        model = onnx.load_model_from_string(request.model)
        drop_fed_defaults(model.graph, request)
        words = shlex.split(request.options["command"])
        files = {place: any(f"{{{place}:pb}}" in word for word in words) for place in ("inputs", "outputs")}
        if all(files.values()):
            refuse_border(model.graph, "TensorProto files", onnx_name, lambda name: True)
        else:
            refuse_border(model.graph, ".npy files", numpy_name, PLAIN.__contains__)
        home = tempfile.mkdtemp()
        path = os.path.join(home, "model.onnx")
        with open(path, "wb") as file:
            file.write(model.SerializeToString())
        fed = [item.name for item in model.graph.input]
        asked = [item.name for item in model.graph.output]

        def run(values: dict[str, Any]) -> dict[str, Any]:
            with tempfile.TemporaryDirectory(dir=home) as folder:
                places = {"{model}": path}
                for name in ("inputs", "outputs"):
                    os.mkdir(os.path.join(folder, name))
                    places[f"{{{name}}}"] = places[f"{{{name}:pb}}"] = os.path.join(folder, name)
                for place, name in enumerate(fed):
                    if name in values:
                        write(
                            os.path.join(folder, "inputs", f"input_{place}"),
                            name,
                            values[name],
                            files["inputs"],
                        )
                execute([fill_places(word, places) for word in words])
                stems = [os.path.join(folder, "outputs", f"output_{place}") for place in range(len(asked))]
                return {name: read(stem, files["outputs"]) for name, stem in zip(asked, stems, strict=True)}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify by the exit code, as docs/how-to/use-a-command.md promises."""
        kind = exception.rpartition(".")[2]
        if kind == "ExitCode":
            return MEANINGS.get(int(message.split(":")[0].split()[-1]), "error")
        return {
            "NotImplementedError": "unsupported",
            "CannotStart": "environment",
            "MemoryError": "out-of-memory",
        }.get(kind, "error")

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script."""
        command = options["command"]
        words = []
        for word in shlex.split(command):
            replaced = "".join(
                f".replace({name!a}, {value})" for name, value in VARIABLES.items() if name in word
            )
            words.append(VARIABLES.get(word) or f"{word!a}{replaced}")
        written, read = WRITES["{inputs:pb}" in command], READS["{outputs:pb}" in command]
        return SCRIPT % (words[0], written, ", ".join(words[1:]), read)


def fill_places(word: str, places: Mapping[str, str]) -> str:
    """Return a word with the paths in their places."""
    for name, path in places.items():
        word = word.replace(name, path)
    return word


def execute(words: list[str]) -> None:
    """Run the program to its end; its output goes to this process's. Raises ExitCode if it fails, CannotStart
    if it does not start.
    """
    before = os.fstat(
        2
    ).st_size  # the worker's log is a file, which holds what was printed since the last test
    try:
        code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise CannotStart(f"{words[0]}: {error.strerror}") from None
    killed = -code if code < 0 else code - 128
    # Only signals of crashes: a program may also exit with another code above 128 of its own.
    if code < 0 or killed in SIGNALS:
        die(killed)
    if code:
        size = os.fstat(2).st_size
        start = max(before, size - REPEATED)
        said = os.pread(2, size - start, start).decode("utf-8", "replace").strip() if size > start else ""
        raise ExitCode(f"exit code {code}: {said}" if said else f"exit code {code}")


def die(number: int) -> None:
    """End this process by a signal, and print nothing."""
    # The worker's own Python stack would be printed as if it were the program's.
    faulthandler.disable()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    # A signal that does not end a process by default.
    raise ExitCode(f"exit code {128 + number}")


def write(stem: str, name: str, value: Any, pb: bool) -> None:
    """Write one input to a file."""
    if not pb:
        np.save(stem + ".npy", np.asarray(value), allow_pickle=False)
        return
    from onnx import numpy_helper

    with open(stem + ".pb", "wb") as file:
        file.write(numpy_helper.from_array(np.asarray(value), name).SerializeToString())


def read(stem: str, pb: bool) -> Any:
    """Read one output from its file. Raises NoAnswer if the file is missing or unreadable."""
    path = stem + (".pb" if pb else ".npy")
    try:
        if not pb:
            # A pickle would run code of the file in this process.
            return np.load(path, allow_pickle=False)
        from onnx import TensorProto, numpy_helper

        with open(path, "rb") as file:
            return numpy_helper.to_array(TensorProto.FromString(file.read()))
    except Exception as error:  # noqa: BLE001
        # protobuf's and numpy's readers raise many kinds
        what = "it is not there" if isinstance(error, FileNotFoundError) else str(error)[:300]
        raise NoAnswer(f"{os.path.basename(path)} cannot be read: {what}") from None


BACKEND = CommandBackend()
