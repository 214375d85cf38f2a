"""Probe compilers for operator support: one-operator programs, each run once per version.

For every declared operator, form and first dtype instances are drawn until no new signature appears, and one
or two of each signature run, optimised and, on success, unoptimised: a compiler may lack a kernel for an
operator that it folds away. Answers are kept in a file for each compiler and version, line by line, so that
an interrupted probe continues; levels of optimisation share one. Answers of current releases come with the
package (backends/probing/support_tables.py); a new version begins with those of the nearest one, until it is
probed itself.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from opsieve.backends import observation, registry
from opsieve.backends.probing import operator_support, support_tables
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.declarations import catalogue, declaration, tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.generation import generator_version, random_graph
from opsieve.gen.model.tensors import TensorType

# Instances drawn of an operator, form and first dtype, at most
_DRAWS = 100
# The number of consecutive draws without a new signature before it stops.
_PATIENCE = 60
# Instances of a signature that are run, of different ranks where there are
_RUNS = 2
# Compilers that take a tenth of a second for one operator are asked about the commonest first dtypes only,
# one instance of a signature; what they were not asked about is not generated for them.
_SLOW = frozenset(("tvm", "onnxsim", "inductor", "torch-exporter", "tinygrad"))
_COMMON = frozenset(("float32", "float16", "int64", "int32", "uint8", "bool"))
# Instances of a signature that hangs on sizes too
_RUNS_CHOOSY = 8
# without patience: paddings that follow from dilations are seldom drawn, and a bug in them shows at some
# sizes
_DRAWS_CHOOSY = 1000
# Operators with a form and a dtype between two writes
_CHUNK = 24


@dataclass(frozen=True, slots=True)
class Probe:
    """The unit of drawing: an operator whose first input has a dtype, at an opset."""

    operator: declaration.Operator
    opset: int
    dtype: str

    @property
    def name(self) -> str:
        """The unique name of the probe."""
        return f"{catalogue.name_with_domain(self.operator)} {self.opset} {self.dtype}"


def list_probes(only: Collection[str] | None = None, dtypes: Collection[str] | None = None) -> list[Probe]:
    """List the probes: every operator (those of `only`), every form from opset 13 on, every first dtype
    (those of `dtypes`).
    """
    found = []
    for name, operator in catalogue.operators().items():
        # Operators of extensions only on request, because most compilers have none.
        if (operator.domain and only is None) or (only is not None and name not in only):
            continue
        last: dict[int, int] = {}
        for opset in range(catalogue.OLDEST, random_graph.SUPPORTED + 1):
            had = catalogue.form(operator.name, opset) if not operator.domain else None
            if operator.domain or (had is not None and opset >= operator.since):
                last[had.since if had else 0] = opset
        for opset in last.values():
            allowed = sorted(catalogue.first_dtypes(operator, opset))
            found += [Probe(operator, opset, dtype) for dtype in allowed if dtypes is None or dtype in dtypes]
    return found


def strip_level(target: registry.ResolvedTarget) -> registry.ResolvedTarget:
    """Return the target at its default level of optimisation: levels of one wheel share operators and
    answers.
    """
    level = target.facts.baseline
    pairs = tuple(pair for pair in target.target.options if pair[0] not in level)
    return replace(target, target=replace(target.target, options=pairs))


def probe_targets(
    workers: Workers,
    targets: Sequence[registry.ResolvedTarget],
    only: Collection[str] | None = None,
    dtypes: Collection[str] | None = None,
    folder: Path | None = None,
    show: Callable[[str, int, int], None] | None = None,
) -> list[operator_support.Support]:
    """Return each target's support for these operators and first dtypes (None: all), probing unknown ones
    now.

    `show` is called with a target, the number of finished probes, and the total. Raises Unavailable for a
    missing target.
    """
    found = []
    for target in targets:
        prober = Prober(workers, target, folder)
        wanted = prober.list_wanted(only, dtypes)
        for done in prober.run_probes(wanted):
            if show is not None:
                show(prober.target.display, done, len(wanted))
        found.append(prober.get_support(wanted))
    return found


def make_tables(
    workers: Workers,
    targets: Sequence[registry.ResolvedTarget],
    folder: Path | None,
    show: Callable[[str, int, int], None],
) -> list[support_tables.SupportTable]:
    """Make full tables, probing missing parts now.

    With a folder everything is probed again, and the tables are written into it. Raises Unavailable for a
    missing target, BadInput if a file cannot be written.
    """
    found = []
    for target in targets:
        with TemporaryDirectory(prefix="opsieve-") as scratch:
            anew = None if folder is None else Path(scratch)
            prober = Prober(workers, strip_level(target), anew, shipped=folder is None)
            wanted = prober.list_wanted()
            for done in prober.run_probes(wanted):
                show(prober.target.display, done, len(wanted))
        table = prober.make_table(time.strftime("%Y-%m-%d"))
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / support_tables.get_file_name(table)).write_bytes(support_tables.pack_table(table))
            except OSError as error:
                raise BadInput(f"cannot write into {folder}: {error.strerror or error}") from None
        found.append(table)
    return found


class Prober:
    """Probes one target, in chunks; `get_support` returns the present state.

    Answers are appended to a file in `folder` (default: the user's cache); raises BadInput if that fails.
    Without `shipped` only local answers count. The compiler's `version` is read unless given.
    """

    def __init__(
        self,
        workers: Workers,
        target: registry.ResolvedTarget,
        folder: Path | None = None,
        *,
        shipped: bool = True,
        version: str = "",
    ) -> None:
        self.target = target
        self.version = version or workers.version(self.target)
        self.slow = self.target.name in _SLOW
        self._workers = workers
        own = strip_level(target)
        self._file = operator_support.AnswerFile(
            folder or operator_support.get_cache_folder("support"), own.display, self.version
        )
        self._answers = self._file.read()
        # The compiler and version whose answers replace missing ones.
        self.of_another = ""
        self._hearsay: list[operator_support.ProbeAnswer] = []
        if shipped and not own.target.options:
            table = support_tables.find_nearest(self.target, self.version)
            if table is not None and (table.backend, table.version) == (self.target.name, self.version):
                self._answers = [*table.answers, *self._answers]
            elif table is not None and not self._answers:
                self._hearsay = list(table.answers)
                self.of_another = f"{table.backend} {table.version}"

    @property
    def name(self) -> str:
        """The target and its version."""
        return f"{self.target.display} {self.version}"

    def list_wanted(
        self, only: Collection[str] | None = None, dtypes: Collection[str] | None = None
    ) -> list[Probe]:
        """List the probes of a full table of the target, for these operators and first dtypes (None: all)."""
        if self.slow:
            dtypes = _COMMON if dtypes is None else _COMMON & frozenset(dtypes)
        return list_probes(only, dtypes)

    def list_missing(self, wanted: Sequence[Probe]) -> list[Probe]:
        """List the probes that have not run yet."""
        done = {answer.probe for answer in self._answers if not answer.signature}
        return [probe for probe in wanted if probe.name not in done]

    def run_probes(self, wanted: Sequence[Probe]) -> Iterator[int]:
        """Run the missing probes; yield the number of finished ones after each write."""
        left = self.list_missing(wanted)
        done = len(wanted) - len(left)
        for start in range(0, len(left), _CHUNK):
            chunk = left[start : start + _CHUNK]
            made = [
                (probe, *instance)
                for probe in chunk
                for instance in iter_instances(probe, 1 if self.slow else _RUNS)
            ]
            endings = self._observe_endings([test for *_, test in made])
            given = [
                operator_support.ProbeAnswer(probe.name, key, rank, *end)
                for (probe, key, rank, _), end in zip(made, endings, strict=True)
            ]
            # Written behind the answers: a probe without this line was interrupted and runs again.
            given += [
                operator_support.ProbeAnswer(
                    probe.name, "", 0, "done", generator_version.compute_generator_version()
                )
                for probe in chunk
            ]
            self._file.append_answers(given)
            self._answers = [*self._answers, *given]
            done += len(chunk)
            yield done

    def _observe_endings(self, tests: Sequence[Test]) -> list[tuple[str, str]]:
        """Return how each test ended: as the unoptimised build says if the optimised one succeeds."""
        ends = [
            classify_ending(*pair)
            for pair in zip(tests, self._workers.observe_many(self.target, tests), strict=True)
        ]
        plain = None if self.slow else self.target.baseline
        if plain is not None:
            well = [place for place, end in enumerate(ends) if end[0] == "ok"]
            asked = [tests[place] for place in well]
            for place, test, answer in zip(
                well, asked, self._workers.observe_many(plain, asked), strict=True
            ):
                ends[place] = classify_ending(test, answer)
        return ends

    def get_support(self, wanted: Sequence[Probe] | None = None) -> operator_support.Support:
        """Return the support by the present answers, of some probes or of all."""
        asked = None if wanted is None else {probe.name for probe in wanted}
        table = self.make_table()
        counted = (answer for answer in table.answers if asked is None or answer.probe in asked)
        return operator_support.collect_support(table.backend, table.version, counted, self._dtypes)

    def make_table(self, made: str = "") -> support_tables.SupportTable:
        """Make a table of all answers, with those of the nearest version for missing ones."""
        done = {answer.probe for answer in self._answers if not answer.signature}
        answers = (*self._answers, *(answer for answer in self._hearsay if answer.probe not in done))
        dtypes = None if self._dtypes is None else tuple(sorted(self._dtypes))
        return support_tables.SupportTable(self.target.display, self.version, made, dtypes, answers)

    @property
    def _dtypes(self) -> frozenset[str] | None:
        of_runtime = self.of_another and not self.of_another.startswith(f"{self.target.name} ")
        return _COMMON if self.slow and not of_runtime else None


def classify_ending(test: Test, answer: observation.Observation) -> tuple[str, str]:
    """Return how a probe ended, and its message."""
    for name, declared in test.program.outputs().items() if answer.outputs is not None else ():
        given = (answer.outputs or {}).get(name)
        if isinstance(declared, TensorType) and declared.shape is not None and isinstance(given, np.ndarray):
            sides = zip(declared.shape, given.shape, strict=False)
            if given.ndim != len(declared.shape) or any(isinstance(p, int) and p != q for p, q in sides):
                return (
                    operator_support.WRONG_SHAPE,
                    f"gives {list(given.shape)} where {list(declared.shape)} is right",
                )
    return answer.outcome, answer.message[:300]


def iter_instances(probe: Probe, runs: int = _RUNS) -> Iterator[tuple[str, int, Test]]:
    """Yield signature, rank and program of the instances to run."""
    operator = probe.operator
    safe = operator.safe[0] if operator.safe else tensor.ANY
    choice = catalogue.OpChoice(operator, frozenset((probe.dtype,)), (probe.dtype,), *operator.ranks, safe)
    had = None if operator.domain else catalogue.form(operator.name, probe.opset)
    windows = had is not None and "dilations" in had.attributes
    most = _RUNS_CHOOSY if runs > 1 else runs + 1
    met: dict[str, list[int]] = {}
    idle = 0
    for seed in range(_DRAWS_CHOOSY if windows else _DRAWS):
        # Every other draw has the plain element types only, whose signatures are the commonest.
        builder = random_graph.build_single_node(
            choice, probe.opset, seed, palette=tensor.PLAIN if seed % 2 else ()
        )
        if builder is None or (idle == _PATIENCE and not windows):
            return
        node = builder.nodes[-1]
        key, rank = (
            operator_support.make_signature(operator, node.ins, node.attrs, probe.opset),
            operator_support.get_rank(node.ins),
        )
        idle = idle + 1 if key in met else 0
        ranks = met.setdefault(key, [])
        if len(ranks) >= runs and not (operator_support.CHOOSY in key and len(ranks) < most):
            continue
        if rank in ranks and operator_support.CHOOSY not in key:
            continue
        ranks.append(rank)
        made = random_graph.finish(builder, random_graph.GenRequest(), "probe", seed)
        yield key, rank, Test(made.program, made.inputs)
