"""The script of an issue where the model is small: what a maintainer reads in half a minute, and nothing
else.

It raises while the bug is there: the compiler's own error, or numpy's comparison of what it gives with what
is right.
"""

from typing import Any

import numpy as np

from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.text import ModelText
from opsieve.triage.export.export_input import ExpectedOutput, ExportedFailure
from opsieve.triage.export.literals import WIDTH, literal, quoted
from opsieve.triage.export.program_source import BRIEF_KINDS, brief_source, run_source
from opsieve.triage.export.script import build_note, requirements

_MOST_TEXT = 2_000  # characters of the model's text
_MOST_VALUES = 1_500  # characters of inputs and expected outputs
# Below this a tolerance is that of denormal numbers, which nobody wants to read.
_TINY = 1e-30


def short_script(exported: ExportedFailure, text: ModelText) -> str:
    """The source, "" where only `script` shows the failure: a large model, a flaky failure, values that are
    no arrays of numbers.
    """
    verdict, facts, shown = exported.verdict, ir_of(exported.case.program).script, f"r'''{text.text}'''"
    if not text.exact or len(text.text) > _MOST_TEXT:
        return ""
    if verdict.kind not in BRIEF_KINDS or exported.runs > 1:
        return ""
    imports, lines = brief_source(exported)
    whole = "" if lines else run_source(exported, text)
    checks = _checks(exported) if verdict.kind == "mismatch" else []
    if checks is None or not (lines or whole):
        return ""
    values = _table({name: literal(value) for name, value in exported.case.inputs.items()})
    body = "\n".join([*values, *checks])
    if len(body) > _MOST_VALUES or "decode(" in body:
        return ""
    environment = dict(exported.target.facts.environment) if whole else {}
    fed = values if whole or "inputs" in "\n".join(lines) else []
    parts = [
        f"# pip install {' '.join(quoted(item) for item in requirements(exported))}",
        *([f"# {build_note(exported)}"] if exported.target.build else []),
        *(["import os", ""] if environment else []),
        *(["import numpy as np"] if "np." in "\n".join([*fed, *checks, *lines, whole]) else []),
        *(f"import {module}" for module in facts.imports[-1:]),
        *imports,
        "",
        *([f"os.environ.update({environment!a})"] if environment else []),
        f"model = {facts.parse.format(shown) if facts.parse else shown}",
        *fed,
        *(["", "", whole.strip("\n"), "", "", "outputs = run(model, inputs)"] if whole else ["", *lines]),
        *checks,
    ]
    return "\n".join(parts) + "\n"


def _table(items: dict[str, str]) -> list[str]:
    """The inputs: in one line where they are short."""
    whole = f"inputs = {{{', '.join(f'{quoted(name)}: {value}' for name, value in items.items())}}}"
    if len(whole) <= WIDTH:
        return [whole]
    return ["inputs = {", *(f"    {quoted(name)}: {value}," for name, value in items.items()), "}"]


def _checks(exported: ExportedFailure) -> list[str] | None:
    """A line for each output whose value is known; None where numpy's comparison would not show the
    failure.
    """
    worst = exported.verdict.mismatch
    if worst is None or worst.what not in ("value", "nan", "inf", "shape", "dtype") or not exported.expected:
        return None
    if worst.what in ("shape", "dtype"):
        item = exported.expected.get(worst.output)
        if item is None or not isinstance(item.value, np.ndarray):
            return None
        wanted = tuple(item.value.shape) if worst.what == "shape" else item.dtype
        given = f"np.asarray(outputs[{quoted(worst.output)}]).{worst.what}"
        return [f"assert {given} == {wanted!a}, {given}"] if wanted or worst.what == "shape" else None
    lines = []
    for name, item in exported.expected.items():
        if not isinstance(item.value, np.ndarray) or item.value.dtype.kind not in "biuf":
            return None
        within = f", rtol=0, atol={item.within if item.within > _TINY else 0:.3g}"
        lines.append(
            f"np.testing.assert_allclose(outputs[{quoted(name)}], {literal(_readable(item))}{within})"
        )
    return lines


def _readable(item: ExpectedOutput) -> "np.ndarray[Any, Any]":
    """The value with no more digits than its tolerance needs."""
    value = np.asarray(item.value)
    if value.dtype.kind != "f" or item.within <= _TINY:
        return value
    short = np.array([float(f"{number:.7g}") for number in value.ravel()], value.dtype).reshape(value.shape)
    with np.errstate(invalid="ignore"):
        near = np.abs(short - value) <= item.within / 100
    return short if (near | ~np.isfinite(value)).all() else value
