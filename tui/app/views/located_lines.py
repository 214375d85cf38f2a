"""The values of a program in the target and in the reference, and the first wrong one. Pure."""

from collections.abc import Sequence
from typing import Any

from opsieve.gen.model.printable import count_noun
from opsieve.tui.app.services.job_board import Job
from opsieve.tui.app.widgets.visible import Line, escape_text, to_one_line

TONES = {"wrong": "bad", "inherited": "warn", "hidden": "dim", "right": ""}
# shown; --json has all
_ROWS = 60
# Of them before the first wrong value
_BEFORE = 12
_HUGE = 1e9
# The widest columns; they are as wide as what they hold.
_WIDTHS = (24, 18, 9, 14, 14)


def list_located(report: dict[str, Any]) -> list[Line]:
    """List what `located` of `opsieve run --json` says: a sentence, and a row for each value."""
    values, first = report.get("values", []), str(report.get("first", ""))
    if not values:
        problem = str(report.get("problem", ""))
        return [((f"nothing was located: {to_one_line(problem)}", "warn"),)] if problem else []
    at = next((row for row, value in enumerate(values) if value["name"] == first), 0)
    # Around the first wrong value, which in a large model may be far down.
    begin = max(0, min(at - _BEFORE, len(values) - _ROWS))
    lines: list[Line] = [((_describe_first(report, values[at]), "strong"),), ()]
    heads = ("value", "operator", "state", "target", "reference")
    shown = [[str(value[name]) for name in ("name", *heads[1:])] for value in values[begin : begin + _ROWS]]
    widths = [
        min(most, max(map(len, column)))
        for most, column in zip(_WIDTHS, zip(heads, *shown, strict=True), strict=True)
    ]
    lines.append(((_format_row("", widths, *heads, "relative error"), "dim"),))
    for value, cells in zip(values[begin:], shown, strict=False):
        # Of an expected zero every difference is a huge part.
        off = "" if value["error"] < 0 else f"{value['error']:.3g}" if value["error"] < _HUGE else "inf"
        mark, tone = "→" if value["on_path"] else "", TONES.get(str(value["state"]), "")
        lines.append(((_format_row(mark, widths, *cells, off), tone),))
    left = len(values) - len(shown)
    if any(value["state"] == "hidden" for value in values):
        lines.append((("hidden: reading it would change what the target optimises", "dim"),))
    return [*lines, ((f"… {left:,} more values; --json has all", "dim"),)] if left else lines


def list_located_graph(job: Job | None, graph: Sequence[tuple[str, str]]) -> list[Line]:
    """List the values as `list_located` does, and the graph with the way of the wrong values highlighted."""
    if job is None or not job.is_over:
        return [(("reading the values of the target …", "accent"),)]
    results = job.read_report().get("results", [])
    if not results:
        return [((to_one_line(job.last_line) or job.state, "bad"),)]
    report = results[0]["located"]
    states = {value["name"]: value["state"] for value in report["values"] if value["on_path"]}
    lines = [*list_located(report), (), (("graph", "strong"),)]
    for rails, label in graph:
        state = next(
            (states[name] for name in label.rpartition("→ ")[2].split(", ") if name in states), "right"
        )
        lines.append(((f"{escape_text(rails[:80])}  ", "accent"), (to_one_line(label, 500), TONES[state])))
    return lines


def _describe_first(report: dict[str, Any], value: dict[str, Any]) -> str:
    how = f"{count_noun(int(report['runs']), 'run')} of the target read the values"
    if not report["first"]:
        return f"no value is wrong given correct inputs; {how}"
    nodes = to_one_line(" and ".join(map(str, report["nodes"])), 200)
    place = f" at {list(value['index'])}" if value["index"] else ""
    return (
        f"the first wrong value is {to_one_line(str(value['name']), 80)}, of {nodes}: {value['target']} for"
        f" {value['reference']}{place}, given correct inputs; {how}"
    )


def _format_row(mark: str, widths: Sequence[int], *cells: str) -> str:
    """Format a row; a cell that is too long loses its end."""
    shown = [f"{to_one_line(cell, wide):{wide}}" for cell, wide in zip(cells, widths, strict=False)]
    return f"{mark:1} {'  '.join([*shown, *cells[len(widths) :]])}".rstrip()
