"""The exceptions whose message commands print as one sentence, and the exit code of each
(docs/reference/exit-codes.md).
"""

import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Its import takes a tenth of what --help takes.
    from importlib.metadata import EntryPoint


class BadInput(ValueError):
    """Input that cannot be used; the message is one clear sentence that says what to do. Commands print it
    and exit with `exit_code`.
    """

    exit_code = 2


class NoFailure(BadInput):
    """The case passes, so a command that needs a failure cannot run; `reason` lists the attempts."""

    exit_code, _opening = 3, "no failure to work on: "

    def __init__(self, reason: str):
        super().__init__(self._opening + reason)
        self.reason = reason


class Unjudged(NoFailure):
    """A target that was asked for gave no verdict of pass or fail, so whether there is a failure is
    unknown.
    """

    exit_code, _opening = 2, "not judged: "


class Unconfirmed(BadInput):
    """A file asks for something that only a yes allows. `question` asks a person for it, and `granted` makes
    a yes hold while its context is open.
    """

    def __init__(self, sentence: str, question: str, granted: Callable[[], AbstractContextManager[None]]):
        super().__init__(sentence)
        self.question = question
        self.granted = granted


def shown(text: object, limit: int = 60) -> str:
    """Text from a file or a user, quoted, on one line and at most about `limit` characters long."""
    # `repr` escapes what could rewrite a terminal or split a line, and keeps letters of every language.
    whole = repr(str(text) if isinstance(text, Path) else text)
    return whole if len(whole) <= limit else f"{whole[: limit // 2]}...{whole[-(limit // 2) :]}"


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for the closest of `names`, "" if all are too different."""
    close = get_close_matches(name[:60], list(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def load_plugin(entry: "EntryPoint", role: str, problem: type[BadInput] = BadInput) -> Any:
    """Load what an entry point names; `role` says in a message what it is, such as `strategy`. Raises
    `problem` if the code of its package fails.
    """
    try:
        return entry.load()
    except Exception as error:
        raise problem(
            f"the {role} {shown(entry.name)} cannot be loaded ({type(error).__name__}: {error}): mend or"
            " reinstall its package"
        ) from error


def format_install_command(requirement: str) -> str:
    """Return the command that installs a requirement where opsieve is installed.

    The `pip` of the shell is another environment's after `uv tool install` and `pipx install`, and where an
    environment is not activated; sqlite-utils brings pip into each.
    """
    is_ours = Path(shutil.which("pip") or "").parent == Path(sys.executable).parent
    program = "pip" if is_ours else f"{shlex.quote(sys.executable)} -m pip"
    return f"{program} install {shlex.quote(requirement)}"
