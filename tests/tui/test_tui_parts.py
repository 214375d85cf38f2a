"""The parts of the terminal app that need no terminal: text made harmless, lines broken, graphs drawn, heat,
jobs.
"""

import io
import json
import sys
import threading
import zipfile
from dataclasses import asdict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from repository import SAMPLES
from rich.cells import cell_len
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.ir import Box, draw_boxes
from opsieve.triage.campaign.plan import describe_plan
from opsieve.tui.app.screens.export_screen import preview_file
from opsieve.tui.app.screens.jobs_screen import compute_rate, format_command
from opsieve.tui.app.services.job_board import OPSIEVE, REDUCE, Job, JobBoard
from opsieve.tui.app.services.tensor_difference import (
    COLUMNS,
    ROWS,
    TensorDifference,
    compare_values,
    make_error_map,
)
from opsieve.tui.app.themes import CLEAR_LIGHT, DARK
from opsieve.tui.app.views.case_summary import read_summary
from opsieve.tui.app.views.rows_shown import CLUSTERS, MEMBERS
from opsieve.tui.app.views.tensor_lines import list_replay, list_tensors
from opsieve.tui.app.widgets.paged_list import Column, fit_columns
from opsieve.tui.app.widgets.screens import wrap_line
from opsieve.tui.app.widgets.visible import escape_text, format_age, to_lines, to_one_line

anything = st.text(st.characters())


@given(anything)
def test_visible_text_is_printable_and_printable_text_is_kept(text: str) -> None:
    assert escape_text(text).isprintable()
    if text.isprintable():
        assert escape_text(text) == text


@given(anything, st.integers(2, 50))
def test_one_line_is_bounded_and_printable(text: str, most: int) -> None:
    line = to_one_line(text, most)
    assert line.isprintable()
    assert line == escape_text(line)
    if text.isprintable():
        assert len(line) <= most


def test_what_is_left_out_of_a_long_text_is_told() -> None:
    lines = to_lines("\n".join("abcdefgh"), most=3)
    assert [part for line in lines for part, _ in line] == ["a", "b", "c", "… 5 more lines are left out"]


@pytest.mark.parametrize(
    ("past", "words"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (86400 * 3, "3d"), (86400 * 15, "2w")],
)
def test_how_long_ago(past: float, words: str) -> None:
    assert format_age(1e9, 1e9 + past) == words
    assert format_age(0, 1e9) == ""


@given(
    st.lists(
        st.tuples(st.text(st.characters(categories=["L", "Zs", "Nd"])), st.sampled_from(["", "dim"])),
        min_size=1,
    ),
    st.integers(4, 60),
)
def test_wrapped_lines_fit_and_keep_every_word(parts: list[tuple[str, str]], width: int) -> None:
    lines = wrap_line(tuple(parts), width)
    for line in lines:
        assert sum(cell_len(text) for text, _ in line) <= width
    letters = "".join(text for text, _ in parts)
    kept = "".join(text for line in lines for text, _ in line)
    assert "".join(kept.split()) == "".join(letters.split())


def test_what_follows_a_short_first_part_hangs_beneath_itself() -> None:
    lines = wrap_line((("message ", "dim"), ("one two three four", "")), 16)
    assert ["".join(text for text, _ in line) for line in lines] == [
        "message one two ",
        "        three ",
        "        four",
    ]


@given(st.sampled_from([CLUSTERS, MEMBERS]), st.integers(1, 300))
def test_columns_fit_and_the_needed_ones_stay(columns: tuple[Column, ...], width: int) -> None:
    kept = fit_columns(columns, width)
    assert {at for at, column in enumerate(columns) if not column.spare} <= {at for at, _ in kept}
    assert kept == sorted(kept)
    if width >= 40:
        assert sum(room for _, room in kept) + len(kept) - 1 == width


def test_a_graph_is_drawn_with_rails_that_join_pass_and_end() -> None:
    boxes = [
        Box("x", (), ("x",), "○"),
        Box("y", (), ("y",), "○"),
        Box("Pad", ("x",), ("p",)),
        Box("Add", ("p", "y"), ("a",)),
        Box("Split", ("a",), ("s", "t")),
        Box("Mul", ("s", "t"), ("m",)),
        Box("out", ("m",), (), "◎"),
    ]
    assert draw_boxes(boxes) == [
        ("○", "x"), ("│ ○", "y"), ("● │", "Pad"), ("●─╯", "Add"), ("●─╮", "Split"), ("●─╯", "Mul"),
        ("◎", "out"),
    ]  # fmt: skip


@given(st.data())
def test_every_box_of_any_graph_is_drawn_on_one_line(data: st.DataObject) -> None:
    names: list[str] = []
    boxes = []
    for number in range(data.draw(st.integers(1, 25))):
        reads = tuple(data.draw(st.lists(st.sampled_from(names), max_size=4))) if names else ()
        makes = tuple(f"v{number}.{at}" for at in range(data.draw(st.integers(0, 3))))
        names += makes
        boxes.append(Box(f"n{number}", reads, makes))
    lines = draw_boxes(boxes)
    assert [label for _, label in lines] == [box.label for box in boxes]
    assert all(rails.count("●") == 1 or rails.endswith("…") for rails, _ in lines)


@given(st.integers(1, 30), st.integers(1, 70), st.data())
def test_heat_marks_the_block_of_the_wrong_element_and_no_other(
    rows: int, columns: int, data: st.DataObject
) -> None:
    right = np.zeros((rows, columns), np.float32)
    wrong = right.copy()
    at = (data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1)))
    wrong[at] = np.nan if data.draw(st.booleans()) else 3
    made = make_error_map(wrong, right)
    assert made is not None
    assert (len(made.rows), {len(row) for row in made.rows}) == (min(rows, ROWS), {min(columns, COLUMNS)})
    assert sum(character != " " for row in made.rows for character in row) == 1
    assert made.fraction == pytest.approx(1 / (rows * columns))
    assert make_error_map(right, right).fraction == 0  # type: ignore[union-attr]
    assert make_error_map(wrong[:1], right) is None or rows == 1


def test_heat_allows_what_the_policy_allows_and_takes_text() -> None:
    assert make_error_map(np.array([1.0, 2.0]), np.array([1.05, 2.5]), within=0.1).fraction == 0.5  # type: ignore[union-attr]
    assert make_error_map(np.array(["a", "b"], object), np.array(["a", "c"], object)).fraction == 0.5  # type: ignore[union-attr]


def test_tensors_are_compared_element_by_element_whatever_their_type() -> None:
    def first(got: object, expected: object, **options: object) -> TensorDifference:
        return next(compare_values("y", got, expected, **options))  # type: ignore[arg-type]

    small = first(np.array([1, 2, 250], np.uint8), np.array([1, 4, 5], np.uint8))
    assert (small.expected, small.differing, small.largest) == ("uint8[3]", 2, "[2]")
    assert [part.difference for part in small.elements] == ["+0", "-2", "+245"]
    big = np.iinfo(np.int64).max
    assert first(np.array([big - 1]), np.array([big])).elements[0].difference == "-1"
    right = np.zeros((10, 10), np.float32)
    wrong = right.copy()
    wrong[2, 3], wrong[4, 5], wrong[9, 9], wrong[0, 0] = 0.5, -7, np.nan, 0.01
    large = first(wrong, right, within=0.1)
    # what is no number is worst
    assert [part.index for part in large.elements] == [
        "[9,9]",
        "[4,5]",
        "[2,3]",
    ]
    assert (large.differing, large.largest, large.elements[1].difference) == (3, "[9,9]", "-7")
    assert first(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])).differing == 0
    assert first(np.array(["a", "b"], object), np.array(["a", "c"], object)).differing == 1
    assert first(np.array([1 + 2j]), np.array([1 + 3j])).differing == 1
    assert first(np.array([True]), np.array([False])).elements[0].difference == ""
    assert first(np.array(1.5, ml_dtypes.bfloat16), np.array(1.25)).elements[0].difference == "+0.25"
    other = first(np.zeros((2, 1), np.int32), np.zeros(3, np.float64), dtype="float32")
    assert (other.expected, other.got, len(other.elements)) == ("float32[3]", "int32[2,1]", 3)
    assert first(None, np.zeros(2)).got == "nothing"
    assert [each.output for each in compare_values("s", [np.zeros(1)], [np.zeros(1), np.zeros(2)])] == [
        "s[0]",
        "s[1]",
    ]


def test_lines_of_tensors_say_how_a_replay_stands() -> None:
    def text(job: Job | None) -> str:
        return "\n".join("".join(part for part, _ in line) for line in list_tensors(job, wrong=True))

    job = Job(1, "replay", "c1", (("x",),), state="done")
    many = np.arange(30.0)
    tensors = [asdict(each) for each in compare_values("y", many + 1, many, 0.5)]
    job.results = [
        json.dumps({"target": "fake", "version": "1", "source": "reference", "tensors": tensors}).encode()
    ]
    assert "30 of 30 elements differ, the largest error at [0], allowed 0.5" in text(job)
    assert "… and 18 more" in text(job)
    hostile = [{**tensors[0], "output": "\x1b[31m", "elements": []}, {"output": 3}]
    job.results = [json.dumps({"tensors": hostile}).encode()]
    assert "\x1b" not in text(job)
    job.results = [json.dumps({"reason": "it died"}).encode()]
    assert "none to compare: it died" in text(job)
    assert "R runs" in text(None)
    job.state = "failed"
    assert "not known" in text(job)


def test_a_sample_is_read_in_a_process_of_its_own() -> None:
    summary = read_summary(SAMPLES / "pad-avgpool-wrong-value")
    assert [label.split()[0] for _, label in summary.graph][-3:] == ["Pad", "AveragePool", "y"]
    assert dict(summary.operators) == {"AveragePool": 1, "Pad": 1}
    assert summary.inputs[0][1].startswith("float32")
    assert dict(summary.origin)["digest"]


def test_a_case_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"case\.json"):
        read_summary(tmp_path)


def test_the_preview_of_a_zip_lists_it_and_text_is_shown_to_the_last_byte() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("model.onnx", b"12345")
    assert "".join(text for text, _ in preview_file(packed.getvalue(), "case")[0]).split() == [
        "5",
        "model.onnx",
    ]
    assert "".join(text for line in preview_file(b"not a zip", "case") for text, _ in line)
    assert [text for line in preview_file(b"a\nb\x1b", "script") for text, _ in line] == ["a", r"b\x1b"]


def test_the_rate_of_a_campaign() -> None:
    assert compute_rate(((0.0, 100), (1.0, 150), (4.0, 300))) == 50
    assert compute_rate(((0.0, 100),)) == 0
    assert compute_rate(((5.0, 100), (5.0, 100))) == 0


@pytest.fixture
def board() -> "JobBoard":
    return JobBoard(lambda job: None)


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", source)


def finished(board: JobBoard) -> None:
    for thread in board._threads:
        thread.join(30)


def test_a_job_runs_its_commands_in_a_row_and_keeps_what_they_say(board: JobBoard) -> None:
    job = board.start_job(
        "reduce",
        "two",
        python("import sys; print('one', file=sys.stderr)"),
        python("print('{\"nodes\": 2}')"),
    )
    finished(board)
    assert (job.state, list(job.log), job.read_report(), job.last_line) == (
        "done",
        ["one"],
        {"nodes": 2},
        "one",
    )
    assert job.seconds > 0


def test_a_job_that_fails_runs_nothing_further(board: JobBoard) -> None:
    job = board.start_job("reduce", "fails", python("raise SystemExit(3)"), python("print('never')"))
    gone = board.start_job("reduce", "no such program", ("/no/such/program",))
    finished(board)
    assert (job.state, job.code, job.output) == ("failed", 3, b"")
    assert (gone.state, "no such" in gone.last_line.lower()) == ("failed", True)


def test_at_most_two_jobs_run_at_once_and_those_that_wait_can_be_ended(board: JobBoard) -> None:
    running = threading.Semaphore(0)
    board._changed = lambda job: running.release() if job.state == "running" else None
    sleep = python("import time; time.sleep(600)")
    first, second, third = (board.start_job("bisect", name, sleep) for name in "abc")
    assert running.acquire(timeout=30)
    assert running.acquire(timeout=30)
    assert [job.state for job in (first, second, third)].count("waiting") == 1
    quick = board.start_job("replay", "c1", python("pass"))
    board.cancel_job(third)
    board.cancel_job(first)
    board.end_all()
    assert {job.state for job in (first, second, third)} == {"cancelled"}
    assert quick.is_over
    board.cancel_job(first)
    assert first.state == "cancelled"


def test_how_far_a_reduction_is_comes_from_its_attempts(board: JobBoard, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts.jsonl"
    lines = [{"answer": "same", "nodes": 9}, {"answer": "gone", "nodes": 3}, {"answer": "same", "nodes": 4}]
    attempts.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"answer": "sa')
    seen = threading.Event()
    board._changed = lambda job: seen.set() if job.progress else None
    job = board.start_job("reduce", "c1", python("import time; time.sleep(600)"), watched=attempts)
    assert seen.wait(30)
    assert job.progress == "3 attempts, 4 nodes"
    board.end_all()


def test_a_command_is_shown_as_one_would_type_it() -> None:
    assert format_command((*REDUCE, "a case", "--json")) == "reduce 'a case' --json"
    assert format_command((*OPSIEVE, "triage", "store")) == "opsieve triage store"
    assert format_command(("sh", "-c", "x")) == "sh -c x"


def test_a_replay_tells_verdict_outcomes_and_a_map() -> None:
    job = Job(1, "replay", "c1", (("x",),), state="done")
    told = json.dumps(
        {"verdict": "fail", "reason": "y is wrong", "target": "fake", "outcomes": [["fake", "1.0", "ok", 0.5]], "source": "reference", "error_maps": [{"output": "y", "shape": [2, 2], "rows": [" █", "  "], "fraction": 0.25, "worst": 3.0, "within": 0.1}],}
    ).encode()  # fmt: skip
    job.results = [told]
    text = "\n".join("".join(part for part, _ in line) for line in list_replay(job))
    assert "fail  y is wrong" in text
    assert "25 % of the elements differ from reference, by at most 3" in text
    assert "▕ █▏" in text
    job.results = [b"{}"]
    assert list_replay(job)[0][0][0] == "done"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"nodes_before": 13, "nodes_after": 2, "same": True}, "2 of 13 nodes left"),
        (
            {"nodes_before": 13, "nodes_after": 2, "same": False},
            "2 of 13 nodes left, but the failure changed",
        ),
        ({"answer": "pass", "passes": ["Pad_Fusion"], "probes": 3}, "pass: Pad_Fusion"),
        ({"answer": "not-a-pass", "passes": []}, "not-a-pass"),
        ({"transitions": [], "first_bad": "1.20.0"}, "first bad: 1.20.0"),
        ({"transitions": [], "first_bad": "", "answer": "always-bad"}, "answer: always-bad"),
        ({}, ""),
    ],
)
def test_the_outcome_of_a_job_is_that_of_its_work_not_of_what_takes_it_up(
    told: dict[str, object], words: str
) -> None:
    results = [json.dumps(told).encode(), b"19 failures in 19 clusters"]
    job = Job(1, "reduce", "c1", (("x",), ("y",)), state="done", results=results)
    assert job.outcome == words
    job.state = "failed"
    assert job.outcome == ""


@pytest.mark.parametrize(("width", "title"), [(36, 13), (46, 13), (70, 36), (78, 36), (118, 50)])
def test_a_list_of_clusters_shows_the_compiler_and_most_of_a_title(width: int, title: int) -> None:
    kept = {CLUSTERS[at].title: room for at, room in fit_columns(CLUSTERS, width)}
    assert "compiler" in kept
    assert kept["title"] >= title


@pytest.mark.parametrize(("width", "titles"), [(36, {"", "nodes", "member"}), (69, {"target", "seen"})])
def test_members_show_their_target_and_time_where_these_fit(width: int, titles: set[str]) -> None:
    assert titles <= {MEMBERS[at].title for at, _ in fit_columns(MEMBERS, width)}


def test_a_campaign_is_described_without_what_no_user_chose() -> None:
    text = "mix edition=3f0c12ab98d1 nodes=5-30 supports=a1b2c3d4e5f6 costs=tvm:2"
    assert describe_plan(text) == "strategy mix, nodes 5-30"
    assert describe_plan("samples") == "strategy samples"


def luminance(colour: Color) -> float:
    """The relative luminance of WCAG 2."""
    parts = (value / 255 for value in (colour.r, colour.g, colour.b))
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_coloured_words_can_be_read_on_every_surface_dark_and_light() -> None:
    for theme in (CLEAR_LIGHT, BUILTIN_THEMES[DARK]):
        colours = theme.to_color_system().generate()
        for name in ("text-accent", "text-warning", "text-success", "text-error", "accent"):
            for behind in ("background", "surface", "panel"):
                pair = sorted(luminance(Color.parse(colours[each])) for each in (name, behind))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (theme.name, name, behind)
