"""The plots of `opsieve metrics --plot`, as SVG files."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from opsieve.gen.model.printable import printable

# Equal figures give equal files, and text stays text.
matplotlib.rcParams["svg.hashsalt"] = "opsieve"
matplotlib.rcParams["svg.fonttype"] = "none"
# A model may call an operator `$...$`.
matplotlib.rcParams["text.parse_math"] = False
_LONGEST = 32  # characters of a label


def write_lines(
    path: Path, title: str, across: str, up: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> None:
    """Write a plot with a line for each series."""
    figure = Figure(figsize=(8, 4.7))
    axes = figure.subplots()
    for points in series.values():
        axes.plot([x for x, _ in points], [y for _, y in points])
    axes.set(title=title, xlabel=across, ylabel=up, xlim=(0, None), ylim=(0, None))
    axes.legend(axes.lines, [printable(name) for name in series])
    _save(figure, path)


def write_bars(path: Path, title: str, bars: Mapping[str, float]) -> None:
    """Write a plot with a horizontal bar for each number, in their order from the top."""
    figure = Figure(figsize=(8, 1 + 0.2 * max(len(bars), 1)), layout="constrained")
    axes = figure.subplots()
    places = range(len(bars))
    container = axes.barh(places, list(bars.values()))
    axes.bar_label(container, fmt="{:,.4g}", padding=3)
    axes.set_yticks(places, [printable(name)[:_LONGEST] for name in bars])
    axes.set(title=title, xmargin=0.1)
    axes.invert_yaxis()
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """Write the figure; a name may have characters that the font lacks, of which matplotlib warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.savefig(path, format="svg", metadata={"Date": None})
