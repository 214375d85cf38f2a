"""The `opsieve` command. Commands are imported when they are called: `opsieve --help` loads none of the
libraries.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

import click

from opsieve.gen.errors import BadInput, Unconfirmed, suggest_name
from opsieve.gen.model.printable import printable
from opsieve.tui.settings import make_defaults, read_settings
from opsieve.version import VERSION

# In place of a module: the command comes with the research kit, which says where it is by an entry point.
RESEARCH = "opsieve-research"
PLUGINS = "opsieve.commands"
# group -> name -> (module of tui.commands with a click command called `command`, or module:command; one line
# for the overview)
GROUPS = {
    "Examine a failure": {
        "run": ("examine.run_command", "Run models on compilers and judge the results."),
        "reduce": ("examine.reduce_command", "Reduce a failing model to the smallest one that still fails."),
        "bisect": ("examine.bisect_command", "Find the release or commit that introduced a failure."),
        "replay": ("examine.replay_command", "Replay a public report on the versions it names."),
        "attribute": ("examine.bisect_command:attribute", "Find the optimiser pass that causes a failure."),
        "explain": ("examine.explain_command", "Explain a verdict, a rule or a fingerprint."),
        "export": ("examine.export_command", "Write a failure as a script, an issue, a test or a zip."),
        "corpus": ("examine.corpus_command", "Keep failing cases and replay them on new compilers."),
        "bugs": ("examine.corpus_command:bugs", "List the bugs that opsieve has found, and replay them."),
    },
    "Find failures": {
        "fuzz": ("find.fuzz_command", "Run a campaign of generated programs on several compilers."),
        "gen": ("find.gen_command", "Generate programs, as case directories or .onnx files."),
        "import": ("find.import_command", "Import models and values saved by other tools."),
        "metrics": (RESEARCH, "Measure how diverse a directory of models is (needs the research kit)."),
        "coverage": (
            "find.coverage_command",
            "Show or compare what campaigns reached of compilers' native code.",
        ),
    },
    "Triage a store": {
        "tui": ("triage.tui_command", "Triage a store in the terminal app."),
        "triage": ("triage.triage_command", "Rank, reduce and explain the failures of a store."),
        "clusters": ("triage.show_command:clusters", "List the bugs of a store."),
        "show": ("triage.show_command", "Show a cluster or a case, and why it is there."),
        "watch": (
            "triage.watch_command",
            "Replay a store on new releases; close what is fixed, reopen what fails.",
        ),
        "report": ("triage.report_command", "Write a store as one HTML page."),
        "known": ("triage.known_command", "Compare clusters with public issues, to tell which are known."),
    },
    "Record decisions": {
        "mark": (
            "triage.decisions_command:mark",
            "Set the status of a cluster: new, confirmed, known, fixed or wontfix.",
        ),
        "merge": ("triage.decisions_command:merge", "Merge clusters that are one bug."),
        "split": ("triage.decisions_command:split", "Split a fingerprint or a case out of its cluster."),
        "pin": ("triage.decisions_command:pin", "Pin a cluster to the top of the list."),
        "note": ("triage.decisions_command:note", "Attach a note to a cluster."),
        "rename": ("triage.decisions_command:rename", "Give a cluster another title."),
        "undo": ("triage.decisions_command:undo", "Undo the latest decision."),
        "redo": ("triage.decisions_command:redo", "Redo the decision undone last."),
    },
    "Set up and maintain": {
        "init": ("maintain.init_command", "Write a commented opsieve.toml: defaults for this directory."),
        "doctor": ("maintain.doctor_command", "Check which compilers are installed and what they accept."),
        "index": ("maintain.init_command:index", "Rebuild the index of a store from its case directories."),
        "sample": (
            "maintain.init_command:sample",
            "Copy one of the failing models that opsieve brings along.",
        ),
        "completion": (
            "maintain.init_command:completion",
            "Print the completion script for bash, zsh or fish.",
        ),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
# Characters of a sentence, in which a file may have put a text of its own
_LONGEST = 4000
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Commands(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the overview."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command called `cmd_name`."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        if module == RESEARCH:
            return _add_version(_load_plugin(cmd_name))
        # Only now: importing all commands would take seconds.
        found = importlib.import_module(f"opsieve.tui.commands.{module}")
        return _add_version(getattr(found, name or "command"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; suggest the closest name for an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command '{args[0]}'{suggest_name(args[0], COMMANDS)}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        # `init` writes that file, and completion must not fail for a mistake in it.
        if command is not None and name not in ("init", "completion") and not ctx.resilient_parsing:
            ctx.default_map = {str(name): make_defaults(command, str(name), read_settings(COMMANDS))}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Format the overview without importing a command."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in commands.items()])


def _load_plugin(name: str) -> click.Command:
    """Load the command that an installed package declares under this name."""
    from importlib.metadata import entry_points

    for point in entry_points(group=PLUGINS, name=name):
        command: click.Command = point.load()
        return command
    raise BadInput(
        f"opsieve {name} needs the research kit, which is not installed: pip install ./benchmarks/research"
        " in a checkout of opsieve"
    )


def _add_version(command: click.Command) -> click.Command:
    """Add `--version` to the command and its subcommands."""
    for each in (command, *getattr(command, "commands", {}).values()):
        if not any(parameter.name == "version" for parameter in each.params):
            click.version_option(VERSION, prog_name="opsieve")(each)
    return command


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(VERSION, prog_name="opsieve")
def opsieve() -> None:
    """Find, judge, reduce, triage and bisect the bugs of deep-learning compilers."""


def _explain_target_option(option: str) -> str:
    """Explain how a target takes an option that was given to a command (`--ort-custom-ops`); "" if no
    compiler has it.
    """
    from opsieve.backends.registry import names, plugin

    wanted = option.lstrip("-").replace("-", "_")
    # onnxruntime first, the compiler that most people use.
    for name in sorted(names(), key=lambda name: (name != "onnxruntime", name)):
        for known in plugin(name).facts.options:
            if wanted == known or wanted.endswith(f"_{known}"):
                return f": it is an option of targets, such as -t {name}:{known}=VALUE"
    return ""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `opsieve` and exit: 0 success, 1 failures found, 2 bad usage or input, 70 an error in opsieve, 130
    interrupted.
    """
    run_command(opsieve, "opsieve", arguments)


def run_command(command: click.Command, name: str, arguments: Sequence[str] | None) -> NoReturn:
    """Run a command and exit with its code; an error is one sentence on stderr."""

    # Open closed descriptors 0 to 2 on /dev/null; otherwise pipes to workers would get their numbers.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    try:
        _add_version(command)
        known = {} if isinstance(command, Commands) else make_defaults(command, name, read_settings(COMMANDS))
        # False where the user wants no color (https://no-color.org), else None: terminals have
        # color.
        code = _call_confirmed(
            lambda: command.main(
                arguments,
                prog_name=name,
                standalone_mode=False,
                default_map=known,
                color=False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None,
            )
        )
        # Closed by who called
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.UsageError as error:
        hint = (
            _explain_target_option(error.option_name)
            if isinstance(error, click.NoSuchOption)
            # Other commands take the store as an argument.
            else "; --store DIR names the store"
            if "extra argument" in error.message
            and error.ctx
            and any("--store" in option.opts for option in error.ctx.command.params)
            else ""
        )
        help_of = f"{error.ctx.command_path if error.ctx else name} --help"
        code = print_problem(f"{error.format_message().rstrip('.')}{hint} (see {help_of}).", name)
    except click.ClickException as error:
        code = print_problem(error.format_message(), name)
    except BadInput as error:
        print_problem(str(error), name)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _end_interrupted(name)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        code = print_problem(
            f"{error.strerror or error}: {error.filename or 'standard output or the temporary folder'}.",
            name,
        )
    except Exception as error:  # noqa: BLE001
        # What no handler expected must not read as "failures found". A Ctrl-C while a class is made comes
        # wrapped in another error.
        code = (
            _end_interrupted(name)
            if isinstance(error.__cause__, KeyboardInterrupt)
            else report_fault(error, name, sys.argv[1:] if arguments is None else arguments)
        )
    sys.exit(code or 0)


def _end_interrupted(name: str) -> int:
    print_problem("Interrupted.", name)
    return 130


def _call_confirmed(call: Callable[[], Any]) -> Any:
    """Return the result of the command; ask at a terminal before each thing that only a file names and that
    wants a yes.
    """

    with ExitStack() as granted:
        while True:
            try:
                return call()
            except Unconfirmed as unconfirmed:
                # In a script nobody can answer: it gets the sentence that names the option.
                if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
                    raise
                if not click.confirm(printable(unconfirmed.question), err=True):
                    raise
                # For this run only; the command starts again from the beginning.
                granted.enter_context(unconfirmed.granted())


def report_fault(error: Exception, name: str, arguments: Sequence[str]) -> int:
    """Write a report of an unexpected exception, print its place, and return the exit code; stderr is the
    fallback.
    """
    from opsieve.tui import fault_report

    kind = type(error).__name__
    command = [name, *arguments]
    try:
        place = f"a report is in {fault_report.write_report(error, command)}"
        rest = ""
    except OSError as trouble:
        place = f"no report could be written ({trouble.strerror}), so it follows"
        rest = fault_report.format_report(error, command)
    print_problem(
        f"this is a fault of opsieve ({kind}); {place}. Please attach it to an issue at"
        f" {fault_report.get_issues_page()}.",
        name,
    )
    if rest:
        click.echo(rest, err=True)
    return fault_report.EXIT_CODE


def print_problem(sentence: str, name: str = "opsieve") -> int:
    """Print a problem on stderr as one line without control characters, and return the exit code."""
    whole = printable(sentence)
    # The middle is cut: the beginning says what, the end what to do.
    shortened = whole if len(whole) <= _LONGEST else f"{whole[: _LONGEST // 2]}...{whole[-_LONGEST // 2 :]}"
    click.echo(f"{name}: {shortened}", err=True)
    return 2
