"""What a compiler has: one-operator programs, run once per version, so that no test is wasted on "not implemented".

Of every declared operator, form and first dtype instances are drawn until no new signature turns up, and one or two of each signature
are run. A signature is the operator, its form, the dtypes of its inputs, and attributes that choose another kernel. One whose instances
are refused as unsupported is not generated; where that depends on the rank of the first input alone, those ranks are not. A signature that was
never drawn is allowed, unless others of the same operator and form were refused. One that the compiler has, but fails at or gives
another shape for than declared, is broken: a bug, kept apart, and left out by `sound` for who wants programs that run. Answers are kept in a
file for each target, version and state of the declarations, line by line, so that a probe that was interrupted goes on.
"""

import functools
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.generation.generator_version import generator_version
from opsieve.gen.generation.random_graph import SUPPORTED, GenRequest, finish, single_node
from opsieve.gen.model.bad_input import BadInput
from opsieve.gen.model.tensors import TensorType
from opsieve.gen.spec.catalogue import OpChoice, first_dtypes, operators, qualified
from opsieve.gen.spec.declaration import Operator
from opsieve.gen.spec.domains import ANY
from opsieve.gen.spec.dtype_facts import PLAIN
from opsieve.gen.spec.schema import OLDEST, form
from opsieve.gen.spec.tensor import Attributes, Tensor

_DRAWS = 100  # instances drawn of an operator, form and first dtype, at most
_PATIENCE = 60  # draws in a row without a new signature, after which no more are made
_RUNS = 2  # instances of a signature that are run, of different ranks where there are
# Compilers that take a tenth of a second for one operator are asked about the commonest first dtypes only, one instance of a
# signature; what they were not asked about is not generated for them.
_SLOW = frozenset(("tvm", "onnxsim", "inductor", "torch-exporter", "tinygrad"))
_COMMON = frozenset(("float32", "float16", "int64", "int32", "uint8", "bool"))
_CHOOSY = "dilated"  # what hangs on sizes too: more instances of such a signature are run
_RUNS_CHOOSY = 8
_DRAWS_CHOOSY = 1000  # without patience: paddings that follow from dilations are seldom drawn, and a bug in them shows at some sizes
_CHUNK = 24  # operators with a form and a dtype between two writes
_MAX_FILE = 64 << 20
# Attributes that choose another kernel: a fact of the attribute, whichever operator has it, those of users included.
_WAYS = ("to", "reduction", "approximate", "mode", "auto_pad", "layout", "dtype", "output_datatype", "nearest_mode")
_REFUSED = ("unsupported", "environment")
_WRONG_SHAPE = "wrong-shape"
_BROKEN = ("error", "crash", "rejected", _WRONG_SHAPE)  # a hang or a lack of memory may be the machine's


class _Line(msgspec.Struct, array_like=True):
    """One answer: what was probed, its signature and rank, how it ended, what was said. The last of a probe has no signature."""

    probe: str
    signature: str
    rank: int
    outcome: str
    message: str


@dataclass(frozen=True, slots=True)
class Probe:
    """What is drawn together: an operator whose first input has a dtype, at an opset."""

    operator: Operator
    opset: int
    dtype: str

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return f"{qualified(self.operator)} {self.opset} {self.dtype}"


def signature(operator: Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int) -> str:
    """What support depends on: `Cast 13 float32 to=10`."""
    had = None if operator.domain else form(operator.name, opset)
    dtypes = [tensor.dtype if tensor is not None else "-" for tensor in ins]
    if had is not None and had.inputs and had.inputs[-1].variadic:
        dtypes = [dtype for place, dtype in enumerate(dtypes) if not place or dtype != dtypes[place - 1]]
    elif len(dtypes) > 3:  # many of which are left out, in many ways
        dtypes = [dtype for dtype in dtypes if dtype != "-"]
    key = f"{qualified(operator)} {had.since if had else 0} {','.join(dtypes)}"
    for name in _WAYS:
        if name in attrs:
            key += f" {name}={attrs[name]}"
    if "dilations" in attrs and max(attrs["dilations"]) > 1:
        key += " dilated"
    if "output_padding" in attrs:
        extra = attrs["output_padding"]
        if any(pad >= stride for pad, stride in zip(extra, attrs.get("strides") or [1] * len(extra), strict=True)):
            key += " padded-beyond-stride"  # where dilations allow it
    if operator.name == "SequenceMap":  # a function, into which those of its body are inlined in turn
        key += f" body={attrs['body'].nodes[-1].op}"
    return key


def kin(key: str) -> str:
    """What signatures share of which one is broken and the others are likely to be: `Resize 19 int8 mode=cubic`.

    Where an attribute chooses the kernel that is all but the dtypes of further inputs, and where it hangs on sizes all but the dtypes;
    else it is all of it.
    """
    name, since, dtypes, *ways = key.split(" ")
    if _CHOOSY in ways:
        dtypes = "*"
    return " ".join((name, since, dtypes.partition(",")[0], *ways)) if ways else key


def probes(
    only: Collection[str] | None = None, dtypes: Collection[str] | None = None, newest: int = SUPPORTED
) -> list[Probe]:
    """What is to be run: every operator (those of `only`), every form from opset 13 on, every first dtype (those of `dtypes`)."""
    found = []
    for name, operator in operators().items():
        if (operator.domain and only is None) or (only is not None and name not in only):
            continue
        last: dict[int, int] = {}
        for opset in range(OLDEST, newest + 1):
            had = form(operator.name, opset) if not operator.domain else None
            if operator.domain or (had is not None and opset >= operator.since):
                last[had.since if had else 0] = opset
        for opset in last.values():
            allowed = sorted(first_dtypes(operator, opset))
            found += [Probe(operator, opset, dtype) for dtype in allowed if dtypes is None or dtype in dtypes]
    return found


@dataclass(frozen=True, eq=False)
class Support:
    """What one version of a target has. `reasons` tells for each refused signature what the compiler said.

    Tables with the same answers are equal, whoever read them: requests that carry them are compared for every program.

    `by_rank` is of signatures that are refused at some ranks only, `known` are all that were run, `doubtful` the beginnings of
    signatures (operator, form) of which some were refused, `dtypes` those that were asked about (None: all). `broken` tells what
    went wrong with what is there, by `kin` of signatures; it is allowed all the same unless `sound`.
    """

    target: str
    version: str
    reasons: Mapping[str, str]
    by_rank: Mapping[tuple[str, int], str]
    known: frozenset[str]
    doubtful: frozenset[str]
    dtypes: frozenset[str] | None = None
    broken: Mapping[str, str] = field(default_factory=dict)
    sound: bool = False

    def soundly(self) -> "Support":
        """The same, without what is broken."""
        return replace(self, sound=True)

    @functools.cached_property
    def digest(self) -> str:
        """Twelve digits that tell tables with other answers from this one."""
        broken = sorted(self.broken) if self.sound else []
        answers = (sorted(self.reasons), sorted(self.by_rank), sorted(self.known), sorted(self.doubtful), broken)
        return hashlib.sha256(repr(answers).encode()).hexdigest()[:12]

    @functools.cached_property
    def _identity(self) -> tuple[object, ...]:
        return self.target, self.version, self.digest, self.dtypes, self.sound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Support) and (self is other or self._identity == other._identity)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __call__(self, operator: Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int) -> bool:
        """Whether an instance is worth a test."""
        key = signature(operator, ins, attrs, opset)
        if self.sound and kin(key) in self.broken:
            return False
        if key in self.known:
            return key not in self.reasons and (not self.by_rank or (key, _rank(ins)) not in self.by_rank)
        if self.dtypes is not None and not _plain((*key.split(" ", 3), "", "")[2].partition(",")[0]) <= self.dtypes:
            return False
        return _beginning(key) not in self.doubtful


def both(supports: Sequence[Support]) -> Support | None:
    """What every one of some targets has; None when there are none. Equal tables give one and the same object."""
    if not supports:
        return None
    return supports[0] if len(supports) == 1 else _shared(tuple(supports))


@functools.lru_cache(maxsize=64)
def _shared(supports: tuple[Support, ...]) -> Support:
    limits = [support.dtypes for support in supports if support.dtypes is not None]
    return Support(
        " and ".join(support.target for support in supports),
        "",
        {key: reason for support in supports for key, reason in support.reasons.items()},
        {key: reason for support in supports for key, reason in support.by_rank.items()},
        frozenset.intersection(*(support.known for support in supports)),
        frozenset().union(*(support.doubtful for support in supports)),
        frozenset.intersection(*limits) if limits else None,
        {key: reason for support in supports if support.sound for key, reason in support.broken.items()},
        any(support.sound for support in supports),
    )


def probed(
    workers: Workers,
    targets: Sequence[ResolvedTarget],
    only: Collection[str] | None = None,
    dtypes: Collection[str] | None = None,
    folder: Path | None = None,
    show: Callable[[str, int, int], None] | None = None,
) -> list[Support]:
    """What each target has, of these operators and first dtypes (None: all). What is not known yet is probed now.

    `show` is called with a target, how many probes of it are done, and how many there are. Unavailable where a target is not there.
    """
    found = []
    for target in targets:
        prober = Prober(workers, target, folder)
        wanted = probes(only, dtypes if not prober.slow else _COMMON if dtypes is None else _COMMON & frozenset(dtypes))
        for done in prober.run(wanted):
            if show is not None:
                show(prober.target.display, done, len(wanted))
        found.append(prober.support(wanted))
    return found


def tables(supports: Sequence[Support]) -> str:
    """Names for tables and what is in them: `onnxruntime 1.31.1 3f0c12ab98d1`."""
    return " + ".join(f"{support.target} {support.version} {support.digest}" for support in supports)


def explained(support: Support) -> list[str]:
    """Why operators are dropped, or what is broken: a line for each operator, form and reason, with the dtypes that it is about."""
    of_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    refused = [(key, "", reason) for key, reason in support.reasons.items()]
    refused += [(key, f" of rank {rank}", reason) for (key, rank), reason in support.by_rank.items()]
    refused += [(key, "", f"broken: {reason}") for key, reason in support.broken.items()]
    for key, rank, reason in refused:
        name, since, rest = (*key.split(" ", 2), "")[:3]
        plain = re.sub(r"(?<=name )'[^']{0,80}'|\b[nvcx]\d++", "...", " ".join(reason.split()))
        of_reason[f"{name}-{since}", plain[:200]].append((rest or "no inputs") + rank)
    lines = []
    for (name, reason), what in sorted(of_reason.items()):
        shortened = what if len(what) <= 6 else [*what[:6], f"{len(what) - 6} more"]
        lines.append(f"{name} ({'; '.join(shortened)}): {reason or 'no message'}")
    return lines


def _beginning(key: str) -> str:
    """The operator and form of a signature."""
    return " ".join(key.split(" ", 2)[:2])


def _plain(dtype: str) -> frozenset[str]:
    """The dtype of the elements of a first input; none without one."""
    return frozenset((dtype.rpartition("(")[2].rstrip(")"),)) - {"", "-"}


def _rank(ins: Sequence[Tensor | None]) -> int:
    """The rank of the first input that is there; 0 without one."""
    for tensor in ins:
        if tensor is not None:
            return len(tensor.shape)
    return 0


class Prober:
    """Probes one target, in chunks; `support` tells what is known so far.

    Answers are appended to a file in `folder` (the user's cache unless given). BadInput when it cannot be written.
    """

    def __init__(self, workers: Workers, target: ResolvedTarget, folder: Path | None = None) -> None:
        self.target = target
        self.version = workers.version(self.target)
        self.slow = self.target.name in _SLOW
        self._workers = workers
        self._path = (folder or _default_folder()) / f"{_slug(self.target.display, self.version)}.jsonl"
        self._lines = _read(self._path)

    def missing(self, wanted: Sequence[Probe]) -> list[Probe]:
        """The probes that were not run yet."""
        done = {line.probe for line in self._lines}
        return [probe for probe in wanted if probe.name not in done]

    def run(self, wanted: Sequence[Probe]) -> Iterator[int]:
        """Run what is missing; yields how many are done each time some were, and have been written down."""
        left = self.missing(wanted)
        done = len(wanted) - len(left)
        for start in range(0, len(left), _CHUNK):
            chunk = left[start : start + _CHUNK]
            made = [(probe, *instance) for probe in chunk for instance in _instances(probe, 1 if self.slow else _RUNS)]
            answers = self._workers.observe_many(self.target, [test for *_, test in made])
            lines = [
                _Line(probe.name, key, rank, *_ending(test, answer))
                for (probe, key, rank, test), answer in zip(made, answers, strict=True)
            ]
            lines += [_Line(probe.name, "", 0, "done", "") for probe in chunk]
            _append(self._path, lines)
            self._lines += lines
            done += len(chunk)
            yield done

    def support(self, wanted: Sequence[Probe] | None = None) -> Support:
        """What the answers so far say, of some probes or of all."""
        asked = None if wanted is None else {probe.name for probe in wanted}
        outcomes: dict[str, list[_Line]] = defaultdict(list)
        for line in self._lines:
            if line.signature and (asked is None or line.probe in asked):
                outcomes[line.signature].append(line)
        refused: dict[str, str] = {}
        by_rank: dict[tuple[str, int], str] = {}
        broken: dict[str, str] = {}
        for key, lines in outcomes.items():
            wrong = [line for line in lines if line.outcome in _BROKEN]
            if wrong:
                broken.setdefault(kin(key), wrong[0].message)
            bad = [line for line in lines if line.outcome in _REFUSED]
            good = {line.rank for line in lines if line.outcome not in _REFUSED}
            if bad and ("=" in key or not good - {line.rank for line in bad}):
                refused[key] = bad[0].message
            else:
                by_rank |= {(key, line.rank): line.message for line in bad}
        return Support(
            self.target.display,
            self.version,
            refused,
            by_rank,
            frozenset(outcomes),
            frozenset(map(_beginning, (*refused, *(key for key, _ in by_rank)))),
            _COMMON if self.slow else None,
            broken,
        )


def _ending(test: Test, answer: Observation) -> tuple[str, str]:
    """How a probe ended, and what is to be said of it."""
    for name, declared in test.program.outputs().items() if answer.outputs is not None else ():
        given = (answer.outputs or {}).get(name)
        if isinstance(declared, TensorType) and declared.shape is not None and isinstance(given, np.ndarray):
            sides = zip(declared.shape, given.shape, strict=False)
            if given.ndim != len(declared.shape) or any(isinstance(p, int) and p != q for p, q in sides):
                return _WRONG_SHAPE, f"gives {list(given.shape)} where {list(declared.shape)} is right"
    return answer.outcome, answer.message[:300]


def _instances(probe: Probe, runs: int = _RUNS) -> Iterator[tuple[str, int, Test]]:
    """Signature, rank and program of the instances to run."""
    operator = probe.operator
    safe = operator.safe[0] if operator.safe else ANY
    choice = OpChoice(operator, frozenset((probe.dtype,)), (probe.dtype,), *operator.ranks, safe)
    had = None if operator.domain else form(operator.name, probe.opset)
    windows = had is not None and "dilations" in had.attributes
    most = _RUNS_CHOOSY if runs > 1 else runs + 1
    met: dict[str, list[int]] = {}
    idle = 0
    for seed in range(_DRAWS_CHOOSY if windows else _DRAWS):
        builder = single_node(choice, probe.opset, seed, palette=PLAIN if seed % 2 else ())
        if builder is None or (idle == _PATIENCE and not windows):
            return
        node = builder.nodes[-1]
        key, rank = signature(operator, node.ins, node.attrs, probe.opset), _rank(node.ins)
        idle = idle + 1 if key in met else 0
        ranks = met.setdefault(key, [])
        if len(ranks) >= runs and not (_CHOOSY in key and len(ranks) < most):
            continue
        if rank in ranks and _CHOOSY not in key:
            continue
        ranks.append(rank)
        made = finish(builder, GenRequest(), "probe", seed)
        yield key, rank, Test(made.program, made.inputs)


def _default_folder() -> Path:
    if named := os.environ.get("OPSIEVE_STORE"):
        return Path(named).expanduser() / "support"
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / "support"


def _slug(target: str, version: str) -> str:
    """A file's name for a target and version as the declarations are now: other declarations make other instances."""
    digest = hashlib.sha256(f"{target} {version} {generator_version()}".encode() + Path(__file__).read_bytes())
    readable = "".join(c if c.isalnum() else "-" for c in f"{target}-{version}")[:60]
    return f"{readable}-{digest.hexdigest()[:12]}"


def _read(path: Path) -> list[_Line]:
    """The lines of a file; one that was cut off by a kill is left out, and written anew."""
    try:
        if path.stat().st_size > _MAX_FILE:
            return []
        data = path.read_bytes()
    except OSError:
        return []
    lines = []
    for raw in data.splitlines():
        try:
            lines.append(msgspec.json.decode(raw, type=_Line))
        except msgspec.DecodeError:
            continue
    return lines


def _append(path: Path, lines: Sequence[_Line]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b"".join(b"\n" + msgspec.json.encode(line) for line in lines))
    except OSError as error:
        raise BadInput(
            f"cannot keep what was probed in {path}: {error.strerror}; set OPSIEVE_STORE to a folder that can be written"
        ) from None
