"""`reduce` on generated models with 1 to 5 trigger nodes of a seeded fault in the `fake` compiler: checks
against what theory allows.

    python benchmarks/reduce_generated.py [--models N] [--svg FILE]

A model of N nodes of which k are needed cannot be told from the others in fewer than log2 C(N, k) yes-or-no
answers; with the question whether the whole fails, and one a node that is left to show that it cannot go, the
bound is 1 + ceil(log2 C(N, k)) + k. A failure that says more than yes or no (names of nodes, values that
differ) can be found in fewer. Only the dimensions of the main graph are reduced. FILE gets a plot of every
model: checks over the bound.
"""

import argparse
import math
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from failing import TRIGGERS, host

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.errors import NoFailure
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.passes.onnx import BYPASS, NODES, OUTPUTS
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure

COLOURS = {"error": "#1b7837", "crash": "#b2182b", "wrong": "#2166ac"}
_SIDE, _EDGE = 420, 40  # of the plot, in pixels


@dataclass(frozen=True)
class Run:
    """One model: what it was, and what it took."""

    seed: int
    kind: str
    apart: bool
    needed: int
    bound: int
    checks: int
    reached: bool
    same: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    runs: list[Run] = []
    seed = 0
    with Workers() as workers:
        while len(runs) < options.models:
            runs += one(seed, workers)
            seed += 1
    print(
        f"{'':24}{'models':>8}{'checks':>8}{'bound':>8}{'ratio: median':>16}{'worst':>8}{'over':>6}{'minimum':>9}{'slippage':>9}"
    )
    for what, group in groups(runs):
        ratios = [run.checks / run.bound for run in group]
        print(
            f"{what:24}{len(group):>8}{statistics.mean(run.checks for run in group):>8.1f}"
            f"{statistics.mean(run.bound for run in group):>8.1f}{statistics.median(ratios):>16.2f}{max(ratios):>8.2f}"
            f"{sum(ratio > 1 for ratio in ratios):>6}{sum(run.reached for run in group):>9}{sum(not run.same for run in group):>9}"
        )
    if options.svg:
        options.svg.write_text(plot(runs))


def one(seed: int, workers: Workers) -> list[Run]:
    """The model of one seed, reduced; nothing when its fault does not show at the outputs."""
    draw = random.Random(seed)
    names = draw.sample(TRIGGERS, draw.randint(1, 5))
    apart = draw.random() < 0.5 and len(names) > 1
    size = draw.randint(20, 200)
    case = host(seed, size, [[name] for name in names] if apart else [names])
    kind = draw.choice(tuple(COLOURS))
    try:
        premise = find(case, [resolve(f"fake:{kind}@{('&' if apart else '>').join(names)}")], None, workers)
    except NoFailure:  # a wrong value can be lost on its way
        return []
    start = Subject(case.program.proto, case.inputs, {})
    dimensions = (NODES, OUTPUTS, BYPASS)
    result = reduce_failure(
        OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners(), dimensions
    )
    total = len(start.model.graph.node)
    bound = 1 + math.ceil(math.log2(math.comb(total, len(names)))) + len(names)
    left = sorted(node.op_type for node in result.best.model.graph.node)
    return [Run(seed, kind, apart, len(names), bound, result.node_checks, left == sorted(names), result.same)]


def groups(runs: Sequence[Run]) -> Iterable[tuple[str, list[Run]]]:
    """All, and the parts of it that differ."""
    yield "all", list(runs)
    for apart in (False, True):
        for kind in COLOURS:
            group = [run for run in runs if (run.apart, run.kind) == (apart, kind)]
            if group:
                yield f"{kind}, {'far apart' if apart else 'a path'}", group


def plot(runs: Sequence[Run]) -> str:
    """Checks over the bound as SVG; rings are triggers that lie far apart."""
    top = 10 * math.ceil(max(max(run.checks, run.bound) for run in runs) / 10)

    def at(value: float) -> float:
        return round(_EDGE + value / top * _SIDE, 1)

    size = _SIDE + 2 * _EDGE
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" font-family="sans-serif"'
            ' font-size="11">'
        ),
        f'<rect width="{size}" height="{size}" fill="white"/>',
        (
            f'<path d="M{_EDGE} {_EDGE}V{at(top)}H{at(top)}M{_EDGE} {at(top)}L{at(top)} {_EDGE}" fill="none"'
            ' stroke="#888"/>'
        ),
        f'<text x="{size // 2}" y="{size - 8}" text-anchor="middle">1 + ceil(log2 C(N, k)) + k</text>',
        (
            f'<text x="12" y="{size // 2}" text-anchor="middle" transform="rotate(-90 12'
            f' {size // 2})">checks</text>'
        ),
    ]
    for tick in range(0, top + 1, 10):
        lines.append(f'<text x="{at(tick)}" y="{at(top) + 14}" text-anchor="middle">{tick}</text>')
        lines.append(f'<text x="{_EDGE - 6}" y="{size - at(tick) + 4}" text-anchor="end">{tick}</text>')
    for place, (kind, colour) in enumerate(COLOURS.items()):
        lines.append(f'<text x="{_EDGE + 12}" y="{_EDGE + 14 * place + 8}" fill="{colour}">{kind}</text>')
    for run in runs:
        fill = "none" if run.apart else COLOURS[run.kind]
        lines.append(
            f'<circle cx="{at(run.bound)}" cy="{size - at(run.checks)}" r="3" fill="{fill}"'
            f' fill-opacity="0.6" stroke="{COLOURS[run.kind]}"><title>seed {run.seed}, k ='
            f" {run.needed}</title></circle>"
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    main()
