"""Programs generated in bulk, as `opsieve gen` does: kept to what targets support, their values searched,
checked and written.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from opsieve.backends.probing.chosen_values import searched, with_found
from opsieve.backends.probing.corpus import corpus
from opsieve.backends.probing.imported_modules import ir_corpus
from opsieve.backends.probing.operator_support import Support, both, tables
from opsieve.backends.probing.prober import probed
from opsieve.backends.probing.value_search import Effort
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.program_checker import get_checker, get_validator
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.case.case import Case, load, save
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.generation import request as gen_request
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.program import Program
from opsieve.gen.strategies import registry as strategies
from opsieve.gen.values.values import SEARCH

# Programs made before they are checked and written.
GROUP = 64
Named = tuple[str, Case]
_READERS: Mapping[str, Callable[[Path, Workers], tuple[tuple[Program, ...], list[str]]]] = {
    "documented": corpus,
    "mutate": corpus,
    "relax-mutate": partial(ir_corpus, "relax"),
}
# (target, probes done, probes in all)
Probing = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """`models` programs of `strategy` from `seed` on, each as `program` asks, within what all `targets`
    support.

    `corpus` is a folder of models for the strategies `documented`, `mutate` and `relax-mutate`. Programs are
    checked with `check`, by onnx.checker or TVM, and written to `out`, as plain .onnx files with `flat`.
    `kept` is the case to repeat, of which `program`, `strategy` and `seed` are those it was made by.
    """

    program: GenRequest
    strategy: str = "mix"
    seed: int = 0
    models: int = 100
    targets: tuple[ResolvedTarget, ...] = ()
    corpus: Path | None = None
    out: Path | None = None
    flat: bool = False
    check: bool = False
    kept: Case | None = None


@dataclass(slots=True)
class GenerationSummary:
    """What was made so far. `values` counts a search's answers by how they were found; `last` is the latest
    program's bytes.
    """

    models: int = 0
    nodes: int = 0
    valid: int = 0
    seconds_cpu: float = 0.0
    started: float = field(default_factory=time.monotonic)
    strategies: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] | None = None
    refused: list[tuple[str, str]] = field(default_factory=list)
    last: bytes | None = None

    def facts(self, request: GenerationRequest) -> dict[str, Any]:
        """The keys of `opsieve gen --json` (docs/reference/json.md)."""
        facts: dict[str, Any] = {
            "models": self.models,
            "nodes": self.nodes,
            "seconds_cpu": round(self.seconds_cpu, 3),
            "seconds_wall": round(time.monotonic() - self.started, 3),
            "models_per_cpu_second": round(self.models / self.seconds_cpu, 1) if self.seconds_cpu else 0.0,
            "valid": self.valid if request.check else None,
            "strategies": dict(sorted(self.strategies.items())),
            "values": None if self.values is None else dict(sorted(self.values.items())),
            "out": None if request.out is None else str(request.out),
        }
        if request.kept is not None:
            facts["identical"] = self.last == request.kept.program.data
        return facts


def repeat_request(origin: Path) -> GenerationRequest:
    """What makes the program of a case folder, or of its case.json, again. BadInput when it does not record a
    generator and a seed.
    """
    case = load(origin.parent if origin.name == "case.json" else origin)
    made = case.origin
    if made.generator not in strategies.list_names() or made.seed is None:
        raise BadInput(
            f"{shown(origin, 200)} records no generator and seed (its generator is {shown(made.generator)})"
        )
    program = gen_request.from_record(made.wish)
    named = [part.rsplit(" ", 2)[0] for part in program.target.split(" + ")] if program.target else []
    return GenerationRequest(
        program, made.generator, made.seed, models=1, targets=tuple(map(resolve, named)), kept=case
    )


def supported(
    workers: Workers, targets: Sequence[ResolvedTarget], program: GenRequest | None, show: Probing
) -> list[Support]:
    """What the targets support of what a request allows, probed now where it is not known; BadInput when a
    target is not installed.
    """
    only = None if program is None or program.only is None else sorted(program.only)
    dtypes = None if program is None or program.dtypes is None else sorted(program.dtypes)
    try:
        return probed(workers, targets, only, dtypes, show=show)
    except Unavailable as error:
        raise BadInput(f"{error}; leave that target out, or install it (see opsieve doctor)") from None


def generate_programs(
    request: GenerationRequest, summary: GenerationSummary, probing: Probing, say: Callable[[str], None]
) -> Iterator[int]:
    """Make, check and write the programs; yields how many there are, group by group. What is written is
    always whole.
    """
    strategies.load_strategy(request.strategy)  # an unknown name is refused before anything is probed
    if (
        request.out is not None
        and request.out.exists()
        and (not request.out.is_dir() or any(request.out.iterdir()))
    ):
        raise BadInput(f"{shown(request.out, 200)} is not empty: name a new directory")
    with Workers() as workers:
        program = _within_targets(request, workers, probing)
        if request.corpus is not None:
            if request.strategy not in _READERS:
                raise BadInput(f"--corpus needs --strategy {', '.join(_READERS)}: these start from models")
            models, unusable = _READERS[request.strategy](request.corpus, workers)
            program = replace(program, corpus=models)
            for line in unusable:
                say(line)
        for group in _groups(request, program, summary):
            cases = _searched(group, workers, summary) if program.values == SEARCH else group
            if request.check:
                _check(cases, workers, summary)
            _keep(cases, request, summary)
            yield summary.models


def _within_targets(request: GenerationRequest, workers: Workers, probing: Probing) -> GenRequest:
    """The request for programs that all targets support, leaving out what is broken in them."""
    if not request.targets:
        return request.program
    supports = supported(workers, request.targets, request.program, probing)
    sound = [support.soundly() for support in supports]
    repeats = request.kept is not None
    if not repeats or tables(sound) == request.program.target:  # `fuzz` also generates what is broken
        supports = sound
    named = tables(supports)
    if repeats and named != request.program.target:
        raise BadInput(
            f"the case was made for {request.program.target}, but this machine has {named}: install that"
            " version, or use the opsieve that made the case"
        )
    return replace(request.program, supports=both(supports), target=named)


def _groups(
    request: GenerationRequest, program: GenRequest, summary: GenerationSummary
) -> Iterator[list[Named]]:
    """The cases with their names, some at a time; only making them counts as their time."""
    end = request.seed + request.models
    for start in range(request.seed, end, GROUP):
        began = time.process_time()
        group = [
            (f"{request.strategy}-{number}", strategies.generate(request.strategy, number, program))
            for number in range(start, min(start + GROUP, end))
        ]
        summary.seconds_cpu += time.process_time() - began
        yield group


def _searched(group: list[Named], workers: Workers, summary: GenerationSummary) -> list[Named]:
    """The cases with values, and weights, that keep every intermediate finite, where such values are
    found.
    """
    cases = [case for _, case in group]
    counts = summary.values = summary.values or {}
    found_all = searched(cases, [case.origin.seed or 0 for case in cases], workers, Effort(weights=True))
    for found in found_all:
        counts[found.how] = counts.get(found.how, 0) + 1
    return [(name, with_found(case, found)) for (name, case), found in zip(group, found_all, strict=True)]


def _check(group: Sequence[Named], workers: Workers, summary: GenerationSummary) -> None:
    by_validator: dict[ResolvedTarget, list[Named]] = {}
    for name, case in group:
        by_validator.setdefault(get_validator(case.program), []).append((name, case))
    for validator, named in by_validator.items():
        tests = [Test(case.program, case.inputs) for _, case in named]
        for (name, case), answer in zip(named, workers.observe_many(validator, tests), strict=True):
            # What was made wrong of TVM's IR is as it should be when it is refused; onnx's checker sees few
            # of the wrong models.
            wrong = case.program.fault is not None and get_checker(case.program) is None
            if (answer.outcome == "ok") != wrong:
                summary.valid += 1
            else:
                summary.refused.append((name, "made wrong, but accepted" if wrong else answer.message[:300]))


def _keep(group: Sequence[Named], request: GenerationRequest, summary: GenerationSummary) -> None:
    """Write and count a group."""
    for name, case in group:
        if request.out is not None and request.flat:
            request.out.mkdir(parents=True, exist_ok=True)
            (request.out / f"{name}{ir_of(case.program).suffix}").write_bytes(case.program.data)
        elif request.out is not None:
            with _uninterrupted():
                save(case, request.out / name)
        summary.models += 1
        summary.nodes += case.program.size
        summary.strategies[case.origin.generator] = summary.strategies.get(case.origin.generator, 0) + 1
        summary.last = case.program.data


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until what is within is done, so that no case is left half written."""
    interrupted: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _frame: interrupted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if interrupted:
        raise KeyboardInterrupt
