"""Whether what a file names may be installed: a case or a store may come from a stranger, and installs
nothing by itself.

A target that somebody typed is installed on demand; one that only a file names runs when it is here already,
or after a yes: `--yes`, the answer to a question on a terminal, or OPSIEVE_INSTALL=yes for all, `--install`
or names in OPSIEVE_INSTALL for some releases.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.builds import trusted
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.target import may_be_own
from opsieve.gen.errors import BadInput, Unconfirmed, shown
from opsieve.gen.model.variables import variable_set

SWITCH = "OPSIEVE_INSTALL"


def named_by_file(text: str, offline: bool = False, recorded: Mapping[str, str] | None = None) -> str:
    """A target that a store or a case names, as it is. BadInput for a build that nobody named on the command
    line; Unconfirmed for a release that would have to be installed. `recorded` are the versions that the case
    says it was made with.
    """
    trusted(text)
    release = "" if offline else _missing_release(text)
    if release:
        versions = ", ".join(f"{name} {version}" for name, version in sorted((recorded or {}).items())[:8])
        says = f" (it was made with {shown(versions, 300)})" if versions else ""
        what = f"the case names {release}, which is not installed here{says}"
        raise Unconfirmed(
            f"{what}: --yes installs it from your package index, -t names another target",
            f"{what[0].upper()}{what[1:]}. Install it from your package index?",
        )
    return text


def _missing_release(text: str) -> str:
    """The release that a target would install, `package==release`; "" where it is here or its installation is
    consented to.
    """
    target = resolve(text) if "==" in text else None
    consented = os.environ.get(SWITCH, "")
    if target is None or not target.release or consented == "yes" or _name(target) in consented.split():
        return ""
    here = {release for release, _ in ReleaseStore().installed(target.facts.package)}
    return "" if target.release in here else _name(target)


def _name(target: ResolvedTarget) -> str:
    return f"{target.facts.package}=={target.release}"


def named_by_settings(text: str) -> None:
    """A target that `opsieve.toml` names; Unconfirmed for a build, which is code that came with the
    directory, perhaps, and for a release that would have to be installed; BadInput for a command.
    """
    target = resolve(text) if may_be_own(text) else None
    if target is not None and target.facts.runs_command:
        raise BadInput(
            f"opsieve.toml names the command {shown(target.build, 200)}, and sets no program that runs: name"
            " it with -t"
        )
    if target is not None and (target.build or target.libraries) and os.environ.get(SWITCH) != "yes":
        what = f"opsieve.toml names the {'build' if target.build else 'library'} {shown(text, 200)}"
        raise Unconfirmed(
            f"{what}, which is code that would run: {SWITCH}=yes allows it, -t names a target yourself",
            f"{what}. Run it?",
        )

    if release := _missing_release(text):
        what = f"opsieve.toml names {release}, which is not installed here"
        raise Unconfirmed(
            f"{what}: {SWITCH}=yes installs it from your package index, -t names a target yourself",
            f"{what}. Install it from your package index?",
        )


def given(releases: Iterable[str] = ()) -> AbstractContextManager[None]:
    """Yes, for this process and what it starts: to all, or to these releases alone. BadInput for a text that
    names no release.
    """
    names = [_release_named(text) for text in releases]
    return variable_set(SWITCH, " ".join([os.environ.get(SWITCH, ""), *names]).strip() if names else "yes")


def _release_named(text: str) -> str:
    target = resolve(text)
    if not target.release:
        raise BadInput(f"--install names a release, such as onnxruntime==1.20.1, not {shown(text)}")
    return _name(target)
