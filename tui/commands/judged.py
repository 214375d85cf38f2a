"""The exit code of commands that judge (docs/reference/exit-codes.md): a failure outweighs unjudged
results.
"""

from collections.abc import Sequence

import click

from opsieve.gen.errors import Unjudged
from opsieve.tui.commands.text import print_message

# That are named
_MOST = 5
ALLOW_UNJUDGED = click.option(
    "--allow-unjudged",
    is_flag=True,
    help=(
        "Exit with 0 instead of 2 for results without a verdict (not installed, unsupported, invalid, "
        "undecided)."
    ),
)


def choose_exit_code(failing: bool, unjudged: Sequence[str], allow_unjudged: bool) -> int:
    """Return 1 for a failure, else 2 for an unjudged result that is not allowed; stderr names the latter."""
    if unjudged:
        more = f" and {len(unjudged) - _MOST} more" if len(unjudged) > _MOST else ""
        print_message(f"{Unjudged(', '.join(unjudged[:_MOST]) + more)}")
    if failing:
        return 1
    return Unjudged.exit_code if unjudged and not allow_unjudged else 0
