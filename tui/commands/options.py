"""Options shared by several commands, so that one name means the same everywhere."""

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from opsieve.backends.target import may_be_own
from opsieve.tui.commands import completions

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


def allow_builds(context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Callback of target options: check a named build and allow it to run."""
    for text in (value,) if isinstance(value, str) else value or ():
        # Only a build or a command needs this; resolving every target would import its backend for --help.
        # An empty text, such as an unset variable of a script, must not mean the default.
        if not text or may_be_own(text):
            from opsieve.backends.registry import resolve
            from opsieve.backends.releases.builds import allow
            from opsieve.backends.releases.consent import name_oracles

            target = resolve(text)
            allow(target)
            # A target may name an oracle of the user's own, to whose code this is the consent.
            context.with_resource(name_oracles(target.oracles))
    return value


def _name_oracles(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> Any:
    """Callback of `--oracle`: only the command line, no file, lets code of the user's run as an oracle."""
    from opsieve.backends.releases.consent import name_oracles

    # A settings file may have come with the folder, as a stranger's.
    if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
        # Undone with the command: several can run in one process, as in tests.
        context.with_resource(name_oracles(value))
    return value


def _switch_sandbox_off(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Callback of `--no-sandbox`, for the command and its child processes."""
    if value:
        from opsieve.backends.workers.sandbox.policy import switch_off

        context.with_resource(switch_off())


def _hand_variables_on(context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    """Callback of `--env`."""
    if value:
        from opsieve.backends.workers.sandbox.policy import HANDED_ON
        from opsieve.gen.model.variables import variable_set

        # Child processes of the command read it from the environment.
        names = ",".join([*filter(None, [os.environ.get(HANDED_ON)]), *value])
        context.with_resource(variable_set(HANDED_ON, names))


def check_finite(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """Callback of numbers with a fraction: click takes NaN and infinity for numbers in any range."""
    # NaN fails both comparisons.
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value} is not a number from 0 on")
    return value


def _give_consent(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Callback of `--yes`."""
    if value:
        from opsieve.backends.releases.consent import give_consent

        context.with_resource(give_consent())


def _allow_install(context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    """Callback of `--install`."""
    from opsieve.backends.releases.consent import SWITCH, give_consent

    # A general yes includes each single release.
    if value and os.environ.get(SWITCH) != "yes":
        context.with_resource(give_consent(value))


def _parse_amounts(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, float]:
    """Callback of `--resource`: amounts by name."""
    found: dict[str, float] = {}
    for text in value:
        name, _, amount = text.partition("=")
        try:
            found[name] = float(amount or 1)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not NAME=AMOUNT, such as GPU=1") from None
        if not name or not 0 < found[name] < math.inf:
            raise click.BadParameter(f"{text!r} is not NAME=AMOUNT, such as GPU=1")
    return found


SCHEDULER = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on the Dask cluster whose scheduler is at tcp://HOST:PORT (needs opsieve[cluster]).",
)
RESOURCES = click.option(
    "--resource",
    "resources",
    metavar="NAME=AMOUNT",
    multiple=True,
    callback=_parse_amounts,
    help="With --scheduler, only on workers that have this resource, such as GPU=1; repeatable.",
)
INPUTS = click.option(
    "--inputs",
    type=PATH,
    help="Input values: an .npz file, an ONNX test data set, or a directory that holds one.",
)
EXPECTED = click.option(
    "--expected",
    type=PATH,
    help="Expected outputs, in the same formats as --inputs; for bisect they define good and bad.",
)
TARGET = click.option(
    "-t",
    "--target",
    metavar="TARGET",
    shell_complete=completions.complete_targets,
    callback=lambda *given: allow_builds(*given) or "",
    help=(
        "Compiler to test: backend[==release | @path][:option,...].  [default: the target recorded in the"
        " case, else onnxruntime]"
    ),
)


def make_targets(text: str) -> Callable[[F], F]:
    """Make `-t/--target` of commands that take several."""
    return click.option(
        "-t",
        "--target",
        "targets",
        metavar="TARGET",
        shell_complete=completions.complete_targets,
        callback=allow_builds,
        multiple=True,
        help=text,
    )


TARGETS = make_targets(
    "Compiler to test: backend[==release | @path][:option,...]; repeatable.  [default: onnxruntime]"
)
SEED = click.option(
    "--seed", default=0, show_default=True, help="Random seed for inputs that were not supplied."
)
OPERATORS = click.option(
    "--ops",
    "operators",
    multiple=True,
    shell_complete=completions.complete_operators,
    help=(
        "Operators to use ('Conv*,Add') or to exclude ('-Loop').  [default: all of ONNX's own; '*' for other"
        " domains' too]"
    ),
)
DTYPES = click.option(
    "--dtypes", default="", help="Element types to use, such as float32,int64.  [default: all]"
)
SIBLINGS = click.option(
    "--siblings",
    type=click.IntRange(1, 4096),
    default=1,
    show_default=True,
    metavar="N",
    help="Programs of each seed: one is grown, the others have other operators, attributes or inputs.",
)
RTOL = click.option(
    "--rtol",
    type=float,
    callback=check_finite,
    help="Relative tolerance per element; replaces the built-in comparison policy.",
)
ATOL = click.option(
    "--atol",
    type=float,
    callback=check_finite,
    help="Absolute tolerance per element, added to the relative one.",
)
ORACLE = click.option(
    "--oracle",
    "oracles",
    metavar="NAME",
    multiple=True,
    callback=_name_oracles,
    help=(
        "Consult this oracle too; repeatable: text-round-trip, json-round-trip, pipelines, execution, "
        "slowdown, memory, nondeterminism, or one of your own. The other oracles are always consulted."
    ),
)
OFFLINE = click.option("--offline", is_flag=True, help="Use only releases that are installed already.")
_ENV = click.option(
    "--env",
    metavar="NAME",
    multiple=True,
    expose_value=False,
    callback=_hand_variables_on,
    help="Pass this environment variable to compilers; repeatable.",
)
_NO_SANDBOX = click.option(
    "--no-sandbox",
    is_flag=True,
    expose_value=False,
    callback=_switch_sandbox_off,
    help=(
        "Run compilers outside the sandbox, with your network and your files (docs/explanation/security.md)."
    ),
)


def NO_SANDBOX(command: F) -> F:
    """`--no-sandbox` and `--env`: what compilers get of this machine."""
    return _NO_SANDBOX(_ENV(command))


_YES = click.option(
    "--yes",
    is_flag=True,
    expose_value=False,
    callback=_give_consent,
    help="Install releases that a case or a store names without asking.",
)
_INSTALL = click.option(
    "--install",
    metavar="RELEASE",
    multiple=True,
    expose_value=False,
    callback=_allow_install,
    help="Install this release without asking, such as onnxruntime==1.20.1; repeatable.",
)


def CONSENT(command: F) -> F:
    """Add `--yes` and `--install`, which allow installing releases named by a file."""
    return _YES(_INSTALL(command))


METAMORPHIC = click.option(
    "--metamorphic",
    is_flag=True,
    help=(
        "Also run equivalent programs (Identity inserted, inputs made constants, ...); their results must"
        " be equal."
    ),
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
STORE = click.option(
    "--store", "folder", type=PATH, default=Path("opsieve-store"), show_default=True, help="Store directory."
)


MEMORY = click.option(
    "--memory",
    type=click.IntRange(64, 1 << 20),
    default=4096,
    show_default=True,
    help="Memory limit of one run, in MiB.",
)


def make_limits(seconds: float) -> Callable[[F], F]:
    """Add `--seconds` and `--memory`, which the command gets as one `limits`."""

    def add_options(command: F) -> F:
        @functools.wraps(command)
        def run(*arguments: Any, seconds: float, memory: int, **given: Any) -> Any:
            from opsieve.backends.workers.zygotes.zygote import Limits

            return command(*arguments, limits=Limits(seconds=seconds, memory=memory << 20), **given)

        return make_seconds(seconds)(MEMORY(cast(F, run)))

    return add_options


def make_seconds(default: float) -> Callable[[F], F]:
    """Make `--seconds`: the wall time of one run."""
    # A day: more is a slip of the unit.
    kind = click.FloatRange(0, 86400, min_open=True)
    return click.option(
        "--seconds",
        type=kind,
        callback=check_finite,
        default=default,
        show_default=True,
        help="Time limit of one run, in seconds.",
    )
