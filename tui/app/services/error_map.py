"""A small map of the differences between two values, in blocks, which shows where the error is. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from opsieve.tui.app.services.tensor_difference import compute_distances

ROWS, COLUMNS = 8, 32
# No difference; then by the share of elements of a block that differ
SHADES = " ·░▒▓█"


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """`rows` are blocks, row by row, as shades; `fraction` of all elements differ, by at most `worst` (nan:
    not numeric).
    """

    shape: tuple[int, ...]
    rows: tuple[str, ...]
    fraction: float
    worst: float


def make_error_map(got: Any, expected: Any, within: float = 0.0) -> ErrorMap | None:
    """Map the differences of two arrays of one shape; None for other values.

    An element differs if its distance exceeds `within`. The last axis runs across, all others down; each
    character stands for a block of about equal size.
    """
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape or not a.size:
        return None
    apart = compute_distances(a, b)
    differs = ~(apart <= within)
    finite = apart[np.isfinite(apart)]
    worst = float(finite.max()) if finite.size and a.dtype.kind not in "OUS" else float("nan")
    flat = differs.reshape(-1, a.shape[-1] if a.ndim else 1)
    down, across = min(ROWS, flat.shape[0]), min(COLUMNS, flat.shape[1])
    rows = []
    for block in np.array_split(flat, down, axis=0):
        shares = [float(part.mean()) for part in np.array_split(block, across, axis=1)]
        rows.append(
            "".join(
                SHADES[0] if not share else SHADES[max(1, round(share * (len(SHADES) - 1)))]
                for share in shares
            )
        )
    return ErrorMap(tuple(a.shape), tuple(rows), float(differs.mean()), worst)
