"""`opsieve completion`: the script that makes a shell complete commands, options, targets, operators and
clusters.
"""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> int:
    """Print the completion script of `opsieve` and `reduce` for SHELL.

    \b
    bash, in ~/.bashrc:  eval "$(opsieve completion bash)"
    zsh, in ~/.zshrc:    eval "$(opsieve completion zsh)"
    fish:                opsieve completion fish > ~/.config/fish/completions/opsieve.fish
    """
    from opsieve.tui.cli import opsieve
    from opsieve.tui.commands.examine.reduce_command import command as reduce

    script = get_completion_class(shell)
    assert script is not None
    for program, name in ((opsieve, "opsieve"), (reduce, "reduce")):
        click.echo(script(program, {}, name, f"_{name.upper()}_COMPLETE").source())
    return 0
