"""Consent to programs, releases and paths that only a file names.

The origin of a value decides its rights; docs/explanation/security.md has the table. A value that the user
typed, or set in the environment, may do everything. A release that a case, a store, a corpus or a report
names runs if it is installed, or after a yes: `--yes`, the answer to a question on a terminal, or
OPSIEVE_INSTALL=yes for all, `--install` or names in OPSIEVE_INSTALL for some releases. The `opsieve.toml` of
a folder sets numbers, styles and installed compilers; the rest wants a yes once for each folder and value.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases.builds import check_trusted, is_remembered, remember
from opsieve.backends.releases.releases import ReleaseStore
from opsieve.backends.target import may_be_own
from opsieve.gen.errors import BadInput, Unconfirmed, shown
from opsieve.gen.model.variables import variable_set

SWITCH = "OPSIEVE_INSTALL"
TRUST = "OPSIEVE_TRUST"
ORACLES = "OPSIEVE_ORACLES"  # those of the user's that the command line names, separated by commas


def named_by_file(
    text: str, offline: bool = False, recorded: Mapping[str, str] | None = None, file: str = "the case"
) -> str:
    """Return a target that a store or a case names. Raises BadInput for a build that was never named on the
    command line, Unconfirmed for a release that would have to be installed. `recorded` are the versions in
    the case's origin.
    """
    check_trusted(text)
    # Offline nothing is downloaded, so that nothing has to be agreed to.
    release = "" if offline else _missing_release(text)
    if release:
        versions = ", ".join(f"{name} {version}" for name, version in sorted((recorded or {}).items())[:8])
        says = f" (it was made with {shown(versions, 300)})" if versions else ""
        raise _unconfirmed_release(f"{file} names {release}, which is not installed here{says}", "--yes")
    return text


def _unconfirmed_release(what: str, yes: str) -> Unconfirmed:
    return Unconfirmed(
        f"{what}: {yes} installs it from your package index, -t names another target",
        f"{what[0].upper()}{what[1:]}. Install it from your package index?",
        give_consent,
    )


def _missing_release(text: str) -> str:
    """Return the release that a target would install, `package==release`; "" if it is here or the user
    consented to its installation.
    """
    target = resolve(text) if "==" in text else None
    consented = os.environ.get(SWITCH, "")
    if target is None or not target.release or consented == "yes" or _name(target) in consented.split():
        return ""
    here = {release for release, _ in ReleaseStore().list_installed(target.facts.package)}
    return "" if target.release in here else _name(target)


def _name(target: ResolvedTarget) -> str:
    return f"{target.facts.package}=={target.release}"


def check_consent(targets: Iterable[str]) -> None:
    """Check each target of a store's campaign as `named_by_file` does."""
    for text in targets:
        named_by_file(text, file="the store")


def named_by_settings(text: str) -> None:
    """Check a target that `opsieve.toml` names. Raises Unconfirmed for a build, which is code that may have
    come with the directory, and for a release that would have to be installed; BadInput for a command.
    """
    target = resolve(text) if may_be_own(text) else None
    # No consent is offered: a file beside a stranger's model must not start programs.
    if target is not None and target.facts.runs_command:
        raise BadInput(
            f"opsieve.toml names the command {shown(target.build, 200)}, and sets no program that runs: name"
            " it with -t"
        )
    if target is not None and (target.build or target.libraries):
        code = "build" if target.build else "library"
        confirm_setting(f"names the {code} {shown(text, 200)}, which is code that would run", text, SWITCH)
    if release := _missing_release(text):
        raise _unconfirmed_release(
            f"opsieve.toml names {release}, which is not installed here", f"{SWITCH}=yes"
        )


def confirm_setting(what: str, value: object, switch: str = TRUST) -> None:
    """Raise Unconfirmed for a setting of the `opsieve.toml` here, unless `switch` allows it or the user
    agreed to this value in this directory before.
    """
    # With the folder and the value: a yes for one setting is none for another, nor for a changed one.
    agreed = f"{os.getcwd()}\0{what}\0{value}"
    if os.environ.get(switch) != "yes" and not is_remembered(agreed):
        raise Unconfirmed(
            f"opsieve.toml {what}: {switch}=yes allows it, an option of the command line comes before it",
            f"opsieve.toml {what}. Allow it in this directory from now on?",
            lambda: _agreeing(agreed),
        )


@contextmanager
def _agreeing(sentence: str) -> Iterator[None]:
    remember(sentence)
    yield


def give_consent(releases: Iterable[str] = ()) -> AbstractContextManager[None]:
    """Consent, for this process and its children, to all installations or to these releases. Raises BadInput
    for a text that is not a release.
    """
    names = [_release_named(text) for text in releases]
    # In the environment, which the processes that are started from here inherit.
    return variable_set(SWITCH, " ".join([os.environ.get(SWITCH, ""), *names]).strip() if names else "yes")


def _release_named(text: str) -> str:
    target = resolve(text)
    if not target.release:
        raise BadInput(f"--install names a release, such as onnxruntime==1.20.1, not {shown(text)}")
    return _name(target)


def name_oracles(names: Iterable[str]) -> AbstractContextManager[None]:
    """Allow this process and its children to call these oracles of the user's."""
    return variable_set(ORACLES, ",".join(filter(None, [os.environ.get(ORACLES, ""), *names])))


def check_named(oracle: str) -> str:
    """Say why an oracle of the user's is not called: it was not named on the command line; "" if it was."""
    if oracle in os.environ.get(ORACLES, "").split(","):
        return ""
    return (
        f"the oracle {oracle} is called only where it is named: --oracle {oracle}, or -t"
        f" TARGET:oracle={oracle}"
    )
