"""Generate programs in bulk, as `opsieve gen` does: restricted to the targets' support, with searched values,
checked, written.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from opsieve.backends.probing import chosen_values, imported_modules, operator_support, prober, value_search
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.programs import get_checker, get_validator, infer_types
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.analysis.reading import UnreadableModel, read
from opsieve.gen.case.case import Case, load, save
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.generation import request as gen_request
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.durable import write_output
from opsieve.gen.model.files import reason
from opsieve.gen.model.program import Program
from opsieve.gen.strategies import registry as strategies
from opsieve.gen.values.values import SEARCH

# Models of one corpus
_MOST = 2000


def load_corpus(folder: Path, workers: Workers) -> tuple[tuple[OnnxProgram, ...], list[str]]:
    """Load the models under a folder that can be mutated, in order of path, and a line for each other one.

    Raises:
        BadInput: If the folder is missing or unreadable, or every model in it is unsuitable.
    """
    if not folder.is_dir():
        raise BadInput(f"the corpus {shown(folder, 160)} is not a folder of models")
    try:
        paths = sorted(path for path in folder.rglob("*.onnx") if path.is_file())[:_MOST]
    except OSError as error:
        raise BadInput(f"the corpus {shown(folder, 160)} cannot be read: {reason(error)}") from None
    loaded: list[OnnxProgram] = []
    refused: list[str] = []
    for path in paths:
        try:
            loaded.append(OnnxProgram(load_program(path).model, str(path.relative_to(folder))))
        except BadInput as error:
            refused.append(str(error))
    found = []
    for program, (model, _) in zip(loaded, infer_types(workers, loaded), strict=True):
        try:
            # Tried once here, so that a campaign does not meet an unreadable model in the middle.
            read(model, seeded_inputs(model, 0))
        except BadInput as error:
            refused.append(
                f"{shown(program.name, 160)} cannot be mutated: {str(error).removesuffix('; give --inputs')}"
            )
            continue
        except UnreadableModel as error:
            refused.append(f"{shown(program.name, 160)} cannot be mutated, it has {shown(str(error), 120)}")
            continue
        # Deterministic, since the bytes are part of what a seed gives.
        found.append(OnnxProgram(model.SerializeToString(deterministic=True), program.name))
    if not found:
        why = f"; {refused[0]}" if refused else ""
        raise BadInput(f"the corpus {shown(folder, 160)} holds no model that can be mutated{why}")
    return tuple(found), refused


# Programs made before they are checked and written.
GROUP = 64
Named = tuple[str, Case]
_READERS: Mapping[str, Callable[[Path, Workers], tuple[tuple[Program, ...], list[str]]]] = {
    "documented": load_corpus,
    "mutate": load_corpus,
    "relax-mutate": partial(imported_modules.load_ir_corpus, "relax"),
}
# (target, probes done, probes in all)
Probing = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Make `models` programs of `strategy` from `seed` on, each by `program`, within the support of all
    `targets`.

    `corpus` is a folder of models for the strategies `documented`, `mutate` and `relax-mutate`. Programs are
    checked with `check`, by onnx.checker or TVM, and written to `out`, as plain .onnx files with `flat`.
    `kept` is the case to repeat, made by `program`, `strategy` and `seed`.
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
    """The results so far. `values` counts a search's results by method; `last` is the latest program's
    bytes.
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

    def list_facts(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the keys of `opsieve gen --json` (docs/reference/json.md)."""
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


def make_repeat_request(origin: Path) -> GenerationRequest:
    """Make the request that regenerates the program of a case folder or case.json.

    Raises:
        BadInput: If it records no generator and seed.
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


def probe_support(
    workers: Workers, targets: Sequence[ResolvedTarget], program: GenRequest | None, show: Probing
) -> list[operator_support.Support]:
    """Return the targets' support for a request, probing unknown parts now; raises BadInput for a missing
    target.
    """
    only = None if program is None or program.only is None else sorted(program.only)
    dtypes = None if program is None or program.dtypes is None else sorted(program.dtypes)
    try:
        return prober.probe_targets(workers, targets, only, dtypes, show=show)
    except Unavailable as error:
        raise BadInput(f"{error}; leave that target out, or install it (see opsieve doctor)") from None


def generate_programs(
    request: GenerationRequest, summary: GenerationSummary, probing: Probing, say: Callable[[str], None]
) -> Iterator[int]:
    """Make, check and write the programs; yield their number group by group. Written files are always
    complete.
    """
    # An unknown name is refused before anything is probed
    strategies.load_strategy(request.strategy)
    if (
        request.out is not None
        and request.out.exists()
        and (not request.out.is_dir() or any(request.out.iterdir()))
    ):
        raise BadInput(f"{shown(request.out, 200)} is not empty: name a new directory")
    with Workers() as workers:
        program = _restrict_request(request, workers, probing)
        if request.corpus is not None:
            if request.strategy not in _READERS:
                raise BadInput(f"--corpus needs --strategy {', '.join(_READERS)}: these start from models")
            models, unusable = _READERS[request.strategy](request.corpus, workers)
            program = replace(program, corpus=models)
            for line in unusable:
                say(line)
        for group in _iter_groups(request, program, summary):
            cases = _search_values(group, workers, summary) if program.values == SEARCH else group
            if request.check:
                _check_group(cases, workers, summary)
            _write_group(cases, request, summary)
            yield summary.models


def _restrict_request(request: GenerationRequest, workers: Workers, probing: Probing) -> GenRequest:
    """Restrict the request to programs that all targets support, without their broken operators."""
    if not request.targets:
        return request.program
    supports = probe_support(workers, request.targets, request.program, probing)
    sound = [support.without_broken() for support in supports]
    repeats = request.kept is not None
    # `fuzz` also generates what is broken
    if not repeats or operator_support.name_tables(sound) == request.program.target:
        supports = sound
    named = operator_support.name_tables(supports)
    if repeats and named != request.program.target:
        raise BadInput(
            f"the case was made for {request.program.target}, but this machine has {named}: install that"
            " version, or use the opsieve that made the case"
        )
    return replace(request.program, supports=operator_support.share_support(supports), target=named)


def _iter_groups(
    request: GenerationRequest, program: GenRequest, summary: GenerationSummary
) -> Iterator[list[Named]]:
    """Yield named cases in groups; only making them counts as generation time."""
    end = request.seed + request.models
    for start in range(request.seed, end, GROUP):
        began = time.process_time()
        group = []
        for number in range(start, min(start + GROUP, end)):
            more, sibling = divmod(number - request.seed, program.siblings)
            asked = replace(program, sibling=program.sibling + sibling)
            made = strategies.generate(request.strategy, request.seed + more, asked)
            group.append((f"{request.strategy}-{number}", made))
        summary.seconds_cpu += time.process_time() - began
        yield group


def _search_values(group: list[Named], workers: Workers, summary: GenerationSummary) -> list[Named]:
    """Search values, and weights, that keep every intermediate finite."""
    cases = [case for _, case in group]
    counts = summary.values = summary.values or {}
    found_all = chosen_values.search_cases(
        cases, [case.origin.seed or 0 for case in cases], workers, value_search.Effort(weights=True)
    )
    for found in found_all:
        counts[found.how] = counts.get(found.how, 0) + 1
    return [
        (name, chosen_values.apply_found(case, found))
        for (name, case), found in zip(group, found_all, strict=True)
    ]


def _check_group(group: Sequence[Named], workers: Workers, summary: GenerationSummary) -> None:
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


def _write_group(group: Sequence[Named], request: GenerationRequest, summary: GenerationSummary) -> None:
    """Write and count a group."""
    for name, case in group:
        if request.out is not None and request.flat:
            request.out.mkdir(parents=True, exist_ok=True)
            write_output(request.out / f"{name}{ir_of(case.program).suffix}", case.program.data)
        elif request.out is not None:
            with _delay_interrupt():
                save(case, request.out / name)
        summary.models += 1
        summary.nodes += case.program.size
        summary.strategies[case.origin.generator] = summary.strategies.get(case.origin.generator, 0) + 1
        summary.last = case.program.data


@contextmanager
def _delay_interrupt() -> Iterator[None]:
    """Delay Ctrl-C until the block is done, so that every case is written completely."""
    interrupted: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _frame: interrupted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if interrupted:
        raise KeyboardInterrupt
