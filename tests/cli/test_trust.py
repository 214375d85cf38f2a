"""What a value may do hangs on where it comes from: one test for each cell of the table in security.md."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
from commands import opsieve
from models import X, chain
from repository import ROOT
from stores import done, filled, finding

from opsieve.backends.releases import consent
from opsieve.gen.case.case import Case, save
from opsieve.tui.cli import COMMANDS, Commands
from opsieve.tui.commands.find.fuzz_command import command as fuzz
from opsieve.tui.settings import ACTING, PLAIN_TEXTS, TARGETS, TYPED_ONLY, VARIABLES, make_defaults

Capture = pytest.CaptureFixture[str]
ORIGINS = ("typed", "environment", "folder", "record")
RELEASE = "onnxruntime==1.20.1"


def rows() -> Iterator[tuple[str, str, str]]:
    """Each cell of the table: what a value does, where it comes from, and the answer."""
    text = (ROOT / "docs/explanation/security.md").read_text()
    table = text.partition("<!-- trust -->")[2].partition("<!-- end of trust -->")[0]
    for line in table.strip().splitlines()[2:]:
        what, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for origin, cell in zip(ORIGINS, cells, strict=True):
            if cell != "-":
                yield what, origin, cell


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a case and a store, and a machine on which nobody agreed to anything."""
    for name in (*VARIABLES.values(), consent.SWITCH, consent.TRUST):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "releases"))
    (tmp_path / "here" / "lib" / "onnxruntime").mkdir(parents=True)
    (tmp_path / "here" / "lib" / "onnxruntime" / "__init__.py").write_text("__version__ = '9.0'\n")
    monkeypatch.chdir(tmp_path / "here")
    save(Case(chain("Relu"), X), Path("case"))
    filled(Path("found"), [done(0, finding("a message", frames=["f"]))])
    return tmp_path / "here"


def settle(section: str, key: str, value: str) -> None:
    Path("opsieve.toml").write_text(f"[{section}]\n{key} = {value}\n")


# -- what is tried: words of a command, and how the folder, the environment or a case says the same


def number(origin: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if origin == "folder":
        settle("run", "seconds", "9")
    if origin == "environment":
        monkeypatch.setenv("OPSIEVE_SECONDS", "9")
    return ["run", "case", "-t", "fake", *(["--seconds", "9"] if origin == "typed" else [])]


def store(origin: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if origin == "folder":
        settle("clusters", "store", '"found"')
    if origin == "environment":
        monkeypatch.setenv("OPSIEVE_DEFAULT_STORE", "found")
    return ["clusters", *(["--store", "found"] if origin == "typed" else [])]


def target(text: str) -> Callable[[str, pytest.MonkeyPatch], list[str]]:
    def words(origin: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        if origin == "folder":
            settle("run", "target", f"['{text}']")
        if origin == "environment":
            monkeypatch.setenv("OPSIEVE_TARGETS", text)
        if origin == "record":
            save(Case(chain("Relu"), X, parameters={"target": text}), Path("case"))
            return ["export", "case"]
        return ["run", "case", *(["-t", text, "--offline"] if origin == "typed" else [])]

    return words


def output(origin: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if origin == "folder":
        settle("report", "output", '"page.html"')
    return ["report", "found", *(["-o", "page.html"] if origin == "typed" else [])]


def values(origin: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    given = str(next(Path("case").glob("test_data*")))
    if origin == "folder":
        settle("run", "inputs", f'"{given}"')
    return ["run", "case/model.onnx", "-t", "fake", *(["--inputs", given] if origin == "typed" else [])]


def searched(origin: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if origin == "folder":
        settle("bisect", "good", '"onnxruntime@lib"')
    return ["bisect", "case", "--offline", *(["--good", "onnxruntime@lib"] if origin == "typed" else [])]


def sandbox(origin: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    if origin == "folder":
        settle("run", "no-sandbox", "true")
    return ["run", "case", "-t", "fake", *(["--no-sandbox"] if origin == "typed" else [])]


WAYS = {
    "a number, a choice or a style": number,
    "a compiler that is installed": target("fake"),
    "a store below the folder": store,
    "a release that is to be installed": target(RELEASE),
    "a build or a library": target("onnxruntime@lib"),
    "a command that is run": target("command:true {model} {inputs} {outputs}"),
    "a file to write": output,
    "a file to read": values,
    "versions to search, and all other texts": searched,
    "`--yes`, `--no-sandbox`, a script": sandbox,
}
ASKS = ("allows it", "installs it from")
NEVER = ("sets no program that runs", "only the command line sets it", "was never named on the command line")


def test_the_table_names_all_that_is_tried() -> None:
    assert {what for what, _, _ in rows()} == set(WAYS)


# In each cell of this row a release is looked for.
LONG = "a release that is to be installed"


@pytest.mark.parametrize(
    ("what", "origin", "answer"),
    [
        pytest.param(*row, marks=pytest.mark.slow if row[0] == LONG and row[1] != "folder" else ())
        for row in rows()
    ],
)
def test_a_value_may_do_what_the_table_says(
    what: str, origin: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    if origin == "environment" and answer == "yes" and what == "a release that is to be installed":
        monkeypatch.setenv("OPSIEVE_OFFLINE", "true")
    words = WAYS[what](origin, monkeypatch)
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    code, _, err = opsieve(*words, capsys=capsys)
    asked = any(sentence in err for sentence in ASKS)
    refused = any(sentence in err for sentence in NEVER)
    assert (asked, refused) == (answer == "asks", answer == "never"), err
    if answer != "yes":
        assert code == 2
        assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


def test_a_yes_holds_for_this_folder_and_this_value(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = output("folder", monkeypatch)
    assert opsieve(*words, capsys=capsys)[0] == 2
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    questions: list[str] = []
    monkeypatch.setattr(click, "confirm", lambda question, err: questions.append(question) or True)
    assert opsieve(*words, capsys=capsys)[0] == 0
    assert opsieve(*words, capsys=capsys)[0] == 0
    assert len(questions) == 1
    assert "sets report.output to 'page.html'" in questions[0]
    settle("report", "output", '"other.html"')
    assert opsieve(*words, capsys=capsys)[0] == 0
    assert len(questions) == 2
    (folder / "copy").mkdir()
    Path("opsieve.toml").rename("copy/opsieve.toml")
    monkeypatch.chdir("copy")
    assert opsieve("report", "../found", capsys=capsys)[0] == 0
    assert len(questions) == 3


def test_the_environment_agrees_where_nobody_can_be_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = output("folder", monkeypatch)
    monkeypatch.setenv(consent.TRUST, "yes")
    assert opsieve(*words, capsys=capsys)[0] == 0
    monkeypatch.delenv(consent.TRUST)
    assert opsieve(*words, "-o", "mine.html", capsys=capsys)[0] == 0  # an option comes before it


@pytest.mark.parametrize("place", ["../found", ".", "/tmp/found", "link", "case/../../found"])
def test_a_store_outside_of_the_folder_wants_a_yes(place: str, folder: Path) -> None:
    Path("link").symlink_to(folder.parent)
    assert callable(make_defaults(fuzz, "fuzz", {"store": place})["folder"])


# Whoever adds an option decides where it belongs.
def test_every_option_that_writes_reads_or_runs_wants_a_yes() -> None:
    group = Commands()
    paths, texts, switches = set(), set(), set()
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        for one in (command, *getattr(command, "commands", {}).values()):
            for option in (each for each in one.params if isinstance(each, click.Option)):  # type: ignore[union-attr]
                key = max(option.opts, key=len).removeprefix("--")
                if isinstance(option.type, click.Path):
                    paths.add(key)
                elif option.is_flag:
                    switches.add(key)
                elif isinstance(option.type, type(click.STRING)):
                    texts.add(key)
    assert paths >= {"output", "junit", "sarif", "save", "report", "inputs", "store"}
    assert texts - PLAIN_TEXTS - TARGETS - TYPED_ONLY == {
        "after", "bad", "entry", "good", "issue", "module", "passes", "paths", "releases", "repo", "resource", "source",
        "sparse", "store",
    }  # fmt: skip
    assert switches >= ACTING
    assert switches - ACTING - TYPED_ONLY == {
        "adapt", "allow-unjudged", "ci", "dry-run", "explain-support", "first-parent", "fixed", "flat", "fresh",
        "github", "guide", "hang-is-bad", "json", "json-lines", "locate", "metamorphic", "no-attribute", "no-check",
        "no-history", "non-bugs", "off", "offline", "pre", "probe", "quiet", "reverse", "stats", "sweep",
        "verify", "version", "why",
    }  # fmt: skip


def test_every_number_with_a_fraction_is_a_number() -> None:
    """NaN lies in every range of click, and an unlimited time is what a left out option says."""
    group, seen = Commands(), 0
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        for one in (command, *getattr(command, "commands", {}).values()):
            for option in one.params:  # type: ignore[union-attr]
                if isinstance(option.type, click.types.FloatParamType):
                    seen += 1
                    for value in ("nan", "inf"):
                        with pytest.raises(click.BadParameter):
                            option.process_value(click.Context(one), value)  # type: ignore[arg-type]
    assert seen > 20


def test_the_targets_of_a_store_want_consent_before_a_campaign_goes_on(capsys: Capture) -> None:
    words = ["fuzz", "--store", "campaign", "--tests", "2", "--no-probe", "--quiet", "--nodes", "2"]
    assert opsieve(*words, "-t", "fake", capsys=capsys)[0] in (0, 1)
    with closing(sqlite3.connect("campaign/index.sqlite")) as index, index:
        index.execute("UPDATE campaigns SET targets = replace(targets, 'fake', ?)", (RELEASE,))
    code, _, err = opsieve(*words[:4], "4", "--resume", capsys=capsys)
    assert (code, f"the store names {RELEASE}, which is not installed here" in err) == (2, True)
