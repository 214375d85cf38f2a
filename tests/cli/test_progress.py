"""Progress where there is no terminal, and `--json-lines`."""

import json
from pathlib import Path

import pytest
from commands import opsieve

from opsieve.tui.commands import output
from opsieve.tui.commands.output import Pulse, open_counting_bar


def test_a_pulse_beats_after_its_first_time_and_then_now_and_then() -> None:
    now = [0.0]
    pulse = Pulse(lambda: now[0], 20.0, 60.0)
    beats = []
    for second in range(200):
        now[0] = float(second)
        if pulse.is_due():
            beats.append(second)
    assert beats == [20, 80, 140]


@pytest.mark.parametrize("quiet", [False, True])
def test_where_there_is_no_terminal_a_line_comes_now_and_then_unless_quiet(
    quiet: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "Pulse", lambda: Pulse(first=0.0))
    with open_counting_bar(9, "tests", quiet) as show:
        show(3, "all well")
        show(4, "all well")
    assert capsys.readouterr().err == ("" if quiet else "opsieve: 3 of 9 tests, all well\n")


def test_a_campaign_tells_what_it_does_line_by_line_and_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        "fuzz",
        "-t",
        "fake:error@Relu+error@Add+error@Cast+error@Mul",
        "--no-probe",
        "--strategy",
        "isra",
        "--nodes",
        "6",
        "--store",
        tmp_path / "s",
    )
    code, out, _ = opsieve(*command, "--seed", "3", "--tests", "12", "--json-lines", "--quiet", capsys=capsys)
    events = [json.loads(line) for line in out.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["begun", "ended"]
    assert events[0]["seed"] == 3
    assert code == 1
    assert events[-1]["tests"] == 12
    new = events[-1]["new_clusters"]
    assert 0 < len(new) == events[-1]["clusters"]
    code, out, _ = opsieve(*command, "--seed", "4", "--tests", "12", "--json", capsys=capsys)
    known = {item["cluster"] for item in new}
    assert not known & {item["cluster"] for item in json.loads(out)["new_clusters"]}
