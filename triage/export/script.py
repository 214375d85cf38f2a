"""A script that shows a failure to somebody who has numpy, onnx and the compiler, and nothing of ours.

Text out of models, messages and options stands in it as literals of printable ASCII, or in its docstring and
comments without quotes and backslashes: it cannot leave its place.
"""

import contextlib
import math
import platform
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import PurePath

from opsieve.backends.command_words import command_words
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.builds import unstated_version
from opsieve.backends.verdict import Verdict
from opsieve.gen.errors import BadInput
from opsieve.gen.model.tensors import Value
from opsieve.gen.model.text import ModelText
from opsieve.triage.export import template
from opsieve.triage.export.export_input import ExportedFailure, leaves
from opsieve.triage.export.literals import DECODE, WIDTH, literal, quoted
from opsieve.triage.export.program_source import (
    libraries,
    model_lines,
    packages_of,
    run_briefly,
    run_by_opsieve,
    run_source,
)
from opsieve.version import VERSION, format_requirement

KINDS = ("crash", "error", "mismatch", "hang", "memory", "nondeterminism", "accepts-invalid")
_APART = ("crash", "hang", "memory")  # run in a process of their own, which may die
_MOST = 64 << 20  # bytes of model and values in one script
_TURNS = 5  # runs that are compared where a failure is that they differ


def script(exported: ExportedFailure, text: ModelText, test: bool = False) -> str:
    """The source of `repro.py`, or with `test` of a file for pytest. Run, it prints one line and exits with 1
    while the bug is there, with 0 when it is gone, with 2 when the compiler or onnx is not.

    `text` is what `model_text` says of `exported.model`. BadInput for a kind of failure that no script shows
    (a slowdown) and for a case of more than 64 MiB.
    """
    verdict = exported.verdict
    if verdict.kind not in KINDS or "memory" in verdict.rules:
        raise BadInput(
            f"a failure of kind {verdict.kind or verdict.verdict} cannot be shown by a script; export the"
            " case"
        )
    size = len(exported.model) + sum(_size(value) for value in exported.case.inputs.values())
    if size > _MOST:
        raise BadInput(
            f"the case holds {size >> 20} MiB, too much for one script: reduce it first, or export the case"
        )
    apart = verdict.kind in _APART
    several = exported.runs > 1 and not apart and verdict.kind != "nondeterminism"
    failure = "failure_apart" if apart else "failure_repeated" if several else "failure"
    run = run_briefly(exported) or run_source(exported, text) or run_by_opsieve(exported)
    if run.endswith("return {}\n"):  # it shows the failure before there are outputs
        exported = replace(exported, expected={})
    data = _data(exported, text)
    before = model_lines(exported, text, plain) if text.exact else []
    parts = [
        "\n".join([*_constants(exported, apart, several), *before, libraries(exported, text, test), data])
    ]
    parts += [run, _failure(exported)]
    parts += [template.APART] * apart + [template.REPEATED] * several + [template.TELLING]
    if test:
        parts.append(template.TEST.format(name=test_name(exported), failure=failure))
    here = template.HERE.format(limit=template.LIMIT if verdict.kind == "memory" else "") if apart else ""
    parts.append(template.MAIN.format(here=here, failure=failure))
    return (
        _head(exported, test)
        + _imports(data, apart, bool(exported.target.facts.environment))
        + "\n\n".join(part.strip("\n") + "\n" for part in parts)
    )


def requirements(exported: ExportedFailure) -> list[str]:
    """What pip has to install for the script, the compiler in the version that shows the failure."""
    backend = exported.target.backend
    version = exported.target.release or _public(exported.observation.version)
    built = bool(exported.target.build)  # pip does not have it: `build_note` says which one it is
    if not run_source(exported):  # opsieve installs a release itself
        own = (
            [f"{backend.package}=={version}"]
            if backend.package and version and not (exported.target.release or built)
            else []
        )
        return [format_requirement(VERSION), *own]
    major, minor, _ = platform.python_version_tuple()
    pinned = f"{backend.package}=={version}" if version else backend.package
    wanted = [] if built else [pinned, *backend.companions(version)]
    # Of what the base environments hold only what pip would not find by itself: pins, what runs the result,
    # and what a part of a package imports that the package does not require.
    part = backend.package != backend.name
    needed = [
        # A release ran in a base environment, whose pins are the versions that ran.
        line if exported.target.release else _pin_installed(line)
        for line in backend.base((int(major), int(minor)))
        if not re.fullmatch(r"[\w.-]+", line) or line == "onnxruntime" or (part and line == "sympy")
    ]
    named = {re.split(r"[<>=!~]", line)[0] for line in [*wanted, *needed]}
    return [*wanted, *needed, *(name for name in packages_of(exported.case.program) if name not in named)]


def _pin_installed(requirement: str) -> str:
    """Pin a requirement to the version that is installed here; unchanged if none is."""
    name = re.split(r"[<>=!~]", requirement)[0]
    if name == requirement:
        return requirement
    with contextlib.suppress(metadata.PackageNotFoundError):
        return f"{name}=={metadata.version(name)}"
    return requirement


def packages(exported: ExportedFailure) -> list[str]:
    """The names of what `requirements` asks for, and of a compiler that was built."""
    own = [exported.target.facts.package] if exported.target.build and exported.target.facts.package else []
    return list(dict.fromkeys([*own, *(re.split(r"[<>=!~]", line)[0] for line in requirements(exported))]))


def plain(text: object, limit: int = 600) -> str:
    """One line of printable ASCII without quotes that end a docstring and without backslashes."""
    line = " ".join(str(text)[: 4 * limit].split())
    line = "".join(c if " " <= c <= "~" and c not in '\\"' else {'"': "'"}.get(c, "?") for c in line)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def build_note(exported: ExportedFailure) -> str:
    """Which build of the compiler failed, "" for a released one: its version, the state of its files and the
    last part of its path.
    """
    if not exported.target.build:
        return ""
    version = _public(exported.observation.version)
    if exported.target.facts.runs_command:
        return (
            f"Seen with the program {command_name(exported.target)} ({version}), which has to be where the"
            " script calls it."
        )
    name = PurePath(exported.target.build).name
    return (
        f"Seen with a build of {exported.target.name} of one's own: {name} ({version or 'no version'}). pip"
        " cannot install it: use such a build."
    )


def command_name(target: ResolvedTarget) -> str:
    """The program of a command, as a person calls it: the rest of its path tells only where its owner keeps
    things.
    """
    return PurePath(command_words(target.build)[0]).name


def test_name(exported: ExportedFailure) -> str:
    """The end of a test's name."""
    return re.sub(r"[^a-z0-9]+", "_", f"{exported.target.name} {exported.verdict.kind}".lower())


def _size(value: Value) -> int:
    return sum(map(_size, value)) if isinstance(value, (list, tuple)) else int(getattr(value, "nbytes", 0))


def _public(version: str) -> str:
    return version if re.fullmatch(r"[A-Za-z0-9.!+_-]{1,60}", version) else ""


def _head(exported: ExportedFailure, test: bool) -> str:
    verdict, target = exported.verdict, exported.target
    compiler = command_name(target) if target.facts.runs_command else target.with_release("").display
    ways = "python -m pytest {}" if test else "python {}"
    lines = [
        plain(
            f"{compiler} {_public(unstated_version(exported.observation.version))}".strip()
            + f": {verdict.kind}",
            100,
        ),
        "",
    ]
    lines += textwrap.wrap(plain(_reason(verdict, target)), WIDTH)
    often = (
        f"It does not always show, so it is looked for in up to {exported.runs} runs."
        if exported.runs > 1
        else ""
    )
    facts = [
        build_note(exported),
        f"Optimiser pass: {', '.join(exported.passes)}." if exported.passes else "",
        exported.regression,
        exported.fixed,
        often,
    ]
    lines += [wrapped for fact in facts if fact for wrapped in textwrap.wrap(plain(fact), WIDTH)]
    seen = f"Seen on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    seen += "".join(f", {name} {metadata.version(name)}" for name in packages_of(exported.case.program))
    file = "test_repro.py" if test else "repro.py"
    needs = " ".join(f"'{item}'" for item in requirements(exported))
    lines += ["", f"    pip install {needs}{' pytest' if test else ''}", f"    {ways.format(file)}", ""]
    if not test:
        lines.append(
            "Exit code 1 while the bug is there, 0 when it is gone, 2 when something is not installed."
        )
    lines.append(f"{seen}. Written by opsieve {VERSION}.")
    return '"""' + "\n".join(lines).strip() + '\n"""\n\n'


def _imports(data: str, apart: bool, environment: bool) -> str:
    names = ["sys"]
    names += ["os"] if apart or environment else []
    names += ["base64", "zlib"] if "decode(" in data else []
    names += ["subprocess"] if apart else []
    plainly = "".join(f"import {name}\n" for name in sorted(names))
    return f"{plainly}from importlib import metadata\n\n"


def _constants(exported: ExportedFailure, apart: bool, several: bool) -> list[str]:
    facts = exported.target.facts
    lines = [f"PACKAGES = {packages(exported)!a}"]
    if exported.verdict.kind == "nondeterminism":
        lines.append(f"RUNS = {max(_TURNS, exported.runs)}")
    elif apart or several:
        lines.append(f"RUNS = {exported.runs}")
    if apart:
        lines += [f"SECONDS = {float(exported.seconds)!r}", 'ANSWER = "answer: "']
    if exported.verdict.kind == "memory":
        lines.append(f"MEMORY = {exported.memory}")
    if facts.environment:
        lines.append(f"os.environ.update({dict(facts.environment)!a})")
    return lines


def _failure(exported: ExportedFailure) -> str:
    """The function `failure`, with no more cases than the values have."""
    if exported.verdict.kind == "nondeterminism":
        return template.TWICE
    if exported.verdict.kind == "accepts-invalid":
        return template.ACCEPTED
    if not exported.expected:
        return template.ENDS
    values = [item.value for item in exported.expected.values()]
    lists = any(value is None or isinstance(value, (list, tuple)) for value in values)
    texts = any(
        getattr(leaf, "dtype", None) is not None and leaf.dtype.kind in "OUS" for leaf in leaves(values)
    )
    unknown = any(math.isinf(item.within) for item in exported.expected.values())
    parts = template.LISTS * lists + template.TEXTS * texts + template.UNKNOWN * unknown
    return template.COMPARED + parts + template.ARRAYS


def _data(exported: ExportedFailure, text: ModelText) -> str:
    """INPUTS, EXPECTED and a MODEL that has no exact text, after `decode` when it is needed."""
    lines = [] if text.exact else model_lines(exported, text, plain)
    lines += _table("INPUTS", {name: literal(value) for name, value in exported.case.inputs.items()})
    if exported.expected and exported.verdict.kind != "nondeterminism":
        lines += [
            "",
            f"# By {plain(exported.author)}: the value, its type, and how far off it may be.",
        ]
        right = {
            name: f"({literal(item.value)}, {item.dtype!r}, {_number(item.within)})"
            for name, item in exported.expected.items()
        }
        lines += _table("EXPECTED", right)
    data = "\n".join(lines) + "\n"
    return f"{DECODE.lstrip()}\n\n{data}" if "decode(" in data else data


def _number(value: float) -> str:
    return 'float("inf")' if math.isinf(value) else repr(value)


def _table(name: str, items: Mapping[str, str]) -> list[str]:
    if not items:
        return [f"{name} = {{}}"]
    return [f"{name} = {{", *(f"    {quoted(key)}: {value}," for key, value in items.items()), "}"]


def _reason(verdict: Verdict, target: ResolvedTarget) -> str:
    """Why, without who agreed with whom, which is a matter of opsieve's."""
    reason = verdict.reason or verdict.message
    if target.facts.runs_command:
        reason = reason.replace(target.display, command_name(target))
    return reason.rpartition("; ")[0] if reason.endswith(" agree") and "; " in reason else reason
