"""Where an output is wrong, as a small map. Pure."""

from typing import Any

from opsieve.tui.app.widgets.visible import Line, one_line, visible


def error_map_lines(report: dict[str, Any], source: str) -> list[Line]:
    """What a replay says of one output: how much of it differs from `source`, and where."""
    worst = (
        ""
        if report["worst"] is None
        else f", by at most {float(report['worst']):.4g} (allowed {float(report['within']):.4g})"
    )
    head = (
        f"{report['output']} {report['shape']}: {100 * float(report['fraction']):.3g} % of the elements"
        f" differ from {source}{worst}"
    )
    rows = [str(row) for row in report["rows"]]
    return [((one_line(head, 400), "strong"),), *(((f"  ▕{visible(row[:80])}▏", "bad"),) for row in rows)]
