"""The script of an issue for a small model, short enough to read in half a minute.

It raises if the bug is there: the compiler's own error, or numpy's comparison of the outputs with the right
ones.
"""

import re
import zlib
from typing import Any

import numpy as np

from opsieve.gen.irs.registry import ir_of
from opsieve.gen.model.text import ModelText
from opsieve.triage.export import export_input, script
from opsieve.triage.export.program_source import (
    BRIEF_KINDS,
    WIDTH,
    get_brief_source,
    quote,
    write_base64,
    write_literal,
    write_run,
)

# Characters of the model's text
_MOST_TEXT = 2_000
# Bytes of a model whose text is not exact, and of the deflated JSON of such a module; in base64 they are at
# most seven and fifteen lines.
_MOST_BYTES = 480
_MOST_DEFLATED = 1_100
# Characters of inputs and expected outputs
_MOST_VALUES = 1_500
_READ = "onnx.load_model_from_string(model)"
# Below this a tolerance is that of denormal numbers, which nobody wants to read.
_TINY = 1e-30


def write_short_script(exported: export_input.ExportedFailure, text: ModelText) -> str:
    """Write the source; "" if only `write_script` can show the failure.

    That is so for a large model, a flaky failure, and values other than arrays of numbers.
    """
    verdict, facts = exported.verdict, ir_of(exported.case.program).script
    # TVM's printing begins with imports in comments, which are nothing to a reader here.
    shown = _join_head(text.text) if facts.parse else re.sub(r"^(?:#.*\n)+\n?", "", text.text)
    shown = f"r'''{shown}'''"
    model = facts.parse.format(shown) if facts.parse else shown
    # Bytes say nothing to a reader, so an issue prints the model beside such a script.
    encoded, deflated = not text.exact, not (text.exact or facts.serialised)
    data = zlib.compress(exported.model, 9) if deflated else exported.model
    if encoded:
        model = f"base64.b64decode({write_base64(data)})"
    if deflated:
        model = f"zlib.decompress({model}).decode()"
    if (encoded and len(data) > (_MOST_DEFLATED if deflated else _MOST_BYTES)) or len(text.text) > _MOST_TEXT:
        return ""
    if verdict.kind not in BRIEF_KINDS or exported.runs > 1 or exported.target.oracles:
        return ""
    imports, lines = get_brief_source(exported, text)
    whole = [] if lines else _unwrap_run(write_run(exported, text).strip("\n").split("\n"))
    checks = _write_checks(exported) if verdict.kind == "mismatch" else []
    if checks is None or not (lines or whole):
        return ""
    values = _write_inputs({name: write_literal(value) for name, value in exported.case.inputs.items()})
    body = "\n".join([*values, *checks])
    # `decode` marks base64, which no one reads.
    if len(body) > _MOST_VALUES or "decode(" in body:
        return ""
    environment = dict(exported.target.facts.environment) if whole else {}
    code = "\n".join(whole or lines)
    before, found, after = code.partition(_READ)
    bytes_only = before.removesuffix("model = ") + ("" if before.endswith("model = ") else after)
    # A compiler that takes the parsed model needs no bytes of it.
    if found and not (encoded or _READ in after or re.search(r"(?<!\.)\bmodel\b", bytes_only)):
        code = f"{before}model{after}".replace("model = model\n", "")
        model = model.removesuffix(".SerializeToString()")
    # A failure to compile needs no inputs.
    fed = values if whole or "inputs" in "\n".join(lines) else []
    parts = [
        f"# pip install {' '.join(quote(item) for item in script.list_requirements(exported))}",
        *([f"# {script.write_build_note(exported)}"] if exported.target.build else []),
        *["import base64"] * encoded,
        *["import os"] * bool(environment),
        *["import zlib"] * deflated,
        *[""] * bool(encoded or environment),
        *(["import numpy as np"] if "np." in "\n".join([*fed, *checks, *lines, *whole]) else []),
        # Bytes need no parser.
        *(f"import {module}" for module in (facts.imports[:1] if "onnx." in code else ()) if encoded),
        *(f"import {module}" for module in facts.imports[-1:] if not encoded),
        *imports,
        "",
        *([f"os.environ.update({environment!a})"] if environment else []),
        f"model = {model}",
        *fed,
        "",
        code,
        *checks,
    ]
    return "\n".join(parts) + "\n"


def _unwrap_run(source: list[str]) -> list[str]:
    """Return the statements of the function `run`; its definition and a call if it needs other functions.

    Returns [] for an empty source.
    """
    if not (source[0].startswith("def run(") and source[-1].startswith("    return ")):
        return ["", *source, "", "", "outputs = run(model, inputs)"] if source[0] else []
    return [line[4:] for line in source[1:-1] if line] + [source[-1].replace("    return ", "outputs = ", 1)]


def _join_head(text: str) -> str:
    """Join the lines of a model's text that come before its nodes, as far as one line holds them."""
    # The brace has a line of its own behind initializers only.
    if (brace := re.search(r"\s\{\n", text)) is None:
        return text
    lines: list[str] = []
    for part in text[: brace.start()].split("\n"):
        longer = f"{lines[-1]} {part.strip()}" if lines else part.strip()
        if lines and len(longer) <= WIDTH:
            lines[-1] = longer
        else:
            lines.append(part.strip())
    return f"{chr(10).join(lines)} {{\n{text[brace.end() :]}"


def _write_inputs(items: dict[str, str]) -> list[str]:
    """Write the inputs, in one statement line if they are short or there is one."""
    whole = f"inputs = {{{', '.join(f'{quote(name)}: {value}' for name, value in items.items())}}}"
    if len(whole) <= WIDTH or len(items) == 1:
        return [whole]
    return ["inputs = {", *(f"    {quote(name)}: {value}," for name, value in items.items()), "}"]


def _write_checks(exported: export_input.ExportedFailure) -> list[str] | None:
    """Write a line for each output with a known value; None if numpy's comparison would not show the
    failure.
    """
    worst = exported.verdict.mismatch
    # numpy takes -0 and 0 for equal, and a missing output is none of its cases.
    if worst is None or worst.what not in ("value", "nan", "inf", "shape", "dtype") or not exported.expected:
        return None
    if worst.what in ("shape", "dtype"):
        item = exported.expected.get(worst.output)
        if item is None or not isinstance(item.value, np.ndarray):
            return None
        wanted = tuple(item.value.shape) if worst.what == "shape" else item.dtype
        given = f"np.asarray(outputs[{quote(worst.output)}]).{worst.what}"
        # An empty shape is that of a scalar, an empty dtype is unknown.
        return [f"assert {given} == {wanted!a}, {given}"] if wanted or worst.what == "shape" else None
    lines = []
    for name, item in exported.expected.items():
        if not isinstance(item.value, np.ndarray) or item.value.dtype.kind not in "biuf":
            return None
        within = f", rtol=0, atol={item.within if item.within > _TINY else 0:.3g}"
        lines.append(
            f"np.testing.assert_allclose(outputs[{quote(name)}], {write_literal(_round_value(item))}{within})"
        )
    return lines


def _round_value(item: export_input.ExpectedOutput) -> "np.ndarray[Any, Any]":
    """Round the value to the digits that its tolerance needs."""
    value = np.asarray(item.value)
    if value.dtype.kind != "f" or item.within <= _TINY:
        return value
    # Seven digits are enough to read; the full ones only if rounding comes near the tolerance.
    short = np.array([float(f"{number:.7g}") for number in value.ravel()], value.dtype).reshape(value.shape)
    with np.errstate(invalid="ignore"):
        near = np.abs(short - value) <= item.within / 100
    # A hundredth, so that rounding cannot decide whether a value passes.
    return short if (near | ~np.isfinite(value)).all() else value
