"""What a replay said, as lines."""

from contextlib import suppress

from opsieve.tui.app.services.job_board import Job
from opsieve.tui.app.views.error_map_lines import error_map_lines
from opsieve.tui.app.views.rows_shown import facts
from opsieve.tui.app.widgets.visible import Line, one_line

_TONES = {"pass": "good", "fail": "bad"}


def replay_lines(job: Job | None) -> list[Line]:
    """How a replay stands: waiting, its last words, or its verdict with a map of each output."""
    if job is None:
        return [(("R runs this case again, on its own target or another one", "dim"),)]
    if not job.over:
        return [((f"{job.state} …", "accent"),), ((one_line(job.said), "dim"),)]
    report = job.report()
    if job.state != "done" or not report:
        return [((f"{job.state}", "bad"),), *(((one_line(line, 600), ""),) for line in list(job.log)[-20:])]
    verdict, reason = str(report.get("verdict", "")), str(report.get("reason", ""))
    tone = _TONES.get(verdict, "warn")
    found: list[Line] = [((one_line(verdict), tone), (f"  {one_line(reason, 600)}", "strong"))]
    names = ("target", "version", "kind", "stage", "message", "blame")
    found += facts(*((name, str(report.get(name, ""))) for name in names))
    with suppress(TypeError, ValueError):
        for target, version, outcome, seconds in report.get("outcomes", []):
            found.append(
                (
                    (f"  {one_line(f'{target} {version}', 100)}: ", "dim"),
                    (one_line(str(outcome), 40), ""),
                    (f"  {float(seconds):.3f} s", "dim"),
                )
            )
    for each in report.get("error_maps", []):
        with suppress(KeyError, TypeError, ValueError):
            found += [(), *error_map_lines(each, str(report.get("source", "")))]
    return found
