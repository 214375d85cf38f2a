"""`opsieve completion`: the script that makes a shell complete commands, options, targets, operators and
clusters.
"""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> int:
    """Print the completion script for SHELL.

    \b
    bash, in ~/.bashrc:  eval "$(opsieve completion bash)"
    zsh, in ~/.zshrc:    eval "$(opsieve completion zsh)"
    fish:                opsieve completion fish > ~/.config/fish/completions/opsieve.fish
    """
    from opsieve.tui.cli import opsieve

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(opsieve, {}, "opsieve", "_OPSIEVE_COMPLETE").source())
    return 0
