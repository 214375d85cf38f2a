"""The output of a replay as lines."""

from contextlib import suppress

from opsieve.tui.app.services.job_board import Job
from opsieve.tui.app.views.error_map_lines import list_error_map
from opsieve.tui.app.views.rows_shown import list_facts
from opsieve.tui.app.widgets.visible import Line, to_one_line

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
    with suppress(TypeError, ValueError):
        for target, version, outcome, seconds in report.get("outcomes", []):
            found.append(
                (
                    (f"  {to_one_line(f'{target} {version}', 100)}: ", "dim"),
                    (to_one_line(str(outcome), 40), ""),
                    (f"  {float(seconds):.3f} s", "dim"),
                )
            )
    for each in report.get("error_maps", []):
        with suppress(KeyError, TypeError, ValueError):
            found += [(), *list_error_map(each, str(report.get("source", "")))]
    return found
