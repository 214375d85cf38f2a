"""`opsieve.toml` and the environment: which defaults commands take, in which order, and what is said of
mistakes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import opsieve
from models import X, chain
from stores import done, filled, finding

from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput
from opsieve.tui.cli import COMMANDS, SETTINGS, Commands
from opsieve.tui.commands.examine.corpus_command import command as corpus
from opsieve.tui.commands.find.fuzz_command import command as fuzz
from opsieve.tui.settings import VARIABLES, make_defaults, read_settings

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def of_fuzz(text: str) -> dict[str, Any]:
    Path("opsieve.toml").write_text(text)
    return make_defaults(fuzz, "fuzz", read_settings(COMMANDS))


def test_an_option_comes_before_the_environment_before_a_section_before_the_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        'targets = ["fake"]\nseconds = 5\njobs = 2\nstore = "found"\n[fuzz]\nseconds = 7\nminutes = 10\nadapt'
        " = false\n"
    )
    expected = {
        "targets": ["fake"],
        "seconds": "7",
        "lanes": "2",
        "folder": "found",
        "minutes": "10",
        "adapt": False,
    }
    assert of_fuzz(text) == expected
    monkeypatch.setenv("OPSIEVE_SECONDS", "9")
    monkeypatch.setenv("OPSIEVE_TARGETS", "reference fake")
    assert of_fuzz(text) == expected | {"targets": ["reference", "fake"], "seconds": "9"}
    given = fuzz.make_context("fuzz", ["--seconds", "11"], default_map=of_fuzz(text), **SETTINGS)
    assert (given.params["seconds"], given.params["lanes"], given.params["adapt"]) == (11.0, 2, False)


def test_targets_are_those_of_run_and_fuzz_and_parts_have_sections() -> None:
    Path("opsieve.toml").write_text('targets = ["fake"]\nmemory = 100\n[corpus.run]\nfail-on = "any"\n')
    found = make_defaults(corpus, "corpus", read_settings(COMMANDS))
    assert found == {"add": {"memory": "100"}, "run": {"memory": "100", "fail_on": "any"}, "diff": {}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('tagrets = ["x"]', "no setting 'tagrets'; did you mean targets?"),
        ("[fuz]\nminutes = 1", "no setting 'fuz'; did you mean fuzz?"),
        ("[fuzz]\nminuts = 1", "fuzz has no option 'minuts'; did you mean minutes?"),
        ("fuzz = 3", "fuzz is a command"),
        ("seconds = 'soon'", "seconds: 'soon' is not a valid float"),
        ("[fuzz]\njobs = 100000", "fuzz.jobs: 100000 is not in the range"),
        (
            "[fuzz]\nno-sandbox = true",
            "fuzz.no-sandbox can run programs, so only the command line sets it",
        ),
        ("[fuzz]\nmetamorphic = 1", "fuzz.metamorphic must be true or false"),
        ("targets = 3", "targets must be a list of texts"),
        ("store = [1]", "store must be a text or a number"),
        ("= 3", "is not TOML"),
        pytest.param(
            "a." * 30_000 + "a = 1",
            "to read than a file of its size may",  # memory or time, whichever ends first
            id="a key of many parts",
            marks=pytest.mark.slow(seconds=5),
        ),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_key(text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        of_fuzz(text)
    assert said in str(error.value)
    assert "opsieve.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSIEVE_JOBS", "many")
    with pytest.raises(BadInput, match=r"^OPSIEVE_JOBS: 'many' is not a valid integer"):
        of_fuzz("")


def test_init_writes_a_file_that_commands_read(directory: Path, capsys: Capture) -> None:
    filled(directory / "mine", [done(0, finding("a message", frames=["f"]))])
    assert opsieve("init", "-t", "fake:error@Exp", "--store", "mine", capsys=capsys)[0] == 0
    again = opsieve("init", capsys=capsys)
    assert (again[0], "is here already" in again[2]) == (2, True)
    assert json.loads(opsieve("clusters", "--json", capsys=capsys)[1])["total"] == 1
    save(Case(chain("Exp"), X), directory / "case")
    code, out, _ = opsieve("run", "case", "--json", capsys=capsys)
    assert (code, json.loads(out)["results"][0]["target"]) == (1, "fake:error@Exp")
    assert opsieve("run", "case", "-t", "fake", capsys=capsys)[0] == 0


def test_every_commented_line_of_the_file_is_a_setting(directory: Path, capsys: Capture) -> None:
    opsieve("init", capsys=capsys)
    lines = Path("opsieve.toml").read_text().splitlines()
    Path("opsieve.toml").write_text(
        "\n".join(line[2:] if " = " in line and line.startswith("# ") else line for line in lines)
    )
    found = read_settings(COMMANDS)
    group = Commands()
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        make_defaults(command, name, found)
    assert {"targets", "store", "seconds", "memory", "jobs", "offline"} <= found.keys()


def test_a_build_that_only_the_file_names_does_not_run(directory: Path, capsys: Capture) -> None:
    (directory / "opsieve.toml").write_text('targets = ["onnxruntime@build"]')
    (directory / "build").mkdir()
    save(Case(chain("Exp"), X), directory / "case")
    code, _, err = opsieve("run", "case", capsys=capsys)
    assert (code, "OPSIEVE_INSTALL=yes allows it" in err) == (2, True)
