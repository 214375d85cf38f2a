"""A compiler that misbehaves on purpose: onnx's reference evaluator with seeded faults, for tests and
benchmarks.

`fake:crash@Relu>Clip` dies of SIGSEGV while it compiles a program in which a Clip reads the output of a Relu;
everything else it computes truly. The option `faults` holds one or more faults joined with `+`:

    fault   = KIND [ "@" PATTERN ] [ "/" STAGE ] [ "%" PROBABILITY ]
    pattern = "*" | path { "&" path }        `*`, any program, is the default
    path    = OPERATOR { ">" OPERATOR }      each reads an output of the one before

for example `fake:wrong@Relu>Clip+error@Tanh&Exp/import+hang@Softmax%0.5`. A pattern matches in the graph and
in the bodies of If, Loop and Scan (which may read outer values); local functions are inlined first. It acts
at the last node of its last path, at every place where that matches; faults of the run act when that node is
evaluated. A path may name an operator of any domain.

`level=off` is the unoptimised build: of all faults it has only `unsupported` of single operators without a
probability, which are lacks of a kernel. Draws for a probability come from the system's randomness, or with
`seed` from a sequence of their own that begins anew in each worker.

PyTorch programs run on eager torch; their operators are named without the overload (`aten.relu`).
"""

import ctypes
import itertools
import os
import random
import re
import signal
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.compilers.worker_common import CLASSES, Adapter, meaning_of

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

DOMAIN = "opsieve.fake"
# they alter what the node gives, so they act in the run only
VALUE_FAULTS = (
    "wrong",
    "nan",
    "shape",
    "dtype",
)
RAISED_FAULTS = ("error", "unsupported", "rejected")
PROCESS_FAULTS = (
    # Reads address 0: SIGSEGV
    "crash",
    "abort",
    # SIGFPE, as an integer division by zero
    "fpe",
    # Of the C stack
    "overflow",
    # The process ends as if all were well
    "exit",
    # In Python, asleep
    "hang",
    # At work in C, where no Python signal handler runs
    "spin",
    # Hangs and ignores SIGTERM and SIGINT
    "ignore-term",
    # Takes 16 GB
    "memory",
    # 64 MB more each time, never given back
    "leak",
    # 1 GB
    "print",
    # Stdout and stderr
    "close",
    # Some 30 million additions
    "slow",
    # Some 200,000 additions
    "drag",
)
FAKE_CLASSES = {
    **CLASSES,
    "FakeUnsupported": "unsupported",
    "RuntimeImplementationError": "unsupported",
    "RuntimeContextError": "unsupported",
    "FakeRejection": "rejected",
    "BadFaults": "environment",
}
KINDS = VALUE_FAULTS + RAISED_FAULTS + PROCESS_FAULTS
STAGES = ("import", "compile", "run")
PLACES = {"import": "fake/importer.cc", "compile": "fake/fusion.cc", "run": "fake/kernels.cc"}

_FAULT = re.compile(r"([a-z-]+)(?:@([^/%]+))?(?:/([a-z]+))?(?:%([0-9.]{1,20}))?")
_leaked: list[bytes] = []
_draws: dict[str, random.Random] = {}


class FakeError(RuntimeError):
    """Raised by an `error` fault."""


class FakeUnsupported(RuntimeError):
    """Raised by an `unsupported` fault."""


class FakeRejection(RuntimeError):
    """Raised by a `rejected` fault."""


class BadFaults(ValueError):
    """The option `faults` does not follow its grammar."""


@dataclass(frozen=True, slots=True)
class NodeChain:
    """Nodes that match a path: where the last one stands (the number of its graph among `scopes`, its first
    output).
    """

    scope: int
    output: str
    # operator and name of each; the name of an output where a node has none
    nodes: tuple[tuple[str, str], ...]


Planted = list[tuple["Fault", NodeChain]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One seeded fault; `paths` is empty for the pattern `*`."""

    kind: str
    paths: tuple[tuple[str, ...], ...]
    stage: str
    probability: float
    seed: str

    @property
    def is_lack(self) -> bool:
        """Return whether one operator has no kernel: unlike an operator that a fusion introduced, it is
        missing without the optimiser too. What comes and goes is no lack.
        """
        return (
            self.kind == "unsupported"
            and self.probability >= 1
            and all(len(path) == 1 for path in self.paths)
        )

    def strikes(self) -> bool:
        """Whether it happens this time."""
        if self.probability >= 1:
            return True
        source = (
            _draws.setdefault(self.seed, random.Random(self.seed)) if self.seed else random.SystemRandom()
        )
        return source.random() < self.probability

    def act(self, chain: NodeChain | None, value: Any = None) -> Any:
        """Misbehave at the end of `chain` (None: at the program as a whole); gives `value`, altered by a
        value fault.
        """
        if self.kind in VALUE_FAULTS:
            return alter_value(self.kind, value)
        if self.kind in RAISED_FAULTS:
            classes = {"error": FakeError, "unsupported": FakeUnsupported, "rejected": FakeRejection}
            raise classes[self.kind](self.message(chain))
        misbehave(self.kind)
        return value

    def message(self, chain: NodeChain | None) -> str:
        """Word a failure as compilers do: a place in a source file that is the fault's own, the operators,
        and nodes by name.
        """
        text = "&".join(">".join(path) for path in self.paths)
        place = f"{PLACES[self.stage]}:{zlib.crc32(f'{self.kind} {text}'.encode()) % 900 + 40}"
        if chain is None:
            return f"{place} {self.kind}: the graph cannot be lowered"
        said = (
            f"{place} fuse {'_'.join(operator for operator, _ in chain.nodes)}: node {chain.nodes[-1][1]!r}"
        )
        if self.kind == "unsupported":
            return f"{said} has no kernel here, it is not implemented"
        if len(chain.nodes) > 1:
            return (
                f"{said} cannot be merged into {chain.nodes[-2][1]!r}, check failed: fused.size() =="
                f" {len(chain.nodes)}"
            )
        return f"{said} cannot be lowered, check failed: kernel != nullptr"


class Fake(Adapter):
    """The backend `fake`."""

    name = "fake"
    helper = True
    irs: tuple[str, ...] = ("onnx", "torch")
    shares_zygote_of = "reference"
    options: Mapping[str, tuple[str, ...]] = {"faults": (), "level": ("on", "off"), "seed": ()}
    main_option = "faults"
    baseline: Mapping[str, str] = {"level": "off"}
    environment: Mapping[str, str] = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    lacks: tuple[str, ...] = ("a compiler: it is the reference evaluator with seeded faults, for tests",)

    def load(self) -> str:
        """Import the evaluator and all of its operators."""
        import onnx.reference.ops._op_list  # noqa: F401

        return "1"

    def prepare(self, request: "Request") -> "Run":
        """Act out the faults of the first two stages; the evaluator with those of the run planted behind
        their nodes.
        """
        faults = parse(request.options["faults"], request.options["seed"])
        if request.options["level"] == "off":
            faults = [fault for fault in faults if fault.is_lack]
        graph, make_run = (_read_program if request.ir == "torch" else _read_model)(request)
        found = [(fault, chains) for fault in faults if (chains := matches(graph, fault)) is not None]
        for stage in STAGES[:2]:
            request.stage(stage)
            for fault, chains in found:
                if fault.stage == stage and fault.strikes():
                    fault.act(chains[0] if chains else None)
        at_run = [(fault, chains) for fault, chains in found if fault.stage == "run"]
        whole = [fault for fault, chains in at_run if not chains]
        evaluate = make_run([(fault, chain) for fault, chains in at_run for chain in chains])

        def run(inputs: dict[str, Any]) -> dict[str, Any]:
            struck = [fault for fault in whole if fault.strikes()]
            for fault in struck:
                fault.act(None)
            outputs = evaluate(inputs)
            for fault in struck:
                if fault.kind in VALUE_FAULTS:
                    outputs = {name: fault.act(None, value) for name, value in outputs.items()}
            return outputs

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify by class: those of the faults, and the evaluator's exception for missing operators."""
        return meaning_of(exception, message, (), FAKE_CLASSES)


def _read_model(request: "Request") -> tuple[Any, Callable[[Planted], "Run"]]:
    """Return the graph of an ONNX model, and what makes a run of it with faults behind its nodes."""
    import onnx
    import onnx.inliner
    from onnx.reference import ReferenceEvaluator

    model = onnx.load_model_from_string(request.model)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)

    def make_run(planted: Planted) -> "Run":
        plant(model, planted)
        evaluator = ReferenceEvaluator(model, new_ops=[planted_operator(planted)])
        given = {tensor.name for tensor in model.graph.initializer}
        optional = [
            item.name
            for item in model.graph.input
            if item.type.WhichOneof("value") == "optional_type" and item.name not in given
        ]
        known, names = set(evaluator.input_names), list(evaluator.output_names)

        def run(inputs: dict[str, Any]) -> dict[str, Any]:
            fed = {name: value for name, value in inputs.items() if name in known}
            # The evaluator wants every input that is declared, also an optional one that is left out.
            fed.update({name: None for name in optional if name not in fed})
            with np.errstate(all="ignore"):
                return dict(zip(names, evaluator.run(None, fed), strict=True))

        return run

    return model.graph, make_run


def _read_program(request: "Request") -> tuple[Any, Callable[[Planted], "Run"]]:
    """Return the same of a PyTorch program, which eager torch runs."""
    from opsieve.backends.compilers.torch import programs

    graph = programs.read_graph(request.model)

    def make_run(planted: Planted) -> "Run":
        def alter(name: str, value: Any) -> Any:
            for fault, chain in planted:
                if chain.output == name and fault.strikes():
                    value = fault.act(chain, value)
            return value

        return lambda inputs: programs.run_altered(graph, inputs, alter)

    return programs.as_nodes(graph), make_run


def parse(text: str, seed: str) -> list[Fault]:
    """Parse the option `faults`; raise BadFaults with a sentence if it does not follow the grammar."""
    faults = []
    for item in filter(None, text.split("+")):
        match = _FAULT.fullmatch(item)
        if match is None or match[1] not in KINDS:
            raise BadFaults(
                f"{item[:80]!r} is no fault: write KIND[@PATTERN][/STAGE][%PROBABILITY], KIND one of {KINDS}"
            )
        kind, pattern, stage, probability = match.groups()
        stage = stage or ("run" if kind in VALUE_FAULTS else "compile")
        if stage not in STAGES or (kind in VALUE_FAULTS and stage != "run"):
            raise BadFaults(
                f"{item[:80]!r} cannot act in the stage {stage!r}: {kind} acts in run, or leave the stage out"
            )
        try:
            chance = float(probability or 1)
        except ValueError:
            raise BadFaults(f"{item[:80]!r} has no number behind the %") from None
        paths = () if pattern in (None, "*") else tuple(tuple(path.split(">")) for path in pattern.split("&"))
        if any(not operator for path in paths for operator in path):
            raise BadFaults(f"the pattern of {item[:80]!r} has an empty operator name")
        faults.append(Fault(kind, paths, stage, chance, seed))
    return faults


def matches(graph: Any, fault: Fault) -> list[NodeChain] | None:
    """Return the chains along the fault's last path, one for each node that ends it; `None` without a match,
    [] for `*`.
    """
    found: list[NodeChain] = []
    for path in fault.paths:
        found = [
            chain for place, scope in enumerate(scopes(graph, {})) for chain in along(path, place, *scope)
        ]
        if not found:
            return None
    return found


def scopes(graph: Any, outer: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield a graph with the producers of its names, then every body inside it, parents before children."""
    producers = dict(outer)
    producers.update({item.name: None for item in graph.input})
    producers.update({name: node for node in graph.node for name in node.output if name})
    yield graph, producers
    for node in graph.node:
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from scopes(body, producers)


def along(path: tuple[str, ...], place: int, graph: Any, producers: dict[str, Any]) -> Iterator[NodeChain]:
    """Return a chain for each node of `graph` (scope number `place`) that ends the path."""
    # Names from which no match begins, so that a graph with many paths is searched in linear time.
    dead: set[tuple[int, str]] = set()

    def before(position: int, node: Any) -> tuple[Any, ...] | None:
        """Return the nodes along `path` up to `position` that lead into `node`, or None."""
        if position < 0:
            return ()
        for name in node.input:
            producer = producers.get(name)
            if producer is None or producer.op_type != path[position] or (position, name) in dead:
                continue
            chain = before(position - 1, producer)
            if chain is not None:
                return (*chain, producer)
            dead.add((position, name))
        return None

    for node in graph.node:
        chain = before(len(path) - 2, node) if node.op_type == path[-1] else None
        output = next(filter(None, node.output), "")
        if chain is not None and output:
            yield NodeChain(
                place, output, tuple((item.op_type, item.name or item.output[0]) for item in (*chain, node))
            )


def plant(model: Any, planted: Planted) -> None:
    """Put a node of our own behind the last node of each chain; it takes over the name of that node's first
    output.
    """
    from onnx import helper

    behind: dict[tuple[int, str], list[int]] = {}
    for index, (_, chain) in enumerate(planted):
        behind.setdefault((chain.scope, chain.output), []).append(index)
    if not behind:
        return
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    # Bodies before the graphs around them: a graph's nodes are copied when they are put back.
    for scope, (graph, _) in reversed(list(enumerate(scopes(model.graph, {})))):
        nodes = []
        for node in graph.node:
            copy = type(node).FromString(node.SerializeToString())
            nodes.append(copy)
            name = next(filter(None, node.output), "")
            indices = behind.get((scope, name), [])
            if indices:
                before = copy.output[list(copy.output).index(name)] = f"{name}/before-faults"
            for index in indices:
                after = name if index == indices[-1] else f"{name}/fault-{index}"
                nodes.append(helper.make_node("Misbehave", [before], [after], domain=DOMAIN, fault=index))
                before = after
        if len(nodes) > len(graph.node):
            del graph.node[:]
            graph.node.extend(nodes)


def planted_operator(planted: Planted) -> Any:
    """Return the implementation of a planted node: the identity, unless its fault strikes."""
    from onnx.reference.op_run import OpRun

    class Misbehave(OpRun):
        """Acts out fault number `fault`."""

        op_domain = DOMAIN

        def _run(self, value: Any, fault: int = 0) -> tuple[Any]:
            seeded, chain = planted[fault]
            return (seeded.act(chain, value) if seeded.strikes() else value,)

    return Misbehave


def alter_value(kind: str, value: Any) -> Any:
    """Corrupt a value in one way; a value that cannot be corrupted that way (a NaN among integers) stays the
    same.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return [alter_value(kind, item) for item in value]
    array = np.asarray(value)
    text, boolean = array.dtype.kind in "OUS", array.dtype == bool
    integer = array.dtype.kind in "iu" or "int" in array.dtype.name
    if kind == "shape":
        return array[None]
    if kind == "dtype":
        return array if text else array.astype(np.float64 if array.dtype == np.float32 else np.float32)
    if kind == "nan":
        return array if text or boolean or integer else np.full_like(array, np.nan)
    if text:
        return np.array([f"{item}?" for item in array.ravel()], dtype=object).reshape(array.shape)
    if boolean:
        return ~array
    if integer:
        return (array.astype(np.int64) + 1).astype(array.dtype)
    wide = array if array.dtype.kind == "c" else array.astype(np.float64)
    # neither a shift nor a scale alone: Softmax and norms would hide it
    return (wide * 1.25 + 1).astype(array.dtype)


def misbehave(kind: str) -> None:
    """Harm the process as a faulty compiler would; returns only for memory, leak, print, close, slow and
    drag.
    """
    if kind == "crash":
        ctypes.string_at(0)
    elif kind == "abort":
        os.abort()
    elif kind == "fpe":
        signal.raise_signal(signal.SIGFPE)
    elif kind == "overflow":
        # glibc's parser of regular expressions recurses once for each parenthesis.
        ctypes.CDLL(None).regcomp(ctypes.create_string_buffer(256), b"(" * 5_000_000, 1)
    elif kind == "exit":
        os._exit(0)
    elif kind == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        misbehave("hang")
    elif kind == "hang":
        # It sleeps for ever and frees the processor; `spin` does not.
        while True:
            time.sleep(0.1)
    elif kind == "spin":
        deque(itertools.repeat(None), maxlen=0)
    elif kind == "memory":
        # Of zeros: the system need not fill a page of them
        taken = [bytes(64 << 20) for _ in range(256)]
        taken.clear()
    elif kind == "leak":
        _leaked.append(b"\1" * (64 << 20))
    elif kind == "print":
        for _ in range(1024):
            # 1 MB
            os.write(1, b"a library that talks too much\n" * 34953)
    elif kind == "close":
        sys.stdout.flush()
        os.closerange(1, 3)
    elif kind == "slow":
        sum(range(30_000_000))
    elif kind == "drag":
        sum(range(200_000))


BACKEND = Fake()
