"""What commands say of themselves: --help of each as a golden file, in groups, with help for every option."""

import os
import re
import textwrap
from collections import Counter
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from commands import opsieve as run
from golden import assert_golden
from repository import GOLDEN, ROOT
from stores import done, filled, finding

from opsieve.tui.cli import COMMANDS, GROUPS, SETTINGS, opsieve
from opsieve.tui.commands.examine.reduce_command import main as reduce_main

REFERENCE = ROOT / "docs" / "reference" / "cli.md"
MARK = "tests/cli/test_help.py -->\n"
SHARED_BY = 2  # commands from which on the reference describes an option once
# commands of commands
PARTS = {
    "corpus": ["corpus add", "corpus run", "corpus diff"],
    "bugs": ["bugs replay"],
    "known": ["known import"],
}
WHOLE = [*COMMANDS, *(part for parts in PARTS.values() for part in parts)]


def command_named(name: str) -> click.Command:
    found: click.Command | None = opsieve
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found, **SETTINGS), word)
    assert found is not None
    return found


def test_help_is_as_it_was_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for name in ["", *WHOLE]:
        code, out, err = run(*name.split(), "--help", capsys=capsys)
        assert (code, err) == (0, ""), name
        assert_golden(f"help/{name.replace(' ', '-') or 'opsieve'}.txt", out)


def test_every_option_has_help_and_shows_its_default() -> None:
    for name in WHOLE:
        for parameter in command_named(name).params:
            if not isinstance(parameter, click.Option) or parameter.hidden:
                continue
            assert parameter.help, f"{name} {parameter.opts}"
            plain_flag = parameter.is_flag and not parameter.secondary_opts
            shown = isinstance(parameter.default, (int, float, str)) and parameter.default != ""
            if shown and not plain_flag:
                assert parameter.show_default, f"{name} {parameter.opts}: {parameter.default!r}"


def test_every_command_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    for name in WHOLE:
        code, out, _ = run(*name.split(), "--version", capsys=capsys)
        assert (code, out.startswith("opsieve, version ")) == (0, True), name


@pytest.mark.parametrize(
    ("typed", "hint"), [("bisct", "bisect"), ("cluster", "clusters"), ("fuzzz", "fuzz"), ("xyzzy", "")]
)
def test_a_mistyped_command_gets_the_closest_one(
    typed: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(typed, capsys=capsys)
    assert (code, out) == (2, "")
    assert (
        err
        == f"opsieve: No such command '{typed}'{hint and f'; did you mean {hint}?'} (see opsieve --help).\n"
    )


def test_a_mistyped_option_gets_the_closest_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("run", "model.onnx", "--ofline", capsys=capsys)
    assert (code, "--offline" in err) == (2, True)


def test_the_reference_shows_the_help_of_every_command() -> None:
    options = Counter(option for name in WHOLE for option in read_options(name))
    # The commonest text of each name: a second one would leave open which of them a command means.
    commonest = {name: text for (name, text), _ in reversed(options.most_common())}
    shared = [
        (name, text)
        for (name, text), count in options.items()
        if count >= SHARED_BY and commonest[name] == text
    ]
    lines = ["\n## Shared options\n"]
    for name, text in shared:
        lines += textwrap.wrap(f"- `{name}`: {text}", 120, subsequent_indent="  ", break_on_hyphens=False)
    for group, names in GROUPS.items():
        lines.append(f"\n## {group}\n")
        lines += [describe(each, shared) for name in names for each in (name, *PARTS.get(name, []))]
    text = REFERENCE.read_text().partition(MARK)[0] + MARK + "\n".join(lines)
    if os.environ.get("UPDATE_GOLDEN"):
        REFERENCE.write_text(text)
    assert REFERENCE.read_text() == text
    assert max(map(len, text.splitlines())) <= 140


def describe(name: str, shared: list[tuple[str, str]]) -> str:
    """Return the section of a command: its help without the shared options, and a line that lists these."""
    before, options, commands = split_help(name)
    own = [entry for entry in options if read_option(entry) not in shared]
    listed = [read_option(entry)[0] for entry in options if entry not in own]
    listed = [option for option in listed if option not in ("--version", "-h, --help")]
    names = ", ".join(f"`{re.search(r'--[a-z-]+', option)[0]}`" for option in listed)  # type: ignore[index]
    block = before.rstrip() + "\n" + "".join(["\nOptions:\n", *own] if own else []) + commands
    if not listed:
        return f"### {name}\n\n```text\n{block}```\n"
    line = textwrap.fill(f"[Shared options](#shared-options): {names}", 120, break_on_hyphens=False)
    return f"### {name}\n\n```text\n{block}```\n\n{line}\n"


def split_help(name: str) -> tuple[str, list[str], str]:
    """Split the help of a command into the text, its options, and what follows them."""
    text = (GOLDEN / "help" / f"{name.replace(' ', '-')}.txt").read_text()
    before, _, rest = text.partition("Options:\n")
    options, blank, commands = rest.partition("\n\n")
    return (
        before,
        re.findall(r"^  -.*\n(?:    .*\n)*", options + "\n" * bool(blank), re.MULTILINE),
        blank[1:] + commands,
    )


def read_option(entry: str) -> tuple[str, str]:
    """Return the names of an option and its help on one line."""
    name, _, text = entry.strip().replace("\n", "  ").partition("  ")
    # The same text breaks at another hyphen where the column is narrower ("json-\n round-trip").
    return name, re.sub(r"(?<=[a-z])- (?=[a-z])", "-", " ".join(text.split()))


def read_options(name: str) -> list[tuple[str, str]]:
    return [read_option(entry) for entry in split_help(name)[1]]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["fu"], "fuzz"),
        (["run", "--tar"], "--target"),
        (["run", "-t", "onnxr"], "onnxruntime"),
        (["gen", "--ops", "Relu,-MaxP"], "Relu,-MaxPool"),
        (["mark", "c"], "c1"),
        (["show", "c"], "c1"),
        (["export", "opsieve-s"], "opsieve-s"),  # a file, which the shell completes
        (["clusters", "ki"], "kind:"),
        (["clusters", "kind:crash,mis"], "kind:crash,mismatch"),
        (["clusters", "op:MaxP"], "op:MaxPool"),
        (["corpus", "ru"], "run"),
        (["corpus", "run", "cases", "-t", "onnxr"], "onnxruntime"),
    ],
    ids=str,
)
def test_shells_complete_commands_options_targets_operators_and_clusters(
    words: list[str], offered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "opsieve-store", [done(0, finding("no kernel", operators=("Relu",)))])
    monkeypatch.chdir(tmp_path)
    complete = ShellComplete(opsieve, {}, "opsieve", "_OPSIEVE_COMPLETE")
    assert offered in [item.value for item in complete.get_completions(words[:-1], words[-1])]


def test_the_script_reduce_has_a_version_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        reduce_main(["--version"])
    assert (ended.value.code, capsys.readouterr().out.startswith("opsieve, version ")) == (0, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("completion", shell, capsys=capsys)
    assert (code, "_OPSIEVE_COMPLETE" in out, "_REDUCE_COMPLETE" in out) == (0, True, True)
