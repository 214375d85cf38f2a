"""A script that shows a failure to people with numpy, onnx and the compiler, but without opsieve.

Text from models, messages and options stands in it as literals of printable ASCII, or in its docstring and
comments without quotes and backslashes: it cannot leave its place.
"""

import contextlib
import math
import platform
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import PurePath

from opsieve.backends.protocol import Backend
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.releases.builds import unstated_version
from opsieve.backends.target import command_words
from opsieve.gen.errors import BadInput
from opsieve.gen.model.tensors import Value
from opsieve.gen.model.text import ModelText
from opsieve.triage.export import template
from opsieve.triage.export.export_input import ExportedFailure, iter_leaves
from opsieve.triage.export.program_source import (
    DECODE,
    WIDTH,
    list_imports,
    quote,
    write_brief_run,
    write_imports,
    write_literal,
    write_model,
    write_opsieve_run,
    write_run,
)
from opsieve.version import VERSION, format_requirement

KINDS = ("crash", "error", "mismatch", "hang", "memory", "nondeterminism", "accepts-invalid")
# Run in a process of their own, which may die
_APART = ("crash", "hang", "memory")
# Bytes of model and values in one script
_MOST = 64 << 20
# Runs that are compared where a failure is that they differ
_TURNS = 5


def write_script(exported: ExportedFailure, text: ModelText, test: bool = False) -> str:
    """Write the source of `repro.py`, or with `test` of a file for pytest.

    The script prints one line and exits with 1 if the bug is there, with 0 if it is gone, with 2 if the
    compiler or onnx is missing. `text` is the `model_text` of `exported.model`.

    Raises:
        BadInput: For a kind of failure that a script cannot show (a slowdown, an objection of a user's
            oracle) and for a case over 64 MiB.
    """
    verdict = exported.verdict
    if verdict.kind not in KINDS or "memory" in verdict.rules or exported.target.oracles:
        what = (
            "that an oracle of yours sees"
            if exported.target.oracles
            else f"of kind {verdict.kind or verdict.verdict}"
        )
        raise BadInput(f"a failure {what} cannot be shown by a script; export the case")
    size = len(exported.model) + sum(_get_size(value) for value in exported.case.inputs.values())
    if size > _MOST:
        raise BadInput(
            f"the case holds {size >> 20} MiB, too much for one script: reduce it first, or export the case"
        )
    apart = verdict.kind in _APART
    # Processes of their own and comparisons of runs have a loop already.
    several = exported.runs > 1 and not apart and verdict.kind != "nondeterminism"
    failure = "failure_apart" if apart else "failure_repeated" if several else "failure"
    run = write_brief_run(exported) or write_run(exported, text)
    if not run:
        # opsieve reads a program as it is stored.
        run, text = write_opsieve_run(exported), ModelText(text.text, False)
    # It shows the failure before there are outputs
    if run.endswith("return {}\n"):
        exported = replace(exported, expected={})
    data = _write_data(exported, text)
    before = write_model(exported, text, clean_line) if text.exact else []
    parts = [
        "\n".join(
            [*_write_constants(exported, apart, several), *before, write_imports(exported, text, test), data]
        )
    ]
    parts += [run, _write_failure(exported)]
    parts += [template.APART] * apart + [template.REPEATED] * several + [template.TELLING]
    if test:
        parts.append(template.TEST.format(name=make_test_name(exported), failure=failure))
    # The limit is set after the imports, whose mapped files would count.
    module, limit = exported.target.facts.module or exported.target.facts.package, ""
    if verdict.kind == "memory":
        limit = template.LIMIT.format(imported=f"            import {module}\n" if module else "")
    here = template.HERE.format(limit=limit) if apart else ""
    built = exported.target.build and template.BUILT.format(
        # A program outside Python has no module.
        found=f"util.find_spec({module!a})" if module else "None",
        seen="; " + write_build_note(exported).replace("Seen", "the bug was seen").rstrip("."),
    )
    parts.append(template.MAIN.format(here=here, failure=failure, built=built))
    return (
        _write_head(exported, test)
        + _write_imports(data, apart, bool(exported.target.facts.environment))
        + "\n\n".join(part.strip("\n") + "\n" for part in parts)
    )


def list_requirements(exported: ExportedFailure) -> list[str]:
    """List pip's requirements for the script, with the compiler in the failing version."""
    backend = exported.target.backend
    version = exported.target.release or _check_version(exported.observation.version)
    # pip cannot install it; `write_build_note` identifies it.
    built = bool(exported.target.build)
    # opsieve installs a release itself
    if not (write_run(exported) or write_brief_run(exported)):
        own = (
            [f"{backend.package}=={version}"]
            if backend.package and version and not (exported.target.release or built)
            else []
        )
        return [format_requirement(VERSION), *own]
    pinned = f"{backend.package}=={version}" if version else backend.package
    wanted = [] if built else [pinned, *backend.companions(version)]
    # Of what the base environments hold only what pip would not find by itself: pins, what runs the result,
    # and what a part of a package imports that the package does not require.
    part = backend.package != backend.name
    needed = [
        # A release ran in a base environment, whose pins are the versions that ran.
        _limit_pin(line, backend) if exported.target.release else _pin_installed(line)
        for line in backend.base(sys.version_info[:2])
        if not re.fullmatch(r"[\w.-]+", line)
        or (line == "onnxruntime" != backend.package)
        or (part and line == "sympy")
    ]
    named = {re.split(r"[<>=!~]", line)[0] for line in [*wanted, *needed]}
    # Those parse the model and compare the outputs where the script runs, so the versions that ran here fit
    imported = [f"{name}=={metadata.version(name)}" for name in list_imports(exported.case.program)]
    return [*wanted, *needed, *(line for line in imported if line.partition("==")[0] not in named)]


def _limit_pin(requirement: str, backend: Backend) -> str:
    """Limit a pin to the versions of Python for which the backend wants it: newer ones lack its wheel."""
    major, minor = sys.version_info[:2]
    newer = (at for at in range(minor + 1, minor + 9) if requirement not in backend.base((major, at)))
    end = next(newer, None)
    return requirement if end is None else f'{requirement}; python_version < "{major}.{end}"'


def list_pins(exported: ExportedFailure) -> dict[str, str]:
    """List the versions that the requirements pin, by package."""
    pinned = re.compile(r"([\w.-]+)==([\w.+]+)(?:;.*)?")
    return {found[1]: found[2] for found in map(pinned.fullmatch, list_requirements(exported)) if found}


def _pin_installed(requirement: str) -> str:
    """Pin a requirement to the installed version; unchanged without one."""
    name = re.split(r"[<>=!~]", requirement)[0]
    if name == requirement:
        return requirement
    with contextlib.suppress(metadata.PackageNotFoundError):
        return f"{name}=={metadata.version(name)}"
    return requirement


def list_packages(exported: ExportedFailure) -> list[str]:
    """List the names of the requirements, and of a compiler that was built."""
    own = [exported.target.facts.package] if exported.target.build and exported.target.facts.package else []
    return list(
        dict.fromkeys([*own, *(re.split(r"[<>=!~]", line)[0] for line in list_requirements(exported))])
    )


def clean_line(text: object, limit: int = 600) -> str:
    """Return one line of printable ASCII without backslashes and quotes that end a docstring."""
    # Cut first: a message may have megabytes.
    line = " ".join(str(text)[: 4 * limit].split())
    line = "".join(c if " " <= c <= "~" and c not in '\\"' else {'"': "'"}.get(c, "?") for c in line)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def write_build_note(exported: ExportedFailure) -> str:
    """Describe the build that failed: its version, the state of its files and the end of its path; "" for a
    release.
    """
    if not exported.target.build:
        return ""
    version = _check_version(exported.observation.version)
    if exported.target.facts.runs_command:
        return (
            f"Seen with the program {get_command_name(exported.target)} ({version}), which has to be"
            " where the"
            " script calls it."
        )
    name = PurePath(exported.target.build).name
    return (
        f"Seen with a build of {exported.target.name} of one's own: {name} ({version or 'no version'}). pip"
        " cannot install it: use such a build."
    )


def get_command_name(target: ResolvedTarget) -> str:
    """Return the program of a command without its folders, which are private to the user."""
    return PurePath(command_words(target.build)[0]).name


def make_test_name(exported: ExportedFailure) -> str:
    """Make the end of a test's name."""
    return re.sub(r"[^a-z0-9]+", "_", f"{exported.target.name} {exported.verdict.kind}".lower())


def _get_size(value: Value) -> int:
    return (
        sum(map(_get_size, value)) if isinstance(value, (list, tuple)) else int(getattr(value, "nbytes", 0))
    )


def _check_version(version: str) -> str:
    # A version comes from the compiler's process and ends in a pip command that people paste.
    return version if re.fullmatch(r"[A-Za-z0-9.!+_-]{1,60}", version) else ""


def _write_head(exported: ExportedFailure, test: bool) -> str:
    verdict, target = exported.verdict, exported.target
    compiler = get_command_name(target) if target.facts.runs_command else target.with_release("").display
    ways = "python -m pytest {}" if test else "python {}"
    lines = [
        clean_line(
            f"{compiler} {_check_version(unstated_version(exported.observation.version))}".strip()
            + f": {verdict.kind}",
            100,
        ),
        "",
    ]
    # The reason without the list of agreeing oracles, which only concerns opsieve.
    reason = verdict.reason or verdict.message
    if target.facts.runs_command:
        reason = reason.replace(target.display, get_command_name(target))
    lines += textwrap.wrap(
        clean_line(reason.rpartition("; ")[0] if reason.endswith(" agree") and "; " in reason else reason),
        WIDTH,
    )
    often = (
        f"It does not always show, so it is looked for in up to {exported.runs} runs."
        if exported.runs > 1
        else ""
    )
    facts = [
        write_build_note(exported),
        f"Optimiser pass: {', '.join(exported.passes)}." if exported.passes else "",
        exported.regression,
        exported.fixed,
        often,
    ]
    lines += [wrapped for fact in facts if fact for wrapped in textwrap.wrap(clean_line(fact), WIDTH)]
    seen = f"Seen on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    pins = list_pins(exported) if exported.target.release else {}
    seen += "".join(
        f", {name} {pins.get(name) or metadata.version(name)}" for name in list_imports(exported.case.program)
    )
    file = "test_repro.py" if test else "repro.py"
    needs = " ".join(f"'{item}'" for item in list_requirements(exported))
    lines += ["", f"    pip install {needs}{' pytest' if test else ''}", f"    {ways.format(file)}", ""]
    if not test:
        lines.append(
            "Exit code 1 while the bug is there, 0 when it is gone, 2 when something is not installed."
        )
    lines.append(f"{seen}. Written by opsieve {VERSION}.")
    return '"""' + "\n".join(lines).strip() + '\n"""\n\n'


def _write_imports(data: str, apart: bool, environment: bool) -> str:
    names = ["sys", *["subprocess"] * apart, *["os"] * (apart or environment)]
    names += ["base64", "zlib"] if "decode(" in data else []
    plainly = "".join(f"import {name}\n" for name in sorted(names))
    return f"{plainly}from importlib import metadata\n\n"


def _write_constants(exported: ExportedFailure, apart: bool, several: bool) -> list[str]:
    facts = exported.target.facts
    lines = [f"PACKAGES = {list_packages(exported)!a}"]
    # One run cannot differ from itself.
    if exported.verdict.kind == "nondeterminism":
        lines.append(f"RUNS = {max(_TURNS, exported.runs)}")
    elif apart or several:
        lines.append(f"RUNS = {exported.runs}")
    if apart:
        lines += [f"SECONDS = {float(exported.seconds)!r}", 'ANSWER = "answer: "']
    if exported.verdict.kind == "memory":
        lines.append(f"MEMORY = {exported.memory}")
    if facts.environment:
        # Before the compiler is imported, which reads it only then.
        lines.append(f"os.environ.update({dict(facts.environment)!a})")
    return lines


def _write_failure(exported: ExportedFailure) -> str:
    """Write the function `failure` with only the branches that the values need."""
    if exported.verdict.kind == "nondeterminism":
        return template.TWICE
    if exported.verdict.kind == "accepts-invalid":
        return template.ACCEPTED
    if not exported.expected:
        return template.ENDS
    values = [item.value for item in exported.expected.values()]
    lists = any(value is None or isinstance(value, (list, tuple)) for value in values)
    # Only the branches that are needed, so that people can read the script.
    texts = any(
        getattr(leaf, "dtype", None) is not None and leaf.dtype.kind in "OUS" for leaf in iter_leaves(values)
    )
    unknown = any(math.isinf(item.within) for item in exported.expected.values())
    parts = template.LISTS * lists + template.TEXTS * texts + template.UNKNOWN * unknown
    return template.COMPARED + parts + template.ARRAYS


def _write_data(exported: ExportedFailure, text: ModelText) -> str:
    """Write INPUTS, EXPECTED and a MODEL without exact text, after `decode` if it is needed."""
    lines = [] if text.exact else write_model(exported, text, clean_line)
    lines += _write_table(
        "INPUTS", {name: write_literal(value) for name, value in exported.case.inputs.items()}
    )
    if exported.expected and exported.verdict.kind != "nondeterminism":
        lines += [
            "",
            f"# By {clean_line(exported.author)}: the value, its type, and how far off it may be.",
        ]
        right = {
            name: f"({write_literal(item.value)}, {item.dtype!r}, {_write_number(item.within)})"
            for name, item in exported.expected.items()
        }
        lines += _write_table("EXPECTED", right)
    data = "\n".join(lines) + "\n"
    return f"{DECODE.lstrip()}\n\n{data}" if "decode(" in data else data


def _write_number(value: float) -> str:
    # The text of an infinity is no literal of Python.
    return 'float("inf")' if math.isinf(value) else repr(value)


def _write_table(name: str, items: Mapping[str, str]) -> list[str]:
    if not items:
        return [f"{name} = {{}}"]
    return [f"{name} = {{", *(f"    {quote(key)}: {value}," for key, value in items.items()), "}"]
