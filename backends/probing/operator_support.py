"""A compiler's operator support from one-operator programs, so that tests are not wasted on "not
implemented".

A signature is the operator, its form, the dtypes of its inputs, and attributes that choose another kernel. A
signature with unsupported instances is not generated; if that depends on the rank of the first input alone,
those ranks are not. A signature without probes is allowed, unless others of the same operator and form were
refused. A supported signature that fails or gives another shape than declared is broken: a bug, kept apart,
and left out by `soundly` for programs that must run. backends/probing/prober.py draws and runs the programs.
"""

import functools
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from opsieve.gen.declarations import catalogue, declaration
from opsieve.gen.declarations.tensor import Attributes, Tensor
from opsieve.gen.errors import BadInput
from opsieve.gen.model.durable import Journal

# Attributes that interact with sizes.
CHOOSY = "dilated"
# Attributes that choose another kernel: a fact of the attribute, whichever operator has it, those of users
# included.
_WAYS = (
    "to",
    "reduction",
    "approximate",
    "mode",
    "auto_pad",
    "layout",
    "dtype",
    "output_datatype",
    "nearest_mode",
)
_REFUSED = ("unsupported", "environment")
WRONG_SHAPE = "wrong-shape"
# A hang or a lack of memory may be the machine's
_BROKEN = ("error", "crash", "rejected", WRONG_SHAPE)


class ProbeAnswer(msgspec.Struct, array_like=True):
    """The result of a probe: its signature and rank, its end, its message.

    The last one of a probe has no signature, and records the generator of its programs.
    """

    probe: str
    signature: str
    rank: int
    outcome: str
    message: str


def make_signature(
    operator: declaration.Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int
) -> str:
    """Return the properties that support depends on: `Cast 13 float32 to=10`."""
    had = None if operator.domain else catalogue.form(operator.name, opset)
    dtypes = [tensor.dtype if tensor is not None else "-" for tensor in ins]
    # Equal neighbours count once: a Concat of three floats needs the same kernel as one of two.
    if had is not None and had.inputs and had.inputs[-1].variadic:
        dtypes = [dtype for place, dtype in enumerate(dtypes) if not place or dtype != dtypes[place - 1]]
    elif len(dtypes) > 3:
        # Many optional parts are omitted, in many combinations.
        dtypes = [dtype for dtype in dtypes if dtype != "-"]
    key = f"{catalogue.name_with_domain(operator)} {had.since if had else 0} {','.join(dtypes)}"
    for name in _WAYS:
        if name in attrs:
            key += f" {name}={attrs[name]}"
    # Only whether there is a dilation, as its size chooses no kernel.
    if "dilations" in attrs and max(attrs["dilations"]) > 1:
        key += " dilated"
    if "output_padding" in attrs:
        extra = attrs["output_padding"]
        if any(
            pad >= stride for pad, stride in zip(extra, attrs.get("strides") or [1] * len(extra), strict=True)
        ):
            # Where dilations allow it
            key += " padded-beyond-stride"
    # A function, into which those of its body are inlined in turn
    if operator.name == "SequenceMap":
        key += f" body={attrs['body'].nodes[-1].op}"
    return key


def get_kin(key: str) -> str:
    """Return the part that a broken signature shares with similar ones: `Resize 19 int8 mode=cubic`.

    If an attribute chooses the kernel that is everything except the dtypes of further inputs, if it depends
    on sizes everything except the dtypes; otherwise it is the whole signature.
    """
    name, since, dtypes, *ways = key.split(" ")
    if CHOOSY in ways:
        dtypes = "*"
    return " ".join((name, since, dtypes.partition(",")[0], *ways)) if ways else key


@dataclass(frozen=True, eq=False)
class Support:
    """The operator support of one version of a target.

    `reasons` maps refused signatures to the compiler's messages. Tables with the same answers are equal,
    whoever read them: requests that carry them are compared for every program. `by_rank` are signatures
    refused at some ranks only, `known` are all that were run, `doubtful` the beginnings of signatures
    (operator, form) of which some were refused, `dtypes` those that were probed (None: all). `broken` maps
    `get_kin` of signatures to their errors; they are allowed unless `sound`.
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

    def without_broken(self) -> "Support":
        """Return the same support without broken signatures."""
        return replace(self, sound=True)

    @functools.cached_property
    def digest(self) -> str:
        """Twelve digits that identify the answers of a table."""
        broken = sorted(self.broken) if self.sound else []
        answers = (
            sorted(self.reasons),
            sorted(self.by_rank),
            sorted(self.known),
            sorted(self.doubtful),
            broken,
        )
        return hashlib.sha256(repr(answers).encode()).hexdigest()[:12]

    @functools.cached_property
    def support_key(self) -> Hashable:
        """A value that is equal for tables that allow the same, of any target."""
        return self.digest, self.dtypes, self.sound

    @functools.cached_property
    def _identity(self) -> tuple[object, ...]:
        return self.target, self.version, self.support_key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Support) and (self is other or self._identity == other._identity)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __call__(
        self, operator: declaration.Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int
    ) -> bool:
        """Whether an instance is worth a test."""
        return self.has(make_signature(operator, ins, attrs, opset), get_rank(ins))

    def has(self, key: str, rank: int) -> bool:
        """Whether an instance of a signature, with the rank of its first input, is worth a test."""
        # By the kin, since a bug of one dtype mostly shows with similar ones.
        if self.sound and get_kin(key) in self.broken:
            return False
        if key in self.known:
            return key not in self.reasons and (not self.by_rank or (key, rank) not in self.by_rank)
        # The element type of the first input, if it has one
        first = (*key.split(" ", 3), "", "")[2].partition(",")[0].rpartition("(")[2].rstrip(")")
        if self.dtypes is not None and first not in ("", "-", *self.dtypes):
            return False
        return get_beginning(key) not in self.doubtful


@dataclass(frozen=True, slots=True)
class SharedSupport:
    """The common support of several targets."""

    supports: tuple[Support, ...]

    def __call__(
        self, operator: declaration.Operator, ins: Sequence[Tensor | None], attrs: Attributes, opset: int
    ) -> bool:
        """Whether an instance is worth a test."""
        key, rank = make_signature(operator, ins, attrs, opset), get_rank(ins)
        return all(support.has(key, rank) for support in self.supports)


def share_support(supports: Sequence[Support]) -> Support | SharedSupport | None:
    """Return the common support of several targets, or None without any."""
    if not supports:
        return None
    return supports[0] if len(supports) == 1 else SharedSupport(tuple(supports))


def name_tables(supports: Sequence[Support]) -> str:
    """Name tables and their contents: `onnxruntime 1.31.1 3f0c12ab98d1`."""
    return " + ".join(f"{support.target} {support.version} {support.digest}" for support in supports)


def explain_support(support: Support) -> list[str]:
    """Explain dropped or broken operators: a line for each operator, form and reason, with its dtypes."""
    of_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    refused = [(key, "", reason) for key, reason in support.reasons.items()]
    refused += [(key, f" of rank {rank}", reason) for (key, rank), reason in support.by_rank.items()]
    refused += [(key, "", f"broken: {reason}") for key, reason in support.broken.items()]
    for key, rank, reason in refused:
        name, since, rest = (*key.split(" ", 2), "")[:3]
        # Names of values vary, and would split one reason into many lines.
        plain = re.sub(r"(?<=name )'[^']{0,80}'|\b[nvcx]\d++", "...", " ".join(reason.split()))
        of_reason[f"{name}-{since}", plain[:200]].append((rest or "no inputs") + rank)
    lines = []
    for (name, reason), what in sorted(of_reason.items()):
        shortened = what if len(what) <= 6 else [*what[:6], f"{len(what) - 6} more"]
        lines.append(f"{name} ({'; '.join(shortened)}): {reason or 'no message'}")
    return lines


def get_beginning(key: str) -> str:
    """Return the operator and form of a signature."""
    return " ".join(key.split(" ", 2)[:2])


def get_rank(ins: Sequence[Tensor | None]) -> int:
    """Return the rank of the first given input, or 0."""
    for tensor in ins:
        if tensor is not None:
            return len(tensor.shape)
    return 0


def collect_support(
    target: str, version: str, answers: Iterable[ProbeAnswer], dtypes: frozenset[str] | None = None
) -> Support:
    """Make the support of a target from answers; `dtypes` are the first dtypes that were probed (None:
    all).
    """
    outcomes: dict[str, list[ProbeAnswer]] = defaultdict(list)
    for answer in answers:
        if answer.signature:
            outcomes[answer.signature].append(answer)
    refused: dict[str, str] = {}
    by_rank: dict[tuple[str, int], str] = {}
    broken: dict[str, str] = {}
    for key, given in outcomes.items():
        wrong = [answer for answer in given if answer.outcome in _BROKEN]
        if wrong:
            broken.setdefault(get_kin(key), wrong[0].message)
        bad = [answer for answer in given if answer.outcome in _REFUSED]
        good = {answer.rank for answer in given if answer.outcome not in _REFUSED}
        # An attribute with a value chooses a kernel; without one, ranks that work are still generated.
        if bad and ("=" in key or not good - {answer.rank for answer in bad}):
            refused[key] = bad[0].message
        else:
            by_rank |= {(key, answer.rank): answer.message for answer in bad}
    doubtful = frozenset(map(get_beginning, (*refused, *(key for key, _ in by_rank))))
    return Support(target, version, refused, by_rank, frozenset(outcomes), doubtful, dtypes, broken)


# Files with the answers of compilers, one for each compiler and version, line by line; several processes
# may append.


# The version of the probing rules and of their files; other files are ignored.
_RULES = 3


class AnswerFile(Journal[ProbeAnswer]):
    """The answers of a target's version in `folder`. `of` separates files of different kinds of probes."""

    def __init__(self, folder: Path, target: str, version: str, of: str = "") -> None:
        digest = hashlib.sha256(f"{_RULES} {target} {version}{of and ' '}{of}".encode()).hexdigest()[:12]
        readable = "".join(c if c.isalnum() else "-" for c in f"{target}-{version}")[:60]
        super().__init__(folder / f"{readable}-{digest}.jsonl", ProbeAnswer)

    def append_answers(self, answers: Sequence[ProbeAnswer]) -> None:
        """Append answers; raises BadInput if the file cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Without waiting for the disk: what a power cut takes is probed again.
            self.add(answers, sync=False)
        except OSError as error:
            raise BadInput(
                f"cannot keep what was probed in {self.path}: {error.strerror}; set OPSIEVE_STORE to a"
                " folder that can be written"
            ) from None


def get_cache_folder(name: str) -> Path:
    """Return the folder for answers of compilers: in the user's cache, or in OPSIEVE_STORE."""
    if named := os.environ.get("OPSIEVE_STORE"):
        return Path(named).expanduser() / name
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / name
