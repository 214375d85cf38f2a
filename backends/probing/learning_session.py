"""`opsieve learn`: probe the operators of a domain in workers, one after the other, and keep each result."""

import functools
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import helper, numpy_helper

from opsieve.backends.observation import Observation
from opsieve.backends.probing.domain_schemas import OPSET, DomainSchema, read_schemas
from opsieve.backends.probing.learning import Learnt, learn_operator
from opsieve.backends.probing.trials import Trial, TrialAnswer, TrialInput, draw_elements
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.data import inputs
from opsieve.gen.declarations import learned
from opsieve.gen.declarations.catalogue import domain_version
from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.learned_file import parse_toml, write_toml
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.tensors import NUMBERS, dtype_name
from opsieve.version import VERSION

# Patterns for unwritten memory: zeros, and large numbers.
FILLS = 0x00, 0x7F
_UNWRITTEN = "its results hang on memory that nobody wrote"
# The limit in seconds for one instance, all of which are small.
SECONDS = 2.0
_DIED = ("crash", "hang", "out-of-memory")


@dataclass(frozen=True, slots=True)
class LearnRequest:
    """The operators of a domain to learn (empty: all with a kernel), the compiler, and the seed."""

    domain: str
    target: ResolvedTarget
    only: frozenset[str] = frozenset()
    seed: int = 0


def learn_operators(request: LearnRequest, workers: Workers, cache: Path) -> Iterator[Learnt]:
    """Yield the result for each operator by name; known results of the same compiler and seed are reused."""
    schemas = [schema for schema in read_schemas(request.domain) if schema.kernel]
    unknown = sorted(request.only - {schema.name for schema in schemas})
    if unknown:
        raise BadInput(f"{request.domain} has no operator {unknown[0]} with a kernel for the CPU")
    asker = Asker(request, workers)
    version = workers.version(request.target)
    for schema in schemas:
        if not request.only or schema.name in request.only:
            key = (
                f"{_hash_sources()} {request.domain} {schema.name} {schema.since} {request.target.display}"
                f" {version} {request.seed}"
            )
            path = cache / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
            found = _read_kept(path)
            if found is None:
                found = learn_operator(schema, request.domain, asker.run_trials, request.seed)
                _write_kept(path, found)
            yield found


def export_learnt(request: LearnRequest, found: Sequence[Learnt], version: str) -> str:
    """Write the learnt declarations as a file."""
    declared = [each.operator for each in found if each.operator is not None]
    left = [f"{each.name}: {each.reason}" for each in found if each.operator is None]
    head = [
        f"opsieve {VERSION} learn {request.domain} -t {request.target.display} --seed {request.seed}",
        f"from {request.target.display} {version}, {time.strftime('%Y-%m-%d')}",
        *(["not learnt:", *left] if left else []),
    ]
    return write_toml(declared, "\n".join(" ".join(line.split()) for line in head))


@functools.cache
def _hash_sources() -> str:
    """Return a digest of everything that determines an answer here: this package, the instance writers,
    onnx's version.
    """
    digest = hashlib.sha256(onnx.__version__.encode())
    for path in sorted((*Path(__file__).parent.glob("*.py"), Path(inputs.__file__), Path(learned.__file__))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Asker:
    """Runs instances of operators as programs of one node."""

    def __init__(self, request: LearnRequest, workers: Workers) -> None:
        self._request, self._workers = request, workers

    def run_trials(self, schema: DomainSchema, trials: Sequence[Trial]) -> list[TrialAnswer]:
        """Run instances; accepted ones once more in other memory, and those that differ a third time as at
        first.
        """
        tests = [self._make_test(schema, trial) for trial in trials]
        found = self._observe_tests(tests, FILLS[0])
        accepted = [place for place, answer in enumerate(found) if answer.outputs is not None]
        others = self._observe_tests([tests[place] for place in accepted], FILLS[1])
        differing = [place for place, other in zip(accepted, others, strict=True) if other != found[place]]
        for place, again in zip(
            differing, self._observe_tests([tests[p] for p in differing], FILLS[0]), strict=True
        ):
            varies = again.outputs is not None and again != found[place]
            found[place] = replace(again, varies=True) if varies else TrialAnswer(None, _UNWRITTEN)
        return found

    def _observe_tests(self, tests: Sequence[Test], fill: int) -> list[TrialAnswer]:
        filled = [replace(test, fill=fill) for test in tests]
        return [
            _make_answer(observed) for observed in self._workers.observe_many(self._request.target, filled)
        ]

    def _make_test(self, schema: DomainSchema, trial: Trial) -> Test:
        names = ["" if each is None else f"x{place}" for place, each in enumerate(trial.inputs)]
        outs = [f"y{place}" for place, slot in enumerate(schema.outputs) if not slot.optional] or ["y0"]
        attributes = {
            name: value.graph(name) if isinstance(value, LearnedBody) else value
            for name, value in trial.attributes.items()
        }
        node = helper.make_node(schema.name, names, outs, domain=self._request.domain, **attributes)
        there = [(name, each) for name, each in zip(names, trial.inputs, strict=True) if each is not None]
        fed = [(name, each) for name, each in there if not _is_initializer(each)]
        values = {name: draw_elements(trial, place) for place, name in enumerate(names) if name}
        graph = helper.make_graph(
            [node],
            "learn",
            [_make_info(name, each) for name, each in fed],
            [helper.make_empty_tensor_value_info(name) for name in outs],
            [numpy_helper.from_array(values[name], name) for name, each in there if _is_initializer(each)],
        )
        domain = self._request.domain
        imports = [helper.make_opsetid("", OPSET)]
        if domain:
            imports.append(helper.make_opsetid(domain, domain_version(domain)))
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return Test(
            OnnxProgram(model.SerializeToString(), schema.name),
            {name: values[name] for name, _ in fed},
            as_is=True,
        )


def _make_info(name: str, each: TrialInput) -> onnx.ValueInfoProto:
    made = helper.make_sparse_tensor_value_info if each.sparse else helper.make_tensor_value_info
    return made(name, NUMBERS[each.dtype], each.shape)


def _is_initializer(each: TrialInput) -> bool:
    return not each.sparse and (each.constant or bool(each.values))


def _make_answer(observed: Observation) -> TrialAnswer:
    if observed.outputs is None:
        return TrialAnswer(None, observed.message or observed.outcome, observed.outcome in _DIED)
    arrays = [value for value in observed.outputs.values() if isinstance(value, np.ndarray)]
    if len(arrays) != len(observed.outputs):
        return TrialAnswer(None, "an output is no tensor")
    digest = hashlib.sha256(
        b"".join(repr(a.tolist()).encode() if a.dtype == object else a.tobytes() for a in arrays)
    )
    return TrialAnswer(
        tuple((dtype_name(array), array.shape) for array in arrays), digest=digest.hexdigest()[:16]
    )


def _read_kept(path: Path) -> Learnt | None:
    """Read the kept result of an operator; None if it is missing or damaged."""
    try:
        name, text, reason, asked, died = msgspec.json.decode(
            path.read_bytes(), type=tuple[str, str, str, int, int]
        )
        return Learnt(name, parse_toml(text)[0] if text else None, reason, asked, died)
    except (OSError, msgspec.MsgspecError, ValueError, BadInput, IndexError):
        return None


def _write_kept(path: Path, found: Learnt) -> None:
    text = write_toml([found.operator]) if found.operator is not None else ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode((found.name, text, found.reason, found.asked, found.died)))
    except OSError as error:
        raise BadInput(
            f"cannot keep what was learnt in {path.parent}: {error.strerror}; set OPSIEVE_STORE to a folder"
            " that can be written"
        ) from None
