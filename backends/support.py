"""What a compiler has: one-operator programs, run once per version, so that no test is wasted on "not implemented".

Of every declared operator, form and first dtype some instances are drawn and run. An instance that is refused as
unsupported counts against its signature: the operator, its form, the dtypes of its inputs, and attributes that choose another kernel. Where some
instances of a signature run and some do not, the rank of the first input is part of it. What was never probed is allowed: the test
itself will tell. Answers are kept in a file for each target, version and state of the declarations, line by line, so that a probe
that was interrupted goes on.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opsieve.backends.registry import display, resolve
from opsieve.backends.target import Target
from opsieve.backends.workers import Test, Workers
from opsieve.gen.bad_input import BadInput
from opsieve.gen.catalogue import first_dtypes, operators, qualified
from opsieve.gen.declaration import ANY, Attributes, Operator, Tensor
from opsieve.gen.growth import SUPPORTED, Wish, case, single
from opsieve.gen.schema import OLDEST, form
from opsieve.gen.sketch import Choice, Supports

_INSTANCES = 3
_CHUNK = 256
_MAX_FILE = 64 << 20
_WAYS = ("to", "reduction", "approximate", "mode")  # attributes that choose another kernel
_REFUSED = ("unsupported", "environment")


class _Line(msgspec.Struct, array_like=True):
    """One answer: what was probed, its signature and rank, how it ended, what was said."""

    probe: str
    signature: str
    rank: int
    outcome: str
    message: str


@dataclass(frozen=True, slots=True)
class Probe:
    """One instance to run: an operator whose first input has a dtype, at an opset."""

    operator: Operator
    opset: int
    dtype: str
    seed: int

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return f"{qualified(self.operator)} {self.opset} {self.dtype} {self.seed}"


def signature(operator: Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int) -> str:
    """What support depends on: `Cast 13 float32 to=10`."""
    had = None if operator.domain else form(operator.name, opset)
    dtypes = (
        dict.fromkeys(tensor.dtype for tensor in ins if tensor is not None)
        if len(ins) > 3
        else [tensor.dtype if tensor is not None else "-" for tensor in ins]
    )
    ways = "".join(f" {name}={attrs[name]}" for name in _WAYS if name in attrs)
    return f"{qualified(operator)} {had.since if had else 0} {','.join(dtypes)}{ways}"


def probes(
    only: Sequence[str] | None = None, dtypes: Sequence[str] | None = None, newest: int = SUPPORTED
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
            for dtype in sorted(first_dtypes(operator, opset)):
                if dtypes is None or dtype in dtypes:
                    found += [Probe(operator, opset, dtype, seed) for seed in range(_INSTANCES)]
    return found


@dataclass(frozen=True, slots=True)
class Support:
    """What one version of a target has. `reasons` tells for each refused signature what the compiler said."""

    target: str
    version: str
    probed: int
    refused: Mapping[str, str]
    by_rank: Mapping[tuple[str, int], str]

    def allows(self, operator: Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int) -> bool:
        """Whether an instance is worth a test: its signature was not refused."""
        told = signature(operator, ins, attrs, opset)
        if told in self.refused:
            return False
        first = next((tensor for tensor in ins if tensor is not None), None)
        return first is None or (told, len(first.shape)) not in self.by_rank


def both(supports: Sequence[Support]) -> Supports | None:
    """What every one of some targets has; None when there are none."""
    if not supports:
        return None
    refused = frozenset().union(*(support.refused for support in supports))
    by_rank = frozenset().union(*(support.by_rank for support in supports))

    def allows(operator: Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int) -> bool:
        told = signature(operator, ins, attrs, opset)
        if told in refused:
            return False
        first = next((tensor for tensor in ins if tensor is not None), None)
        return first is None or (told, len(first.shape)) not in by_rank

    return allows


class Prober:
    """Probes one target, in chunks; `support` tells what is known so far.

    Answers are appended to a file in `folder` (the user's cache unless given). BadInput when it cannot be written.
    """

    def __init__(self, workers: Workers, target: Target, folder: Path | None = None) -> None:
        self.target = resolve(target)
        self.version = workers.version(self.target)
        self._workers = workers
        self._path = (folder or _default_folder()) / f"{_slug(display(self.target), self.version)}.jsonl"
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
            made = [(probe, *_instance(probe)) for probe in left[start : start + _CHUNK]]
            runs = [(probe, told, rank, test) for probe, told, rank, test in made if test is not None]
            answers = self._workers.observe_many(self.target, [test for *_, test in runs])
            lines = [
                _Line(probe.name, told, rank, answer.outcome, answer.message[:300])
                for (probe, told, rank, _), answer in zip(runs, answers, strict=True)
            ]
            lines += [_Line(probe.name, "", 0, "none", "") for probe, _, _, test in made if test is None]
            _append(self._path, lines)
            self._lines += lines
            done += len(made)
            yield done

    def support(self) -> Support:
        """What the answers so far say."""
        outcomes: dict[str, list[_Line]] = defaultdict(list)
        for line in self._lines:
            if line.signature:
                outcomes[line.signature].append(line)
        refused: dict[str, str] = {}
        by_rank: dict[tuple[str, int], str] = {}
        for told, lines in outcomes.items():
            bad = [line for line in lines if line.outcome in _REFUSED]
            if len(bad) == len(lines):
                refused[told] = bad[0].message
            elif bad:
                good = {line.rank for line in lines if line.outcome not in _REFUSED}
                by_rank |= {(told, line.rank): line.message for line in bad if line.rank not in good}
        return Support(display(self.target), self.version, len(self._lines), refused, by_rank)


def _instance(probe: Probe) -> tuple[str, int, Test | None]:
    operator = probe.operator
    safe = operator.safe[0] if operator.safe else ANY
    choice = Choice(operator, frozenset((probe.dtype,)), (probe.dtype,), *operator.ranks, safe)
    sketch = single(choice, probe.opset, probe.seed)
    if sketch is None:
        return "", 0, None
    node = sketch.nodes[-1]
    first = next((tensor for tensor in node.ins if tensor is not None), None)
    made = case(sketch, Wish(), "probe", probe.seed)
    told = signature(operator, node.ins, node.attrs, probe.opset)
    return told, len(first.shape) if first is not None else 0, Test(made.program, made.inputs)


def _default_folder() -> Path:
    if named := os.environ.get("OPSIEVE_STORE"):
        return Path(named).expanduser() / "support"
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / "support"


def _slug(target: str, version: str) -> str:
    """A file's name for a target and version as the declarations are now: other declarations make other instances."""
    digest = hashlib.sha256(f"{target} {version}".encode())
    gen = Path(__file__).resolve().parent.parent / "gen"
    for path in sorted([*(gen / "operators").glob("*.py"), gen / "sketch.py", gen / "drawing.py"]):
        digest.update(path.read_bytes())
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
