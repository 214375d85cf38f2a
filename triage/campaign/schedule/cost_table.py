"""Costs of tests measured on this machine: `opsieve doctor --costs` fills the table, campaigns read it."""

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from opsieve.backends.probing.operator_support import get_cache_folder
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import write_file

# Milliseconds of a test on onnxruntime, to which others are compared; also where a backend states no cost
USUAL: Final = 10.0
_YARDSTICK: Final = "onnxruntime"
_FOLDER, _FILE = "costs", "onnx.json"
# The first tests of a target, which are not measured, pay for its imports
_WARM: Final = 4


def load_costs() -> dict[str, float]:
    """Load the measured costs of ONNX models in milliseconds, by backend; an unreadable table is empty."""
    try:
        kept = json.loads((get_cache_folder(_FOLDER) / _FILE).read_bytes())
        return {str(name): float(cost) for name, cost in kept.items() if 0 < float(cost) < float("inf")}
    # A damaged table costs only precision: the costs that backends state take its place.
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def measure_costs(
    workers: Workers, targets: Sequence[ResolvedTarget], tests: Sequence[Test]
) -> dict[str, float]:
    """Measure the time of tests on targets, and keep it for the campaigns to come.

    Returns:
        Milliseconds by backend, on a machine on which onnxruntime takes `USUAL`.

    Raises:
        BadInput: If a target ran no test, or the table cannot be written.
    """
    # In units of onnxruntime's time, so that tables of a fast and of a slow machine mean the same.
    unit = _measure_seconds(workers, resolve(_YARDSTICK), tests)
    found = {each.name: round(USUAL * _measure_seconds(workers, each, tests) / unit, 1) for each in targets}
    path = get_cache_folder(_FOLDER) / _FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Earlier measurements of other backends stay.
        write_file(path, json.dumps(load_costs() | found, indent=1).encode())
    except OSError as error:
        raise BadInput(f"cannot write {shown(path, 200)}: {error.strerror}") from None
    return found


def _measure_seconds(workers: Workers, target: ResolvedTarget, tests: Sequence[Test]) -> float:
    """Measure the mean seconds of a test on a target; a campaign leaves out what it does not support."""
    seen = [each for each in workers.observe_many(target, tests) if each.outcome != "unsupported"]
    spent = [each.total_seconds for each in seen[_WARM:]]
    if not sum(spent):
        raise BadInput(f"{target.display} ran no test, so its cost is unknown: see opsieve doctor")
    return fmean(spent)
