"""Whether what a file names may be installed: a case or a store may come from a stranger, and installs nothing by itself.

A target that somebody typed is installed on demand; one that only a file names runs when it is here already, or after a yes: `--yes`, the
answer to a question on a terminal, or OPSIEVE_INSTALL=yes.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager

from opsieve.backends.registry import resolve, runs_command
from opsieve.backends.releases.builds import trusted
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.target import may_be_own
from opsieve.gen.model.bad_input import BadInput, Unconfirmed, shown
from opsieve.gen.model.variables import variable_set

SWITCH = "OPSIEVE_INSTALL"


def named_by_file(text: str, offline: bool = False, recorded: Mapping[str, str] | None = None) -> str:
    """A target that a store or a case names, as it is. BadInput for a build that nobody named on the command line; Unconfirmed for a
    release that would have to be installed. `recorded` are the versions that the case says it was made with.
    """
    trusted(text)
    target = resolve(text) if "==" in text else None
    if target is None or not target.release or offline or os.environ.get(SWITCH) == "yes":
        return text
    if target.release not in {release for release, _ in ReleaseStore().installed(target.backend.package)}:
        versions = ", ".join(f"{name} {version}" for name, version in sorted((recorded or {}).items())[:8])
        says = f" (it was made with {shown(versions, 300)})" if versions else ""
        what = f"the case names {target.backend.package}=={target.release}, which is not installed here{says}"
        raise Unconfirmed(
            f"{what}: --yes installs it from your package index, -t names another target",
            f"{what[0].upper()}{what[1:]}. Install it from your package index?",
        )
    return text


def named_by_settings(text: str) -> None:
    """A target that `opsieve.toml` names; Unconfirmed for a build, which is code that came with the directory, perhaps; BadInput for a command."""
    target = resolve(text) if may_be_own(text) else None
    if target is not None and runs_command(target.backend):
        raise BadInput(
            f"opsieve.toml names the command {shown(target.build, 200)}, and sets no program that runs: name it with -t"
        )
    if target is not None and (target.build or target.libraries) and os.environ.get(SWITCH) != "yes":
        what = f"opsieve.toml names the {'build' if target.build else 'library'} {shown(text, 200)}"
        raise Unconfirmed(
            f"{what}, which is code that would run: {SWITCH}=yes allows it, -t names a target yourself",
            f"{what}. Run it?",
        )


def given() -> AbstractContextManager[None]:
    """Yes, for this process and what it starts."""
    return variable_set(SWITCH, "yes")
