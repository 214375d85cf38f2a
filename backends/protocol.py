"""The interface of a backend: one short module that both the main process and a worker load.

The main process reads its facts (name, package, options) and asks `classify`; a worker calls `load`,
`prepare` and the function that `prepare` returns. The file runs inside workers of old releases, so at module
level it imports only the standard library (numpy is there too), keeps to Python 3.8, and imports nothing of
opsieve except under `TYPE_CHECKING`. Being a protocol, nothing is inherited. It is found by its entry point
in the group `opsieve.backends`; docs/how-to/add-a-backend.md walks through a real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Callable, Collection, Dict, Mapping, Protocol, Sequence

Values = Dict[str, Any]
Run = Callable[[Values], Values]


@dataclass
class Request:
    """One program as a worker sees it.

    `model` is a serialised ONNX ModelProto without external data, or what the program's `ir` has for one
    (of a module of TVM its JSON; `passes` are then to be run on it before it is compiled). `options` holds a
    value for every option of the backend. `inputs` are the values that will be fed (for compilers that want
    shapes while they compile). `stage` is to be called when the next stage begins
    (`request.stage("compile")`): prepare starts in `import`, and what it returns runs in `run`. `notes`
    collects sentences for the observation; `hazards` JSON objects with the fields of `Hazard`. A backend with
    `maps_tensors` finds large tensors in `mapped`: name, ONNX's number of the element type, shape, and the
    data in ONNX's raw form as a read-only `mmap`. Of these `model` has external data that lies nowhere;
    `whole()` gives the model with their data.
    """

    model: bytes
    options: Mapping[str, str]
    inputs: Values
    stage: Callable[[str], None]
    notes: list[str] = field(default_factory=list)
    hazards: list[dict[str, Any]] = field(default_factory=list)
    ir: str = "onnx"
    passes: Sequence[str] = ()
    mapped: Sequence[tuple[str, int, list[int], Any]] = ()
    whole: Callable[[], bytes] = bytes
    effects: list[str] | None = (
        # The file for the compiler's effects with `--coverage passes`, otherwise None.
        None
    )


@dataclass(frozen=True)
class BackendFacts:
    """The facts that a backend states about itself, in attributes of the same names; only `name`
    is required.
    """

    # As targets write it
    name: str
    # Its distribution on PyPI, "" for none: what `==release` installs
    package: str = ""
    # The name under which it is imported, where that is not the distribution's
    module: str = ""
    # The extra of opsieve that installs it, "" when the base install has it
    extra: str = ""
    # name -> legal values, the default first; () takes any text, default ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The option that a bare word sets, "" for none
    main_option: str = ""
    # The options of its unoptimised build
    baseline: Mapping[str, str] = field(default_factory=dict)
    # Of its workers, thread counts among them
    environment: Mapping[str, str] = field(default_factory=dict)
    # Its general limitations, for people (`opsieve doctor`).
    lacks: tuple[str, ...] = ()
    # The IRs that it accepts (gen/irs/registry.py).
    irs: tuple[str, ...] = ("onnx",)

    # It is no compiler: it checks, evaluates or searches for others, and is never a test target by default.
    helper: bool = False
    # False: it accepts or refuses a program, and gives no outputs that could be compared
    computes: bool = True
    # Backends with the same word share code: agreement between them counts as one witness. "": its name.
    family: str = ""
    # Another compiler, as a target is written, that runs its result: where that compiler fails on the
    # original program alike, the fault is its own.
    runs_on: str = ""
    # Options with which it changes nothing
    unchanged: Mapping[str, str] = field(default_factory=dict)
    # The most that one run may take, whatever the command's limit, and a second more for each MiB of the
    # program; 0: that limit alone
    seconds: float = 0.0
    # Its `unsupported` is always about the program as it was given, never about what it made of it.
    states_lacks: bool = False
    # A program of the user's does the work: its words stand in the target and in `options["command"]`.
    runs_command: bool = False
    # The option that names libraries for its workers to load: paths joined with `+`
    libraries: str = ""
    # Options with which its only output is `model`, the bytes of its optimised graph as uint8: for hints
    # where a reduction looks first.
    shows_graph: Mapping[str, str] = field(default_factory=dict)
    # Its passes can be stopped after a number of applications
    counts_applications: bool = False
    # CPU milliseconds by IR of a usual program of 5 to 30 nodes, judged, where onnxruntime takes 10:
    # campaigns share out their time by it.
    milliseconds: Mapping[str, float] = field(default_factory=dict)

    # `network`; `shared-memory`; devices (`/dev/nvidia*`); other files and folders that its workers read in
    # their sandbox
    sandbox_allows: tuple[str, ...] = ()
    # Patterns of environment variables that it reads, which are handed on to its workers (`TVM_*`).
    variables: tuple[str, ...] = ()
    # False: its workers never do, and cannot
    starts_processes: bool = True
    # The backend whose zygote forks its workers, which call its `load` then
    shares_zygote_of: str = ""
    # It reads large tensors from `Request.mapped`
    maps_tensors: bool = False
    # `load` returns what the installed distribution states
    version_of_distribution: bool = False
    # For `--coverage`: how a library's file name begins -> the root of its source files' paths ("": all of
    # it)
    native_sources: Mapping[str, str] = field(default_factory=dict)


def facts_of(backend: Backend) -> BackendFacts:
    """Return the facts of a backend, with defaults for those that it does not state."""
    names = (each.name for each in fields(BackendFacts))
    return BackendFacts(**{name: getattr(backend, name) for name in names if hasattr(backend, name)})


class Backend(Protocol):
    """A compiler, transformer or evaluator, with the attributes of `BackendFacts`."""

    name: str
    package: str

    def base(self, python: tuple[int, int]) -> tuple[str, ...]:
        """Return the requirements that all releases share on one Python version, with numpy's pin first."""

    def companions(self, release: str) -> tuple[str, ...]:
        """Return the requirements installed beside one release, without their dependencies."""

    def load(self) -> str:
        """Import the package in a worker and set thread counts, without running a kernel; returns the
        version.
        """

    def prepare(self, request: Request) -> Run:
        """Read and compile the program in a worker; the returned function maps inputs to outputs, both by
        name.
        """

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify an exception: `rejected`, `unsupported`, `environment`, `out-of-memory` or `error`."""


class WritesScripts(Protocol):
    """Methods that a backend may have besides, for its lines of the scripts that `opsieve export` writes."""

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return Python source that defines `run(model, inputs)`, from a serialised model and arrays by name
        to outputs by name.

        It stands in a script that has imported `numpy as np` and `onnx` and has nothing of opsieve; the
        compiler is imported inside `run`, and what it raises is let through. `options` holds a value for
        every option: free text goes into the source by `%a` alone. `dtypes` are the element types (numpy's
        names) that cross the graph's border. "" when these options cannot be asked without opsieve.
        """

    def script_of_module(self, program: Any, text: bool, options: Mapping[str, str]) -> str:
        """Return the same for a module of TVM; `run` is fed TVMScript where `text` says so, else TVM's JSON,
        and runs the passes first.
        """

    def brief(
        self, options: Mapping[str, str], dtypes: Collection[str], program: Any, failed: str
    ) -> tuple[list[str], list[str]]:
        """Return lines that import, and statements that make the `outputs` by name from `model`, a serialised
        ModelProto or the text of a module, and `inputs` by name.

        They hold what this failure needs and no more: `failed` is `compile` where the compiler ends before
        anything runs, `checker`, `declared` or `load` where what a transformer makes is invalid (by onnx's
        checker, by its declarations, or to onnxruntime), else `run`. Settings that only make runs repeatable
        are left out. `program` is the program itself, `options` and `dtypes` are as in `script`. Two empty
        lists where only `script` shows it.
        """
