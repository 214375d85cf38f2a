"""IREE: an MLIR compiler and runtime, through its ONNX importer, on the CPU.

https://iree.dev/guides/ml-frameworks/onnx/: a model becomes torch-mlir's dialect, then StableHLO's relatives,
then machine code (`llvm-cpu`) or the bytecode of its reference backend (`vmvx`). `opt` is `--iree-opt-level`;
O0 is the unoptimised build. All is done inside the worker.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.compilers.worker_common import (
    Adapter,
    numpy_name,
    read_onnx,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

CARRIED = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
# What a message means, first match wins: what its importer has no rule for stays an `onnx.` operator that
# nothing lowers.
MEANINGS: tuple[tuple[str, str], ...] = (
    ("unsupported", r"failed to legalize operation 'torch\.operator'"),
    (
        "unsupported",
        r"failed to legalize operation 'torch\.(?:aten|prim|onnx)[^']*' that was explicitly marked illegal",
    ),
    (
        "unsupported",
        r"cannot cross the border|[Uu]nsupported|[Uu]nimplemented|not (?:yet )?(?:implemented|supported)",
    ),
    ("unsupported", r"no kernel for|OnnxImportError"),
)


class NotCompiled(Exception):
    """Raised with the errors of IREE's compiler about a module that it does not compile."""


class IreeCpu(Adapter):
    """The backend `iree`."""

    name = "iree"
    package = "iree-base-compiler"
    module = "iree.compiler"
    extra = "iree"
    # The importer reads a model with onnx.
    requirements = ("onnx", "ml_dtypes")
    meanings = MEANINGS
    options: Mapping[str, tuple[str, ...]] = {"opt": ("O2", "O0", "O1", "O3"), "code": ("llvm-cpu", "vmvx")}
    main_option = "opt"
    variables = ("IREE_*",)
    # The compiler writes its results to memory files, since 3.13 at the latest.
    sandbox_allows = ("shared-memory",)
    baseline: Mapping[str, str] = {"opt": "O0", "code": "llvm-cpu"}
    environment: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    lacks: tuple[str, ...] = (
        "strings, sequences, optionals; bfloat16, float8 and 4-bit values that are fed or read",
    )
    milliseconds: Mapping[str, float] = {"onnx": 500.0}

    def companions(self, release: str) -> tuple[str, ...]:
        """Return the runtime of the same release."""
        return ("iree-base-runtime==" + release,)

    def load(self) -> str:
        """Import the compiler, its importer of ONNX and the runtime."""
        import iree.compiler.api
        import iree.compiler.extras.onnx_importer
        import iree.runtime  # noqa: F401
        import onnx.shape_inference  # noqa: F401

        return metadata.version(self.package)

    def prepare(self, request: "Request") -> "Run":
        """Import the model as MLIR, compile it for this processor and load the result."""
        import iree.runtime as runtime
        import onnx

        model = read_onnx(request, "IREE", numpy_name, lambda name: name in CARRIED)
        given = {tensor.name for tensor in model.graph.initializer}
        names = [item.name for item in model.graph.input if item.name not in given]
        outputs = [(item.name, numpy_name(item.type.tensor_type.elem_type)) for item in model.graph.output]
        # The importer names the function after the graph, and names of models are often no identifiers.
        model.graph.name = "entry"
        # The importer needs the types of all values.
        text = import_model(onnx.shape_inference.infer_shapes(model, data_prop=True))
        request.stage("compile")
        data = compile_module(text, request.options)
        # One thread, so that sums come in the same order in every run.
        config = runtime.Config("local-sync")
        module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, data), config)

        def run(values: dict[str, Any]) -> dict[str, Any]:
            results = module["entry"](*[np.ascontiguousarray(values[name]) for name in names])
            found = list(results) if isinstance(results, (list, tuple)) else [results]
            return {
                name: as_declared(value.to_host(), kind)
                for (name, kind), value in zip(outputs, found, strict=False)
            }

        return run

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script."""
        return SCRIPT % {"flags": flags(options)}


SCRIPT = """\
def run(model, inputs):
    import os
    import subprocess
    import sys
    import tempfile

    import iree.runtime
    from iree.compiler import compile_file

    read = onnx.load_model_from_string(model)
    read.graph.name = "entry"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(read, path)
        importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx"]
        subprocess.run([*importer, path, "-o", path + ".mlir"], check=True)
        data = compile_file(path + ".mlir", extra_args=%(flags)a)
    module = iree.runtime.load_vm_flatbuffer(data, driver="local-sync")
    given = {tensor.name for tensor in read.graph.initializer}
    results = module["entry"](*[inputs[item.name] for item in read.graph.input if item.name not in given])
    results = results if isinstance(results, (list, tuple)) else [results]
    return {item.name: value.to_host() for item, value in zip(read.graph.output, results)}
"""


def flags(options: Mapping[str, str]) -> list[str]:
    """Return the compiler's flags for a target's options."""
    host = ["--iree-llvmcpu-target-cpu=host"] if options["code"] == "llvm-cpu" else []
    return [
        "--iree-input-type=onnx",
        "--iree-hal-target-backends=" + options["code"],
        "--iree-opt-level=" + options["opt"],
        *host,
    ]


def import_model(model: Any) -> str:
    """Return the text of the MLIR module that IREE's importer makes of a ModelProto."""
    from iree.compiler import ir
    from iree.compiler.extras import onnx_importer

    with ir.Context() as context:
        read = onnx_importer.ModelInfo(model)
        module = read.create_module(context=context).operation
        onnx_importer.NodeImporter.define_function(read.main_graph, module).import_all()
        module.verify()
        return str(module.get_asm())


def compile_module(text: str, options: Mapping[str, str]) -> bytes:
    """Return the bytes of the compiled module. Raises NotCompiled with the compiler's first errors."""
    from iree.compiler.api import Output, Session, Source

    session = Session()
    session.set_flags(*flags(options))
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    # MLIR's parser reads up to a zero byte.
    source = Source.wrap_buffer(session, text.encode() + b"\0")
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        kept = os.dup(2)
        # Its binding shows diagnostics there and nowhere else
        os.dup2(said.fileno(), 2)
        try:
            done = invocation.parse_source(source) and invocation.execute()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        if not done:
            said.seek(0)
            raise NotCompiled(said.read(4000).decode("utf-8", "replace") or "no reason was given")
    with Output.open_membuffer() as output:
        invocation.output_vm_bytecode(output)
        return bytes(output.map_memory())


def as_declared(value: Any, kind: str) -> Any:
    """Return a result with the sign that the model declares: IREE's integers have none."""
    found = np.asarray(value)
    declared = np.dtype(kind)
    return (
        found.view(declared)
        if found.dtype.kind in "iu" and found.dtype.itemsize == declared.itemsize
        else found
    )


BACKEND = IreeCpu()
