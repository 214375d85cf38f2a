"""torch and inductor, on our own lowering of ONNX to torch modules (table.py), and on PyTorch programs
(programs.py); on the CPU unless another device is named.

`torch` runs the module as it is; with `tell` it gives the values on the way, or the program in a user's
file. `inductor` compiles it with `torch.compile`; its `level` stops after fewer stages, by the names of
torch's own backends (https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html), and
`disabled` turns off parts of inductor, and its passes by the names that `trace` prints. Both can compute on
`cuda`, in full float32 (TF32, which rounds factors to 10 bits, is off).
The baseline of `inductor`, and of `torch-exporter` (exporter.py), is the module run directly: if that fails,
the compiler is not run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping

from opsieve.backends.compilers.torch import knobs
from opsieve.backends.compilers.torch.program_scripts import write_run
from opsieve.backends.compilers.worker_common import (
    CLASSES,
    Adapter,
    NotRun,
    UnknownName,
    meaning_of,
    meaning_of_host,
)

if TYPE_CHECKING:
    from opsieve.backends.compilers.torch.table import Lowered
    from opsieve.backends.protocol import Request, Run


DEVICES = ("cpu", "cuda")


class NoDevice(Exception):
    """A device that this torch, or this machine, does not have."""


def choose_device(name: str) -> None:
    """Make torch create and compute tensors on a device from now on. Raises NoDevice if there is none."""
    import torch

    if name == "cpu":
        torch.set_default_device(None)
        return
    if not torch.cuda.is_available():
        lack = "there is none, or it needs --no-sandbox" if torch.version.cuda else "this build has no CUDA"
        raise NoDevice("torch cannot compute on %s: %s" % (name, lack))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_default_device(name)


ENVIRONMENT: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    # No pool of processes; every test compiles
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    # Else torch initialises CUDA to learn whether it is there, and forked workers cannot use it any more.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
MEMORY = (
    r"CUDA out of memory|bad_alloc|[Cc]annot allocate memory|can't allocate memory|Unable to allocate|not"
    r" enough memory"
)
# What torch says when it has no kernel for a type, or no way at all.
LACKS = (
    r"not implemented for|[Nn]ot (?:yet )?(?:currently )?supported|[Uu]nsupported|not yet implemented|is not"
    r" implemented"
    r"|does not support|only supports?\b|only implemented for|only defined for|[Ee]xpected .{0,80} to be"
    r" .{0,40}floating point"
)
# Of a compiler: no converter, a construct that it states it cannot trace, or no compiler of C++.
COMPILER_LACKS = (
    ("unsupported", r"No ONNX function found for|No decompositions registered|UnsupportedOperatorError"),
    ("environment", r"InvalidCxxCompiler|No working C\+\+ compiler found"),
)
TORCH_CLASSES = {
    **CLASSES,
    "Unsupported": "unsupported",
    "Rejected": "rejected",
    "Unpromotable": "unsupported",
    "NoDevice": "environment",
}
COMPILER_CLASSES = {
    "Rejected": "rejected",
    "MemoryError": "out-of-memory",
    "_ArrayMemoryError": "out-of-memory",
    "Unsupported": "unsupported",
    "ModuleNotFoundError": "environment",
    "UnknownName": "environment",
    "UnknownOpset": "environment",
    "NoDevice": "environment",
    "InvalidCxxCompiler": "environment",
}
VARIABLES = ("TORCH*", "PYTORCH*", "TRITON_*", "INDUCTOR_*")


class Torch(Adapter):
    """The common base of the three backends; `torch` itself."""

    name, package, extra = "torch", "torch", "torch"
    # Of the two compilers, too: they begin with the module that is run here
    family = "torch"
    irs: tuple[str, ...] = ("onnx", "torch")
    options: Mapping[str, tuple[str, ...]] = {
        "precision": ("native", "float64"),
        "device": DEVICES,
        "tell": ("outputs", "values", "program"),
    }
    main_option = "precision"
    variables = VARIABLES
    baseline: Mapping[str, str] = {"device": "cpu"}
    environment = ENVIRONMENT
    milliseconds: Mapping[str, float] = {"onnx": 19.0, "torch": 10.0}
    lacks: tuple[str, ...] = (
        "strings, integers of less than 8 bits, random numbers, opsets before 7",
        "kernels for many integer types: it says so, operator by operator",
    )
    # Requirements beside torch.
    lowering_needs: tuple[str, ...] = ()

    def base(self, python: tuple[int, int]) -> tuple[str, ...]:
        """Return the imports of torch, its compiler and the lowering; wheels that need CUDA libraries are not
        supported.
        """
        numpy = "numpy==2.2.6" if python < (3, 14) else "numpy>=2.3.2"
        torch = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing_extensions", "setuptools")
        return (numpy, "onnx", "protobuf", "ml_dtypes", *torch, *self.lowering_needs)

    def load(self) -> str:
        """Import torch and the table; one thread."""
        import torch

        # So that forked workers find it loaded
        import opsieve.backends.compilers.torch.table  # noqa: F401

        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        return str(torch.__version__)

    def prepare(self, request: Request) -> Run:
        """Lower the model to a module, in the model's types or in float64."""
        if request.ir == "torch":
            return self.prepare_program(request)
        import onnx
        import torch

        from opsieve.backends.compilers import float64_model
        from opsieve.backends.compilers.torch import table

        model = onnx.load_model_from_string(request.model)
        choose_device(request.options["device"])
        wide = request.options["precision"] == "float64"
        if wide:
            model = float64_model.promote(model)
        module = table.Lowered(model, request.inputs)

        def run(values: dict[str, Any]) -> dict[str, Any]:
            if wide:
                values = {name: float64_model.promote_value(value) for name, value in values.items()}
            with torch.no_grad():
                made = module(*module.to_tensors(values))
            return module.to_values(made)

        return run

    def prepare_program(self, request: Request) -> Run:
        """Run a PyTorch program, or tell of it."""
        from opsieve.backends.compilers.torch import capture, programs

        choose_device(request.options["device"])
        ways = {
            "outputs": programs.evaluate_program,
            "values": programs.tell_values,
            "program": capture.tell_program,
        }
        return ways[request.options["tell"]](request)

    def script_of_module(self, program: Any, text: bool, options: Mapping[str, str]) -> str:
        """Return the source of `run` for a PyTorch program as text; "" where there is no text."""
        plain = text and options.get("device", "cpu") == "cpu"
        return write_run(options, knobs.settings(options) if "level" in options else {}) if plain else ""

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify as a lack what the table or torch states; all else is an error."""
        patterns = [("unsupported", LACKS)] if exception.rpartition(".")[2] == "RuntimeError" else []
        return meaning_of(exception, message[:4000], patterns, TORCH_CLASSES, MEMORY)


def evaluate_program(request: Request) -> Run:
    """Evaluate a PyTorch program for the reference (gen/irs/torch/ir.py names this function)."""
    from opsieve.backends.compilers.torch import programs

    return programs.evaluate_program(request)


class Compiled(Torch):
    """The common part of inductor and the exporter: the module, run once without them."""

    def load(self) -> str:
        """Import torch's tracer too, which the first call would."""
        import torch

        version = super().load()
        torch._dynamo.config  # noqa: B018
        return version

    def lower_model(self, request: Request) -> tuple[Lowered, list[Any]]:
        """Return the module and its inputs; raise NotRun if torch alone fails."""
        import onnx
        import torch

        from opsieve.backends.compilers.torch import table

        choose_device(request.options.get("device", "cpu"))
        module: Any
        if request.ir == "torch":
            from opsieve.backends.compilers.torch import programs

            module = programs.ProgramModule(programs.read_graph(request.model))
        else:
            module = table.Lowered(onnx.load_model_from_string(request.model), request.inputs)
        values = module.to_tensors(request.inputs)
        try:
            with torch.no_grad():
                decided = module.record(*values)
        except Exception as error:
            if type(error).__name__ == "Unsupported":
                raise
            raise NotRun("%s: %s" % (type(error).__name__, error)) from error
        if decided:
            request.notes.append(
                "values that the inputs decide were compiled in as constants: those that %s asked"
                % ", ".join(decided)
            )
        return module, values

    def run_directly(self, module: Lowered) -> Run:
        """Run the module without a compiler; raise NotRun if torch fails."""
        import torch

        def run(values: dict[str, Any]) -> dict[str, Any]:
            try:
                with torch.no_grad():
                    made = module(*module.to_tensors(values))
            except Exception as error:
                raise NotRun("%s: %s" % (type(error).__name__, error)) from error
            return module.to_values(made)

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify; a model that torch alone does not run is not the compiler's fault."""
        kind, text = exception.rpartition(".")[2], message[:4000]
        if kind == "NotRun":
            cause, _, rest = text.partition(": ")
            return meaning_of_host(Torch.classify(self, stage, cause, rest))
        classes = {**COMPILER_CLASSES, **({"DecodeError": "rejected"} if stage == "import" else {})}
        return meaning_of(exception, text, COMPILER_LACKS, classes, MEMORY)


class Inductor(Compiled):
    """The backend `inductor`."""

    name = "inductor"
    options: Mapping[str, tuple[str, ...]] = {
        "level": ("inductor", "aot_eager_decomp_partition", "aot_eager", "eager", "off"),
        "disabled": (),
        "shapes": ("static", "dynamic"),
        "freezing": ("off", "on"),
        "trace": ("off", "on"),
        "device": DEVICES,
    }
    main_option = "level"
    variables = VARIABLES
    baseline: Mapping[str, str] = {
        "level": "off", "disabled": "", "shapes": "static", "freezing": "off", "trace": "off",
    }  # fmt: skip
    milliseconds: Mapping[str, float] = {"onnx": 5200.0, "torch": 4000.0}
    lacks: tuple[str, ...] = (*Torch.lacks, "it needs g++")

    def load(self) -> str:
        """Import the compiler, find the machine's vector instructions, compile one model (never run).

        That makes g++'s precompiled header too, which torch keeps in a folder of its own for all its
        processes and which makes a test three times as fast. With a CUDA device each worker compiles its
        first model itself, because CUDA does not survive a fork.
        """
        import torch

        version = super().load()
        # it has inductor choose other code; one thread is deterministic
        torch.use_deterministic_algorithms(False)
        if os.path.exists("/dev/nvidiactl"):
            return version
        from torch._inductor import config, cpu_vec_isa

        # torch calls it for a checksum
        config.cpp_cache_precompile_headers = shutil.which("openssl") is not None
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
            try:
                knobs.check_best_instructions(cpu_vec_isa)
                cpu_vec_isa.pick_vec_isa()
                compiled = torch.compile(
                    lambda x: torch.relu(x) + 1, backend=knobs.compile_only, dynamic=False
                )
                with torch.no_grad():
                    compiled(torch.zeros(3))
                torch._dynamo.reset()
            finally:
                del os.environ["TORCHINDUCTOR_CACHE_DIR"]
        return version

    def prepare(self, request: Request) -> Run:
        """Compile the module. torch does that at the first call, which counts as the stage `compile` until it
        runs.
        """
        import torch
        import torch._inductor.config as config

        options = request.options
        module, values = self.lower_model(request)
        if options["level"] == "off":
            return self.run_directly(module)
        cache = os.path.join(tempfile.gettempdir(), "inductor")
        shutil.rmtree(cache, ignore_errors=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        torch._dynamo.reset()
        patches = knobs.settings(options)
        if request.ir == "torch":
            # Random numbers are then those of eager torch.
            patches["fallback_random"] = True
        missing = [name for name in patches if not knobs.has(config, name)]
        if missing:
            raise UnknownName("this release of torch has no %s" % ", ".join(missing))
        skipped = patches.pop("disabled_passes", "")
        knobs.check_passes(skipped, Path(config.__file__).parent / "fx_passes")
        make = torch._dynamo.lookup_backend(options["level"])

        def backend(graph: Any, examples: Any) -> Callable[..., Any]:
            made = make(graph, examples)

            def call(*arguments: Any) -> Any:
                request.stage("run")
                return made(*arguments)

            return call

        compiled = torch.compile(
            module, backend=backend, fullgraph=True, dynamic=options["shapes"] == "dynamic"
        )

        def run(values: dict[str, Any]) -> dict[str, Any]:
            feeds = module.to_tensors(values)
            request.stage("compile")
            wrapped = knobs.wrap_passes(skipped, options["trace"] == "on")
            with torch.no_grad(), config.patch(patches), wrapped:
                made = compiled(*feeds)
            return module.to_values(made)

        return run


TORCH = Torch()
INDUCTOR = Inductor()
