"""The script of an issue where the model is small: what a maintainer reads in half a minute, and nothing else.

It raises while the bug is there: the compiler's own error, or numpy's comparison of what it gives with what is right.
"""

import numpy as np

from opsieve.gen.model.program import OnnxProgram
from opsieve.gen.model.text import ModelText
from opsieve.triage.export.export_input import ExportedFailure
from opsieve.triage.export.literals import literal, quoted
from opsieve.triage.export.program_source import run_source
from opsieve.triage.export.script import build_note, requirements

_MOST_TEXT = 2_000  # characters of the model's text
_MOST_VALUES = 1_500  # characters of inputs and expected outputs
# Below this a tolerance is that of denormal numbers, which nobody wants to read.
_TINY = 1e-30
_KINDS = ("mismatch", "error", "crash")


def short_script(exported: ExportedFailure, text: ModelText) -> str:
    """The source, "" where only `script` shows the failure: a large model, a flaky failure, values that are no arrays of numbers."""
    verdict = exported.verdict
    lines = run_source(exported, text) if isinstance(exported.case.program, OnnxProgram) else ""
    if not (lines and text.exact) or len(text.text) > _MOST_TEXT or verdict.kind not in _KINDS or exported.runs > 1:
        return ""
    checks = _checks(exported) if verdict.kind == "mismatch" else []
    if checks is None:
        return ""
    inputs = [f"    {quoted(name)}: {literal(value)}," for name, value in exported.case.inputs.items()]
    values = ["INPUTS = {", *inputs, "}"] if inputs else ["INPUTS = {}"]
    body = "\n".join([*values, *checks])
    if len(body) > _MOST_VALUES or "decode(" in body:
        return ""
    environment = dict(exported.target.backend.environment)
    parts = [
        f"# pip install {' '.join(quoted(item) for item in requirements(exported))}",
        *([f"# {build_note(exported)}"] if exported.target.build else []),
        *(["import os", ""] if environment else []),
        *(["import numpy as np"] if "np." in body else []),
        "import onnx.parser",
        "",
        *([f"os.environ.update({environment!a})"] if environment else []),
        f"MODEL = onnx.parser.parse_model(r'''{text.text}''').SerializeToString()",
        *values,
        "",
        "",
        lines.strip("\n"),
        "",
        "",
        "outputs = run(MODEL, INPUTS)",
        *(checks or ["print(outputs)"]),
    ]
    return "\n".join(parts) + "\n"


def _checks(exported: ExportedFailure) -> list[str] | None:
    """A line for each output whose value is known; None where numpy's comparison would not show the failure."""
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
        lines.append(f"np.testing.assert_allclose(outputs[{quoted(name)}], {literal(item.value)}{within})")
    return lines
