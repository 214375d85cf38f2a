"""A case as pages of lines: failure, graph, observations, and the trace with the parts in the fingerprint.
Pure.
"""

import textwrap
from collections.abc import Sequence

from opsieve.backends.observation import Frame, Observation
from opsieve.gen.model.printable import count_noun
from opsieve.triage.fingerprint.component import Component, ComponentName
from opsieve.triage.fingerprint.stack import read_stack
from opsieve.triage.store.rows import CaseDetails
from opsieve.tui.app.views import case_summary, rows_shown
from opsieve.tui.app.widgets.visible import Line, escape_text, format_time, to_lines, to_one_line

PAGES = ("overview", "graph", "tensors", "observed", "trace", "why", "origin")
_WRONG = (ComponentName.MISMATCH, ComponentName.DTYPE, ComponentName.OUTPUT, ComponentName.ERROR)
# Frames that a fingerprint takes, as in `opsieve.triage.fingerprint.fingerprint`
_TELLING = 3


def list_overview(case: CaseDetails) -> list[Line]:
    """List the failure in a few lines."""
    member = case.member
    size = (
        count_noun(member.nodes, "node")
        if member.reduced is None
        else f"{member.reduced} of {count_noun(member.nodes, 'node')} left by reduce"
    )
    known = {part.name: part.value for part in case.components}
    wrong = ", ".join(f"{name} {known[name]}" for name in _WRONG if known.get(name))
    return [
        ((to_one_line(member.name, 300), "accent"),),
        *rows_shown.list_facts(
            ("cluster", case.cluster or "none: it is flaky"),
            ("verdict", f"{member.verdict}: {member.reason}"),
            ("kind", f"{member.kind} at {member.stage}" if member.stage else member.kind),
            ("target", rows_shown.name_release(member.target, member.version)),
            ("wrong", wrong),
            ("blame", member.blame),
            ("message", member.message),
            ("fingerprint", member.fingerprint),
            ("size", size),
            ("operators", " ".join(member.operators)),
            ("commits", "; ".join(map(str, case.commits))),
            ("seen", format_time(member.seen)),
            ("case", str(case.folder or "")),
            ("reduced", str(case.reduced or "")),
            ("problem", case.problem),
        ),
    ]


def list_graph(summary: case_summary.CaseSummary) -> list[Line]:
    """List the drawn graph and the counts of its operators."""
    found: list[Line] = [
        ((f"{escape_text(rails[:80])}  ", "accent"), (to_one_line(label, 500), ""))
        for rails, label in summary.graph
    ]
    found += [(), (("operators", "strong"),)]
    found += [((f"{many:6}  ", "dim"), (to_one_line(name, 120), "")) for name, many in summary.operators]
    return found


def list_inputs(summary: case_summary.CaseSummary) -> list[Line]:
    """List inputs, and the outputs that the case itself expects."""
    found: list[Line] = []
    for title, values in (("inputs", summary.inputs), ("expected outputs", summary.expected)):
        found += [((title, "strong"),)] if values else []
        for name, kind, text in values:
            found += [
                ((f"  {to_one_line(name, 80)}  ", "accent"), (to_one_line(kind, 120), "dim")),
                ((f"    {to_one_line(text, 1000)}", ""),),
            ]
    return found or [(("it has no inputs", "dim"),)]


def list_observations(observations: Sequence[Observation], problem: str, width: int) -> list[Line]:
    """List observations side by side, in as many columns as fit into `width` cells."""
    if not observations:
        return [((to_one_line(problem), "warn"),)]
    # 13 cells hold the names of the rows; 26 are the narrowest column that shows a target and its version.
    across = max(1, (width - 13) // 26)
    found: list[Line] = []
    for begin in range(0, len(observations), across):
        shown = observations[begin : begin + across]
        room = max(12, (width - 13) // min(across, len(observations)) - 2)
        for name, values in _make_table(shown):
            # Rows without a value for any target would only push the others off the screen.
            if any(values):
                wrapped = [_wrap_text(value, room) for value in values]
                for at in range(max(map(len, wrapped))):
                    cells = [lines[at] if at < len(lines) else "" for lines in wrapped]
                    tones = [_TONES.get((name, value), _TONES.get((name, ""), "")) for value in values]
                    parts = [(f"{cell:{room}}  ", tone) for cell, tone in zip(cells, tones, strict=True)]
                    found.append(((f"{name if not at else '':11}  ", "dim"), *parts))
        found.append(())
    return [*found, ((to_one_line(problem), "warn"),)] if problem else found


def _make_table(shown: Sequence[Observation]) -> list[tuple[str, list[str]]]:
    def make_row(name: str, values: Sequence[object]) -> tuple[str, list[str]]:
        return name, [to_one_line(str(value), 300) for value in values]

    return [
        make_row("target", [rows_shown.name_release(each.target, each.version) for each in shown]),
        make_row("outcome", [each.outcome for each in shown]),
        make_row("stage", [each.stage if each.outcome != "ok" else "" for each in shown]),
        make_row("exception", [each.exception for each in shown]),
        make_row("signal", [each.signal or "" for each in shown]),
        make_row("message", [each.message for each in shown]),
        make_row(
            "seconds",
            [", ".join(f"{name} {spent:.3f}" for name, spent in each.seconds.items()) for each in shown],
        ),
        make_row("memory", [f"{each.peak_memory >> 20} MiB" if each.peak_memory else "" for each in shown]),
        make_row("notes", ["; ".join(each.notes) for each in shown]),
        make_row(
            "hazards", ["; ".join(f"{each.rule} at {each.operator}" for each in one.hazards) for one in shown]
        ),
    ]


# By row and value; "" is any other value.
_TONES = {("target", ""): "strong", ("outcome", "ok"): "good"} | {
    ("outcome", value): "bad" for value in ("crash", "error", "hang")
}


# Six lines: a long message must not push the outcomes of the other targets off the screen.
def _wrap_text(text: str, room: int, most: int = 6) -> list[str]:
    cut = textwrap.wrap(text, room) or [""]
    return cut if len(cut) <= most else [*cut[: most - 1], f"{cut[most - 1][: room - 1]}…"]


def list_trace(observations: Sequence[Observation], components: Sequence[Component]) -> list[Line]:
    """List every frame with its role in the fingerprint, the message's template, then the raw text."""
    if not observations:
        return [(("nothing was observed", "dim"),)]
    seen = observations[0]
    template = next((part for part in components if part.name is ComponentName.MESSAGE), None)
    # By the function that makes fingerprints, so that both agree.
    telling = read_stack(seen.frames, _TELLING).names
    found: list[Line] = [
        (
            ("frames, innermost first", "strong"),
            ("  + counts  · telling, but further out  - uninteresting", "dim"),
        )
    ]
    # An overflow of the stack has tens of thousands.
    for frame in reversed(seen.frames[-300:]):
        names = read_stack((frame,), 1).names
        sign, tone = ("-", "dim") if not names else ("+", "good") if names[0] in telling else ("·", "")
        found.append(
            (
                (f"{sign} ", tone),
                (to_one_line(names[0] if names else frame.function or frame.module, 160), tone),
                (f"  {_format_place(frame)}", "dim"),
            )
        )
    if not seen.frames:
        found.append((("there is no frame", "dim"),))
    if template is not None:
        kept = ("+ ", "good") if template.kept else ("- ", "dim")
        found += [(), (("message, normalised", "strong"),), (kept, (to_one_line(template.value, 1000), ""))]
        found.append(((f"  {to_one_line(template.hint, 300)}", "dim"),))
    for title, text in (("message", seen.message), ("traceback", seen.traceback), ("log", seen.log)):
        if text.strip():
            found += [(), ((title, "strong"),), *to_lines(text)]
    return found


def _format_place(frame: Frame) -> str:
    if frame.file:
        return to_one_line(f"{frame.file}:{frame.line}", 200)
    return to_one_line(f"{frame.module}+{frame.offset:#x} {frame.build_id[:12]}", 200) if frame.module else ""


def list_fingerprint(components: Sequence[Component]) -> list[Line]:
    """List every component of the fingerprint."""
    head: Line = (("+ counts", "good"), ("   - does not count, and why", "dim"))
    return [head, (), *rows_shown.list_components(components)]


def list_origin(case: CaseDetails, summary: case_summary.CaseSummary) -> list[Line]:
    """List the origin of the case and its settings."""
    found = rows_shown.list_facts(*summary.origin, width=28)
    for each in case.observations:
        found += [
            (),
            ((to_one_line(rows_shown.name_release(each.target, each.version), 200), "strong"),),
            *rows_shown.list_facts(*each.knobs.items(), width=28),
        ]
    return found
