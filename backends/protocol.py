"""What a backend is: one short module that both the main process and a worker load.

The main process reads its facts (name, package, options) and asks `classify`; a worker calls `load`,
`prepare` and the function that `prepare` returns. The file runs inside workers of old releases, so at module
level it imports only the standard library (numpy is there too), keeps to Python 3.8, and imports nothing of
opsieve except under `TYPE_CHECKING`. Being a protocol, nothing is inherited. It is found by its entry point
in the group `opsieve.backends`; docs/how-to/add-a-backend.md walks through a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Values = dict[str, Any]
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
        None  # where to write what the compiler did, for `--coverage passes`; None: nobody asks
    )


class Backend(Protocol):
    """A compiler, transformer or evaluator of ONNX models."""

    name: str  # as targets write it
    package: str  # its distribution on PyPI, "" for none: what `==release` installs
    extra: str  # the extra of opsieve that installs it, "" when the base install has it
    # name -> legal values, the default first; () takes any text, default ""
    options: Mapping[str, tuple[str, ...]]
    main_option: str  # the option that a bare word sets, "" for none
    baseline: Mapping[str, str]  # the options of its unoptimised build, {} when it has none
    environment: Mapping[str, str]  # variables of its worker processes, thread counts among them
    lacks: tuple[str, ...]  # what it cannot do at all, for people (`opsieve doctor`)

    def base(self, python: tuple[int, int]) -> tuple[str, ...]:
        """Requirements of the environment that all its releases share on one Python version; numpy's pin
        first.
        """

    def companions(self, release: str) -> tuple[str, ...]:
        """Requirements installed beside one release, without their dependencies."""

    def load(self) -> str:
        """Worker: import the package, set thread counts, never run a kernel; returns the version."""

    def prepare(self, request: Request) -> Run:
        """Worker: take the program in and compile it; the function returned maps inputs to outputs, both by
        name.
        """

    def classify(self, stage: str, exception: str, message: str) -> str:
        """What an exception means: `rejected`, `unsupported`, `environment`, `out-of-memory` or `error`."""


class ImportedUnderAnotherName(Protocol):
    """What a backend has besides when its package is imported under another name than its distribution's."""

    module: str


class VersionOfDistribution(Protocol):
    """What a backend has besides when `load` gives the version that its installed distribution states: it is
    known without an import.
    """

    version_of_distribution: bool


class RunsElsewhere(Protocol):
    """What a backend has besides when another compiler runs its result."""

    # that compiler, as a target is written: where it fails on the original program alike, the fault is its
    runs_on: str


class HandsOn(Protocol):
    """What a backend has besides when a build of it gives programs unchanged to the compiler that runs its
    results (`RunsElsewhere`).
    """

    unchanged: Mapping[str, str]  # the options of that build


class StatesLacks(Protocol):
    """What a backend has besides when its `unsupported` is always about the program as it was given, never
    about what it made of it.
    """

    states_lacks: bool


class Helper(Protocol):
    """What a backend has besides when it is no compiler: it checks, refers or searches for others, and nobody
    looks for its bugs.
    """

    helper: bool


class RunsCommand(Protocol):
    """What a backend has besides when a program of the user's does the work: its words stand in the target
    and in `options["command"]`.
    """

    runs_command: bool


class LoadsLibraries(Protocol):
    """What a backend has besides when an option of it names libraries of the user's that its workers load:
    paths joined with `+`.
    """

    libraries: str  # the option


class Related(Protocol):
    """What a backend has besides when it shares code with another one: agreement between them is one witness,
    not two.
    """

    family: str  # the same word in each of them


class ShutIn(Protocol):
    """What a backend may say about the sandbox of its workers: by default they have no network and no
    devices, and may start processes.
    """

    # `network`; devices (`/dev/nvidia*`); other files and folders that it reads
    sandbox_allows: tuple[str, ...]
    starts_processes: bool  # False: its workers never do, and cannot


class SharesZygote(Protocol):
    """What a backend has besides when it needs no zygote of its own: what it imports is nearly what another
    one imports.
    """

    shares_zygote_of: str  # the backend whose zygote forks its workers; they call its `load` after the fork


class Traced(Protocol):
    """What a backend may have besides for `--coverage`: which libraries are its compiler's own code."""

    # How a library's file name begins -> the root of its source files' paths ("": all of it).
    native_sources: Mapping[str, str]


class ShowsGraph(Protocol):
    """What a backend may have besides, for hints where a reduction looks first: its optimised graph as an
    ONNX model.
    """

    # Options with which it computes nothing: its only output is `model`, the graph's serialised bytes as
    # uint8.
    shows_graph: Mapping[str, str]


class TakesIRs(Protocol):
    """What a backend has besides when it takes other programs than ONNX models."""

    irs: tuple[str, ...]  # `onnx`, `relax`, `tir` (gen/irs/registry.py); a request says which one it is


class Costly(Protocol):
    """What a backend has besides when a test on it does not take about 10 ms, as most do: campaigns share out
    their time by it.
    """

    # Of CPU where onnxruntime takes 10, by IR of program: a usual one of 5 to 30 nodes, with all that is
    # asked to judge it.
    milliseconds: Mapping[str, float]


class ScriptsModules(Protocol):
    """What a backend that takes modules of TVM may have besides, for the same scripts."""

    def script_of_module(self, ir: str, text: bool, passes: Sequence[str], options: Mapping[str, str]) -> str:
        """As `Scripted.script`; `run` is fed TVMScript where `text` says so, else TVM's JSON, and runs the
        passes first.
        """


class Scripted(Protocol):
    """What a backend may have besides: its few lines of the scripts that `opsieve export` writes."""

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Python source that defines `run(model, inputs)`, from a serialised model and arrays by name to
        outputs by name.

        It stands in a script that has imported `numpy as np` and `onnx` and has nothing of opsieve; the
        compiler is imported inside `run`, and what it raises is let through. `options` holds a value for
        every option: free text goes into the source by `%a` alone. `dtypes` are the element types (numpy's
        names) that cross the graph's border. "" when these options cannot be asked without opsieve.
        """


class ScriptedBriefly(Protocol):
    """What a `Scripted` backend may have besides: its lines in the script of an issue, which a maintainer
    reads in half a minute.
    """

    def brief(
        self, options: Mapping[str, str], dtypes: Collection[str], program: Any, failed: str
    ) -> tuple[list[str], list[str]]:
        """Lines that import, and statements that make of `model`, a serialised ModelProto, and `inputs` by
        name the `outputs` by name.

        They hold what this failure needs and no more: `failed` is `compile` where the compiler ends before
        anything runs, `checker` where onnx's checker refuses what a transformer makes, else `run`. Settings
        that only make runs repeatable are left out. `program` is the OnnxProgram, `options` and `dtypes` are
        as in `Scripted`. Two empty lists where only `script` shows it.
        """
