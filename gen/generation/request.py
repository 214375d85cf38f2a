"""Requests as text, so that a case tells how to make it again; and the number of nodes for a seed."""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opsieve.gen.declarations.builder import Budget
from opsieve.gen.declarations.catalogue import NEWEST, OLDEST, operators
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import LARGEST
from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.values.values import RANGED, named_values

# Five times the largest size whose speed is measured; beyond it a slip of the keyboard is likelier.
MOST_NODES = 5000
_NODES = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)


def draw_nodes(request: GenRequest, seed: int) -> GenRequest:
    """Draw the number of nodes for a seed if the request leaves it open."""
    if request.between is None:
        return request
    return replace(request, nodes=Rng(f"nodes {seed}").between(*request.between))


def parse_nodes(text: str) -> tuple[int, int]:
    """Parse `10` or `5-60` as the least and the most number of nodes.

    Raises:
        BadInput: If the text is neither.
    """
    found = _NODES.fullmatch(text.strip())
    if found is not None:
        low, high = int(found[1]), int(found[2] or found[1])
        if 1 <= low <= high <= MOST_NODES:
            return low, high
    raise BadInput(
        f"{shown(text)} is not a number of nodes; write one from 1 to {MOST_NODES}, or a range such as 5-60"
    )


def split_items(texts: Sequence[str]) -> list[str]:
    """Split the values of options at commas."""
    return [item.strip() for text in texts for item in text.split(",") if item.strip()]


def select_operators(patterns: Sequence[str]) -> frozenset[str] | None:
    """Return the operators that patterns select, such as `Conv*`, or `-Reduce*` to exclude some; None without
    patterns.

    Patterns apply in order; if the first one excludes, the selection begins with all of ONNX's own operators.
    Operators of other domains are written with their domain: `com.microsoft::Gelu`.

    Raises:
        BadInput: If the selection is empty.
    """
    if not patterns:
        return None
    there = operators()
    found = {name for name in there if "::" not in name} if patterns[0].startswith("-") else set()
    for pattern in patterns:
        met = {name for name in there if fnmatch.fnmatchcase(name, pattern.removeprefix("-"))}
        if not met:
            raise BadInput(
                f"no operator matches {shown(pattern)}; the names are ONNX's own, `Conv*` stands for"
                f" several{suggest_name(pattern, there)}"
            )
        found = found - met if pattern.startswith("-") else found | met
    if not found:
        raise BadInput(f"the patterns {shown(','.join(patterns))} leave no operator; let some in")
    return frozenset(found)


def select_dtypes(names: Sequence[str]) -> frozenset[str] | None:
    """Check element types by name; None without names.

    Raises:
        BadInput: If a name is not an element type.
    """
    for name in names:
        if name not in LARGEST:
            raise BadInput(f"{shown(name)} is not an element type; choose from {', '.join(LARGEST)}")
    return frozenset(names) or None


def check_opset(number: int) -> int:
    """Return an opset that programs can be made for, or 0 for any.

    Raises:
        BadInput: If the number is neither.
    """
    if number and not OLDEST <= number <= NEWEST:
        raise BadInput(f"opset {number} cannot be generated; give one from {OLDEST} to {NEWEST}")
    return number


def from_record(record: Mapping[str, str]) -> GenRequest:
    """Read a request from the text in a case, without the `supports` of its `target`.

    Raises:
        BadInput: If the text makes no sense.
    """
    # The record holds only a digest of the corpus, not its models.
    if "corpus" in record:
        given = shown(record["corpus"])
        raise BadInput(
            f"the case was made from a corpus of {given}; it can only be made again with those, by its seed"
        )
    low, high = parse_nodes(record.get("nodes", "10"))
    try:
        budget = [int(number) for number in record["budget"].split(",")] if "budget" in record else []
        opset, bins = int(record.get("opset", "0")), int(record.get("bins", "7"))
        sibling, siblings = int(record.get("sibling", "0")), int(record.get("siblings", "1"))
        dynamic = float(record.get("dynamic", "0"))
        unknown = sorted(
            record.keys()
            - {"nodes", "only", "dtypes", "opset", "bins", "types", "budget", "target", "dynamic", "values"}
            - {"sibling", "siblings"}
        )
        if (
            unknown
            or len(budget) not in (0, 3)
            or not (0 <= bins <= 64 and 0 <= dynamic <= 1 and sibling >= 0 < siblings)
        ):
            raise ValueError
    except ValueError:
        given = ", ".join(f"{name}={value}" for name, value in record.items())
        raise BadInput(
            f"the request {shown(given, 200)} cannot be read; was it written by a newer opsieve?"
        ) from None
    return GenRequest(
        nodes=low,
        only=frozenset(record["only"].split(",")) if "only" in record else None,
        dtypes=select_dtypes(record["dtypes"].split(",")) if "dtypes" in record else None,
        opset=check_opset(opset),
        bins=bins,
        types="types" in record,
        budget=Budget(*budget),
        target=record.get("target", ""),
        between=(low, high) if low != high else None,
        dynamic=dynamic,
        values=named_values(record.get("values", RANGED)),
        sibling=sibling,
        siblings=siblings,
    )
