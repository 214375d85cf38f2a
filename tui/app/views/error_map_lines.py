"""The place of an output's errors as a small map. Pure."""

from typing import Any

from opsieve.tui.app.widgets.visible import Line, escape_text, to_one_line


def list_error_map(report: dict[str, Any], source: str) -> list[Line]:
    """List the share of an output that differs from `source`, and the map."""
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
    return [
        ((to_one_line(head, 400), "strong"),),
        *(((f"  ▕{escape_text(row[:80])}▏", "bad"),) for row in rows),
    ]
