"""The `opsieve` command. Commands are imported when they are called: `opsieve --help` loads none of the libraries."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from opsieve import __version__

# name -> (module with a click command called `command`, or module:command, one line for the overview)
COMMANDS = {
    "run": ("opsieve.tui.commands.run_command", "Judge models on one or many targets: pass or fail, with the reason."),
    "bisect": ("opsieve.tui.commands.bisect_command", "Find the release or the commit that brought a failure."),
    "attribute": ("opsieve.tui.commands.attribute_command", "Find the optimiser pass that causes a failure."),
    "fuzz": ("opsieve.tui.commands.fuzz_command", "Generate programs, run them on many targets, store what fails."),
    "gen": ("opsieve.tui.commands.gen_command", "Generate programs, as case folders or .onnx files."),
    "import": ("opsieve.tui.commands.import_command", "Take models and values that other tools left, as case folders."),
    "metrics": ("opsieve.tui.commands.metrics_command", "Tell how diverse the models in a folder are."),
    "triage": (
        "opsieve.tui.commands.triage_command",
        "Rank, reduce and explain what a store holds; triage logs of other tools.",
    ),
    "clusters": ("opsieve.tui.commands.clusters_command", "List the bugs of a store."),
    "show": ("opsieve.tui.commands.show_command", "Show a cluster or a case, and why it is where it is."),
    "merge": ("opsieve.tui.commands.decisions_command:merge", "Say that clusters are one bug."),
    "split": ("opsieve.tui.commands.decisions_command:split", "Take a fingerprint or a case out of its cluster."),
    "mark": ("opsieve.tui.commands.decisions_command:mark", "Mark a cluster new, confirmed, known, fixed or wontfix."),
    "pin": ("opsieve.tui.commands.decisions_command:pin", "Put a cluster before all others."),
    "note": ("opsieve.tui.commands.decisions_command:note", "Write a note on a cluster."),
    "rename": ("opsieve.tui.commands.decisions_command:rename", "Give a cluster a title of your own."),
    "undo": ("opsieve.tui.commands.decisions_command:undo", "Take back the latest decision."),
    "redo": ("opsieve.tui.commands.decisions_command:redo", "Do again what was undone last."),
    "tui": ("opsieve.tui.commands.tui_command", "Triage a store in the terminal app."),
    "index": ("opsieve.tui.commands.index_command", "Build a store's index anew from its case folders."),
    "export": (
        "opsieve.tui.commands.export_command",
        "Write a failure as a script, an issue, a test or a zip for others.",
    ),
    "doctor": (
        "opsieve.tui.commands.doctor_command",
        "Tell which compilers are installed, what they accept, how to install the others.",
    ),
}


class Commands(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="opsieve")
def opsieve() -> None:
    """Find, judge, reduce, triage and bisect the bugs of deep-learning compilers."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 fine, 1 failures found, 2 bad usage or input, 130 interrupted."""
    from opsieve.gen.model.bad_input import BadInput

    try:
        code = opsieve.main(arguments, prog_name="opsieve", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "opsieve"
        code = complain(f"{error.format_message().rstrip('.')} (see {where} --help).")
    except click.ClickException as error:
        code = complain(error.format_message())
    except BadInput as error:
        code = complain(str(error))
    except (click.Abort, KeyboardInterrupt):
        complain("Interrupted.")
        code = 130
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        code = complain(f"{error.strerror or error}: {error.filename or 'input or output'}.")
    sys.exit(code or 0)


def complain(sentence: str) -> int:
    """Tell what is wrong on stderr, as one line without control characters; the exit code for it."""
    printable = "".join(c if c.isprintable() else " " for c in sentence)
    click.echo(f"opsieve: {printable}", err=True)
    return 2
