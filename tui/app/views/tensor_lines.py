"""The output of a replay as lines: its verdict, expected, got and difference of each output, and the place of
an output's errors as a small map. Pure.
"""

from contextlib import suppress
from typing import Any

from opsieve.gen.model.printable import count_noun
from opsieve.tui.app.services.job_board import Job
from opsieve.tui.app.views.rows_shown import list_facts, name_release
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


_HEADINGS = ("element", "expected", "got", "difference")


def list_tensors(job: Job | None, wrong: bool) -> list[Line]:
    """List the outputs of a replay; `wrong` means that the failure is one of values, so that there is a
    comparison.
    """
    if job is None:
        return [] if not wrong else [(("R runs the case again, and shows its outputs here", "dim"),)]
    report = job.read_report()
    if not job.is_over:
        # What the process printed last, such as the release that it installs.
        said = to_one_line(job.last_line)
        return [((f"the case is run again: {job.state} …", "accent"),), *([((said, "dim"),)] if said else [])]
    if job.state != "done" or not report:
        return [(("its outputs are not known: ", "warn"), (to_one_line(job.last_line, 600) or job.state, ""))]
    where = to_one_line(name_release(report.get("target", ""), report.get("version", "")), 100)
    source = to_one_line(str(report.get("source", "")), 100)
    found: list[Line] = [(("outputs", "strong"), (f"  expected by {source}, got by {where}", "dim"))]
    maps = {str(each.get("output")): each for each in report.get("error_maps", []) if isinstance(each, dict)}
    for each in report.get("tensors", []):
        # The report is another process's output: a broken part is left out.
        with suppress(KeyError, TypeError, ValueError):
            found += _list_tensor(each)
            drawn = maps.get(str(each["output"]))
            # A tensor that is shown whole needs no map.
            if drawn is not None and each["differing"] and len(each["elements"]) < each["size"]:
                found += list_error_map(drawn, str(report.get("source", "")))
            found.append(())
    if len(found) == 1:
        found += [((f"  none to compare: {to_one_line(str(report.get('reason', '')), 600)}", ""),), ()]
    return found


def _list_tensor(each: dict[str, Any]) -> list[Line]:
    expected, got = to_one_line(str(each["expected"]), 80), to_one_line(str(each["got"]), 80)
    kind = expected if expected == got else f"expected {expected}, got {got}"
    head: Line = (
        (f"  {to_one_line(str(each['output']), 80)}  ", "accent"),
        (kind, "dim" if expected == got else "bad"),
    )
    if expected == got and not each["differing"]:
        return [head, (("    no element differs", "good"),)]
    said = (
        f"{each['differing']:,} of {count_noun(each['size'], 'element')}"
        f" {'differs' if each['differing'] == 1 else 'differ'}"
    )
    if each["largest"]:
        said += f", the largest error at {to_one_line(str(each['largest']), 60)}"
    if each["within"]:
        said += f", allowed {float(each['within']):.4g}"
    elements = [
        (*(to_one_line(str(part[name]), 60) for name in ("index", *_HEADINGS[1:])), part)
        for part in each["elements"]
    ]
    # The values come as text, because JSON would round them.
    widths = [max([len(name), *(len(row[at]) for row in elements)]) for at, name in enumerate(_HEADINGS)]
    heading = "  ".join(f"{name:{width}}" for name, width in zip(_HEADINGS, widths, strict=True))
    rows: list[Line] = [((f"    {heading}", "dim"),)]
    for *cells, part in elements:
        text = "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
        rows.append(
            (
                ("  ▸ " if part["differs"] else "    ", "bad"),
                (text.rstrip(), "" if part["differs"] else "dim"),
            )
        )
    left = each["differing"] - len(elements)
    rest: list[Line] = [((f"    … and {left:,} more", "dim"),)] if left > 0 else []
    return [head, ((f"    {said}" if expected == got else "    the types differ", "bad"),), *rows, *rest]


_TONES = {"pass": "good", "fail": "bad"}


def list_replay(job: Job | None) -> list[Line]:
    """List the state of a replay: waiting, its last output, or its verdict with a map of each output."""
    if job is None:
        return [(("R runs this case again, on its own target or another one", "dim"),)]
    if not job.is_over:
        return [((f"{job.state} …", "accent"),), ((to_one_line(job.last_line), "dim"),)]
    report = job.read_report()
    if job.state != "done" or not report:
        return [
            ((f"{job.state}", "bad"),),
            *(((to_one_line(line, 600), ""),) for line in list(job.log)[-20:]),
        ]
    verdict, reason = str(report.get("verdict", "")), str(report.get("reason", ""))
    tone = _TONES.get(verdict, "warn")
    found: list[Line] = [((to_one_line(verdict), tone), (f"  {to_one_line(reason, 600)}", "strong"))]
    names = ("target", "version", "kind", "stage", "message", "blame")
    found += list_facts(*((name, str(report.get(name, ""))) for name in names))
    # Another version of opsieve may have started the job.
    with suppress(TypeError, ValueError):
        for target, version, outcome, seconds in report.get("outcomes", []):
            found.append(
                (
                    (f"  {to_one_line(name_release(target, version), 100)}: ", "dim"),
                    (to_one_line(str(outcome), 40), ""),
                    (f"  {float(seconds):.3f} s", "dim"),
                )
            )
    for each in report.get("error_maps", []):
        with suppress(KeyError, TypeError, ValueError):
            found += [(), *list_error_map(each, str(report.get("source", "")))]
    return found
