"""tinygrad, through its own ONNX runner.

https://docs.tinygrad.org/ describes it. Its default device here is `python`, which interprets the code that
tinygrad generates and needs nothing beside it; the others make machine code with `clang`, LLVM or tinygrad's
own assembler, and all three want a `clang` on PATH. Nothing is compiled before it runs: `compile` builds the
lazy graph, kernels are generated in the stage `run`.
"""

import contextlib
import inspect
import signal
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from opsieve.backends.compilers.worker_common import (
    Adapter,
    numpy_name,
    read_onnx,
    version_of,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

DEVICES = {"python": "PYTHON", "clang": "CPU:CLANG", "llvm": "CPU:LLVM", "x86": "CPU:X86"}
# In seconds: half of a worker's default limit for a test.
PATIENCE = 10
TYPES = frozenset(
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
        "bfloat16",
        "float32",
    ]
    + ["float64"]
)
# Containers that the runner takes and gives as lists and None.
NESTED = ("optional_type", "sequence_type")

# What a message means, first match wins. A Python error that tinygrad does not explain is left an error.
MEANINGS: Tuple[Tuple[str, str], ...] = (
    ("environment", r"No such file or directory: 'clang|No renderer for \w+ is available|library not found"),
    ("out-of-memory", r"[Cc]annot allocate memory|Unable to allocate|MemoryError"),
    # Attributes are arguments of its functions: one that came with a later version of an operator is unknown
    # to them.
    ("unsupported", r"get_onnx_ops\.<locals>\.\w{1,80}\(\) got an unexpected keyword argument"),
    ("unsupported", r"sequence must be homogeneous|invalid coordinate_transformation_mode="),
    ("unsupported", r"is not a valid (?:OnnxDataType|AttributeType|Domain)|is not supported for domain"),
    (
        "unsupported",
        r"[Uu]nsupported|[Nn]ot (?:yet |currently )?(?:supported|implemented)|does(?:n't| not) support",
    ),
    ("unsupported", r"\b[Oo]nly \S{1,60} (?:is|are) supported|cannot cross the border of a model"),
)

# Settings are read when tinygrad is imported. A result that is a constant lies nowhere until it is cloned.
BRIEF = """\
import os
os.environ.update(DEV="%(DEV)s", NOOPT="%(NOOPT)d")
from tinygrad import Device, Tensor
from tinygrad.nn.onnx import OnnxRunner
runner = OnnxRunner(Tensor(model, device="PYTHON"))
results = runner({name: Tensor(value.ravel()).reshape(value.shape) for name, value in inputs.items()})
outputs = {name: value.clone(Device.DEFAULT).numpy() for name, value in results.items()}
"""
SCRIPT = """\
def run(model, inputs):
    from tinygrad import Tensor
    from tinygrad.helpers import Context
    from tinygrad.nn.onnx import OnnxRunner

    names = [item.name for item in onnx.load_model_from_string(model).graph.output]
    with Context(DEV=%(DEV)r, NOOPT=%(NOOPT)r):
        runner = OnnxRunner(Tensor(model, device="PYTHON"))
        results = runner({name: to_tensor(inputs.get(name)) for name in runner.graph_inputs})
        return {name: to_value(results[name]) for name in names}
"""


class TinygradOnnx(Adapter):
    """The backend `tinygrad`."""

    name = "tinygrad"
    package = "tinygrad"
    extra = "tinygrad"
    # onnx reads the model's declarations; tinygrad itself has no dependencies.
    requirements = ("onnx", "ml_dtypes")
    meanings = MEANINGS
    options: Mapping[str, Tuple[str, ...]] = {"device": tuple(DEVICES), "optimise": ("on", "off")}
    main_option = "device"
    variables = ("TINYGRAD_*", "DEBUG", "BEAM", "JIT", "NOOPT", "CACHELEVEL", "CPU*", "CLANG*", "LLVM*")
    baseline: Mapping[str, str] = {"optimise": "off"}
    # Its settings are read from the environment: those that a user has for other work shall not change an
    # answer.
    environment: Mapping[str, str] = {
        "DEV": "PYTHON",
        "NOOPT": "0",
        "BEAM": "0",
        "WINO": "0",
        "DEBUG": "0",
        "FLOAT16": "0",
        "CACHELEVEL": "0",
        "PARALLEL": "0",
        "NUM_CPU_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    milliseconds: Mapping[str, float] = {"onnx": 1800.0}
    lacks: Tuple[str, ...] = (
        "strings; complex numbers, float8 and 4-bit values anywhere in a model",
        "Loop, Scan and more operators: it says so, operator by operator",
    )

    def load(self) -> str:
        """Import tinygrad; a device, which may start threads, is opened by each worker."""
        import onnx  # noqa: F401
        import tinygrad.nn.onnx
        import tinygrad.runtime.ops_python  # noqa: F401

        return version_of(self.package)

    def prepare(self, request: "Request") -> "Run":
        """Parse the model and build its lazy graph once, so that a refusal by the front end counts as
        `compile`.
        """
        from tinygrad import Tensor
        from tinygrad.helpers import Context, ContextVar
        from tinygrad.nn.onnx import OnnxRunner

        model = read_onnx(request, "tinygrad", numpy_name, lambda name: name in TYPES, (NESTED, NESTED))
        # Before 0.13 the environment alone names the device
        known = ContextVar._cache
        chosen = {name: value for name, value in self.settings(request.options).items() if name in known}
        names = [item.name for item in model.graph.output]
        interpreted = request.options["device"] == "python"
        data = model.SerializeToString()
        with Context(**chosen), patience(interpreted):
            runner = OnnxRunner(Tensor(data, device="PYTHON"))
            request.stage("compile")
            # Nothing is computed yet: tinygrad is lazy.
            runner({name: to_tensor(request.inputs.get(name)) for name in runner.graph_inputs})

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            with Context(**chosen), patience(interpreted):
                # A runner of its own: an operator that writes into an initializer would find its own writes.
                runner = OnnxRunner(Tensor(data, device="PYTHON"))
                results = runner({name: to_tensor(values.get(name)) for name in runner.graph_inputs})
                return {name: to_value(results[name]) for name in names}

        return run

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script, behind the functions that feed and read."""
        parts = "".join("%s\n\n" % inspect.getsource(part) for part in (to_tensor, to_value))
        return "from typing import Any, List\n\n\n" + parts + SCRIPT % self.settings(options)

    def brief(
        self, options: Mapping[str, str], dtypes: Collection[str], program: Any, failed: str
    ) -> Tuple[List[str], List[str]]:
        """Return the statements of a short script; two empty lists for bfloat16, lists and None."""
        types = [*program.inputs().values(), *program.outputs().values()]
        if not all(getattr(item, "dtype", "bfloat16") != "bfloat16" for item in types):
            return [], []
        lines = (BRIEF % self.settings(options)).splitlines()
        return lines[:4], lines[4:]

    def settings(self, options: Mapping[str, str]) -> Dict[str, Any]:
        """Return the settings of tinygrad that the options mean."""
        return {"DEV": DEVICES[options["device"]], "NOOPT": int(options["optimise"] == "off")}


@contextlib.contextmanager
def patience(interpreted: bool) -> Iterator[None]:
    """Raise NotImplementedError if the interpreter takes too long: a large program is not a hang of
    tinygrad's.
    """
    if not interpreted:
        yield
        return

    def end(*_: Any) -> None:
        raise NotImplementedError("the device python needs over %d s: take clang, llvm or x86" % PATIENCE)

    # A signal: the interpreter is Python code that no other thread could stop.
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def to_tensor(value: Any) -> Any:
    """Return a tensor, a list of them, or None. numpy has no bfloat16 that tinygrad knows: its
    bits are fed.
    """
    from tinygrad import Tensor, dtypes

    if value is None:
        return None
    if isinstance(value, list):
        return [to_tensor(item) for item in value]
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        return Tensor(array.view(np.uint16).reshape(-1)).reshape(array.shape).bitcast(dtypes.bfloat16)
    # By itself it takes an array without dimensions for a constant.
    return Tensor(array.reshape(-1)).reshape(array.shape)


def to_value(result: Any) -> Any:
    """Convert a result of the runner to a numpy array, a list of arrays or None, keeping tinygrad's type."""
    from tinygrad import Device, dtypes

    if isinstance(result, (list, tuple)):
        converted: List[Any] = [to_value(item) for item in result]
        return converted
    if result is None or not hasattr(result, "numpy"):
        return result if result is None else np.asarray(result)
    # A constant lies nowhere, and would be read through the device CPU, which needs clang.
    if result.uop.device is None:
        result = result.clone(Device.DEFAULT)
    if result.dtype == dtypes.bfloat16:
        import ml_dtypes

        return result.bitcast(dtypes.uint16).numpy().view(ml_dtypes.bfloat16)
    return result.numpy()


BACKEND = TinygradOnnx()
