"""`opsieve.toml` of the working directory: defaults of options, for every command or for one.

    targets = ["onnxruntime", "tvm"]      # of run and fuzz
    store = "found"
    [fuzz]
    minutes = 10

An option of the command line comes before a variable of the environment (`OPSIEVE_TARGETS`, ...), that before
the section of the command, that before the top of the file. A mistake is one sentence that names the key.

A key means the same as the option `--KEY`. But the file may have come with the directory, as a stranger's: it
sets numbers, choices, styles, compilers that are installed and a store below the directory. Everything else
wants a yes (`backends/releases/consent.py`), which is asked for only where no option or variable comes before
it.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.model.files import read_toml

FILE = "opsieve.toml"
# Keys at the top: the option of commands, and which commands (all that have the option for None).
GENERAL: Mapping[str, tuple[str, frozenset[str] | None]] = {
    "targets": ("target", frozenset(["run", "fuzz"])),
    "store": ("store", None),
    "seconds": ("seconds", None),
    "memory": ("memory", None),
    "jobs": ("jobs", None),
    "offline": ("offline", None),
}
# OPSIEVE_STORE is the folder of installed releases (docs/reference/targets.md).
VARIABLES = {key: f"OPSIEVE_{'DEFAULT_STORE' if key == 'store' else key.upper()}" for key in GENERAL}
# Options by which a command runs or trusts what somebody wrote: no yes is asked for.
TYPED_ONLY = frozenset(
    [
        "build",
        "builds",
        "check",
        "commits",
        "env",
        "index",
        "install",
        "no-sandbox",
        "package",
        "scheduler",
        "script",
        "yes",
    ]
)
# Texts that are numbers, names and styles.
PLAIN_TEXTS = frozenset(
    ["chance", "dtypes", "filter", "nodes", "ops", "oracle", "repro-rate", "strategy", "theme", "values"]
)
TARGETS = frozenset(["against", "target"])
# Switches by which a command writes, runs or moves more than it would: the others choose what it shows.
ACTING = frozenset(
    ["aside", "attribute", "costs", "demo", "newest", "reduce", "refingerprint", "resume", "update"]
)
# Bytes
_MOST = 64 << 10


def read_settings(names: Collection[str]) -> dict[str, Any]:
    """Read the file of the working directory; {} without one. `names` are those of the commands.

    Raises:
        BadInput: For an unknown key.
    """
    if not Path(FILE).is_file():
        return {}
    found = read_toml(Path(FILE), _MOST)
    for key, value in found.items():
        # A command name at the top is most likely a forgotten section.
        if key in names and not isinstance(value, dict):
            raise BadInput(f"{FILE}: {key} is a command; write its options behind [{key}]")
        if key not in names and key not in GENERAL:
            raise BadInput(f"{FILE}: there is no setting {shown(key)}{_suggest_key(key, [*GENERAL, *names])}")
    return found


def make_defaults(command: click.Command, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Make the defaults of a command (click's `default_map`) from the environment and the file, with its
    subcommands by name.

    Raises:
        BadInput: For an unknown option or an invalid value.
    """
    return _make_defaults(command, name, found.get(name, {}), found)


def _make_defaults(
    command: click.Command, name: str, own: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    options = {
        text.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for text in (*option.opts, *option.secondary_opts)
        if text.startswith("--")
    }
    parts = command.commands if isinstance(command, click.Group) else {}
    chosen: dict[str, tuple[Any, str]] = {}
    general = [
        (key, text)
        for key, (text, commands) in GENERAL.items()
        if text in options and (commands is None or name in commands)
    ]
    chosen |= {text: (found[key], key) for key, text in general if key in found}
    for key, value in own.items():
        if key in options and key in TYPED_ONLY:
            raise BadInput(
                f"{FILE}: {name}.{key} can run programs, so only the command line sets it: --{key}"
            )
        if key in options:
            chosen[key] = value, f"{name.replace(' ', '.')}.{key}"
        elif key not in parts or not isinstance(value, dict):
            raise BadInput(
                f"{FILE}: {name} has no option {shown(key)}{_suggest_key(key, [*options, *parts])}"
            )
    for key, text in general:
        # After the file, so that the variable wins.
        if word := os.environ.get(VARIABLES[key], ""):
            chosen[text] = word.split() if key == "targets" else word, VARIABLES[key]
    made = {
        str(options[key].name): _guard_value(
            options[key], key, _convert_value(options[key], value, where), where
        )
        for key, (value, where) in chosen.items()
    }
    return made | {
        part: _make_defaults(each, f"{name} {part}", own.get(part, {}), found) for part, each in parts.items()
    }


def _convert_value(option: click.Option, value: Any, where: str) -> Any:
    """Convert a value to the type of the option; raises BadInput, naming the key, if that fails."""
    source = where if where.startswith("OPSIEVE_") else f"{FILE}: {where}"
    if option.is_flag:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        # Variables have only texts; in TOML a text for a switch is a mistake.
        given = words.get(value.lower()) if isinstance(value, str) and source == where else value
        if not isinstance(given, bool):
            raise BadInput(f"{source} must be true or false, not {shown(value)}")
        return given
    if option.multiple:
        given = [value] if isinstance(value, str) else value
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise BadInput(f"{source} must be a list of texts, not {shown(value)}")
        return given
    # `str(True)` would pass for a text.
    if isinstance(value, bool | list | dict):
        raise BadInput(f"{source} must be a text or a number, not {shown(value)}")
    try:
        # Tried here for the message, which names the key; click converts it again.
        option.type.convert(value if isinstance(value, str) else str(value), option, None)
    except click.BadParameter as error:
        raise BadInput(f"{source}: {error.message.rstrip('.')}") from None
    return str(value)


def _guard_value(option: click.Option, key: str, value: Any, where: str) -> Any | Callable[[], Any]:
    """Return a value, or for one that wants a yes a function that asks for it: click calls it only where the
    option is not given.
    """
    if where.startswith("OPSIEVE_") or _is_harmless(option, key, value):
        return value

    def ask() -> Any:
        from opsieve.backends.releases.consent import confirm_setting, named_by_settings

        if key in TARGETS:
            for text in [value] if isinstance(value, str) else value:
                named_by_settings(text)
        else:
            confirm_setting(f"sets {where} to {shown(value, 200)}, which only you may do", value)
        return value

    return ask


def _is_harmless(option: click.Option, key: str, value: Any) -> bool:
    """Return whether any folder may set an option to this value."""
    if key in TARGETS:
        # These characters name a release, a build, options or a command.
        return not any(set(text) & set("=@:/") for text in ([value] if isinstance(value, str) else value))
    if key == "store":
        here = os.path.realpath(".")
        place = os.path.realpath(value)
        # Below the folder, links resolved: a stranger's file must not direct writes to elsewhere.
        return place != here and os.path.commonpath([here, place]) == here
    if option.is_flag:
        return key not in ACTING
    return key in PLAIN_TEXTS or not isinstance(option.type, click.Path | type(click.STRING))


def _suggest_key(key: str, names: Iterable[str]) -> str:
    return suggest_name(key, names) or f" (opsieve init writes a {FILE} with all of them)"
