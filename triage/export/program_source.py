"""A program and its values as Python source in an exported script.

A program has requirements and imports, its text, and how it runs. Values are readable literals for few
elements, base64 of the bytes for many. The source is printable ASCII for every value and name, and calls only
`np.array`, `np.full` and the script's own `decode`.
"""

import base64
import re
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from onnx import helper

from opsieve.backends.workers.questions.programs import print_program
from opsieve.backends.workers.workers import Workers
from opsieve.gen.irs.registry import ir_of, keep_script
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import Value
from opsieve.gen.model.text import ModelText
from opsieve.triage.export import template
from opsieve.triage.export.export_input import ExportedFailure, iter_leaves
from opsieve.triage.fingerprint.mismatch_components import BROKEN_MODEL

WIDTH = 110
# Elements that are written one by one
_FEW = 256
# Bytes from which on compressing pays
_WORTH = 4 << 10

# What scripts with base64 in them define. Bytes of more than 4 KiB are deflated.
DECODE = """
def decode(text, dtype=None, shape=()):
    data = base64.b64decode(text)
    if data[:1] == b"z":
        data = zlib.decompress(data[1:])
    else:
        data = data[1:]
    return data if dtype is None else np.frombuffer(data, dtype).reshape(shape).copy()
"""


def quote(text: str) -> str:
    """Return text as a literal of printable ASCII."""
    return ascii(text)


def encode_bytes(data: bytes, indent: str = "    ") -> str:
    """Return bytes as the argument of `decode`: string literals in parentheses, one per line."""
    packed = b"z" + zlib.compress(data, 9) if len(data) > _WORTH else b""
    # Random weights do not compress; the first byte says which of the two it is.
    return write_base64(packed if packed and len(packed) < len(data) else b"=" + data, indent)


def write_base64(data: bytes, indent: str = "") -> str:
    """Return the base64 of bytes as string literals, in parentheses if they take several lines."""
    text = base64.b64encode(data).decode()
    # In lines that an editor can show and a diff can compare.
    parts = [text[start : start + WIDTH - 10] for start in range(0, len(text), WIDTH - 10)]
    if len(parts) == 1:
        return repr(parts[0])
    return "(\n" + "".join(f"{indent}    {part!r}\n" for part in parts) + f"{indent})"


def write_literal(value: Value, indent: str = "    ") -> str:
    """Return a value as an expression: an array, a list of them, or None."""
    if value is None:
        return "None"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(write_literal(item, indent) for item in value)}]"
    array = np.asarray(value)
    shape = str(tuple(int(size) for size in array.shape))
    # Surrogates carry bytes that are no UTF-8.
    if array.dtype.kind in "OUS":
        flat = [
            ascii(item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item))
            for item in array.ravel()
        ]
        return f"np.array({_write_list(flat, indent)}, dtype=object).reshape({shape})"
    dtype = _write_dtype(array.dtype)
    if (
        # Compared as bytes: NaN is not equal to itself, and -0 is equal to 0.
        array.size > 1
        and (array.view(f"V{array.itemsize}") == array.ravel()[:1].view(f"V{array.itemsize}")).all()
    ):
        text = _write_item(array.ravel()[0])
        # Only text that gives the same bytes again, else the bytes themselves.
        if _is_exact([text], array.ravel()[:1]):
            return f"np.full({shape}, {text}, {dtype})"
    if array.size <= _FEW:
        items = [_write_item(item) for item in array.ravel()]
        if _is_exact(items, array):
            tail = "" if array.ndim == 1 else f".reshape({shape})"
            return f"np.array({_write_list(items, indent)}, {dtype}){tail}"
    return f"decode({encode_bytes(np.ascontiguousarray(array).tobytes(), indent)}, {dtype}, {shape})"


def _write_item(item: Any) -> str:
    """Return one element with as few digits as its type needs; NaN and infinities by numpy's names."""
    if item.dtype.kind == "b" or item.dtype.name.startswith(("int", "uint")):
        return str(bool(item) if item.dtype.kind == "b" else int(item))
    if item.dtype.kind == "c":
        return f"complex({_write_special(repr(float(item.real)))}, {_write_special(repr(float(item.imag)))})"
    return _write_special(str(item) if item.dtype.kind == "f" else repr(float(item)))


def _write_special(text: str) -> str:
    return (
        f"{'-' if text[0] == '-' else ''}np.{text.lstrip('-')}"
        if text.lstrip("-") in ("nan", "inf")
        else text
    )


def _is_exact(items: Iterable[str], array: "np.ndarray[Any, Any]") -> bool:
    """Whether the elements as text give the same bytes; payloads and signs of NaN, for example, do not."""
    kind = complex if array.dtype.kind == "c" else None
    values = [_parse_value(item, kind) for item in items]
    with np.errstate(all="ignore"):
        try:
            return np.array(values, array.dtype).tobytes() == array.tobytes()
        except (TypeError, ValueError, OverflowError):
            return False


def _parse_value(text: str, kind: type | None) -> Any:
    if text in ("True", "False"):
        return text == "True"
    if kind is complex:
        real, imaginary = text.removeprefix("complex(").removesuffix(")").split(", ")
        # Not `eval`: no text of a model is ever run.
        return complex(_parse_value(real, None), _parse_value(imaginary, None))
    bare = text.replace("np.", "")
    return float(bare) if set(bare) & set(".enai") else int(bare)


def _write_dtype(dtype: "np.dtype[Any]") -> str:
    if dtype.kind == "b":
        return "np.bool_"
    if hasattr(np, dtype.name):
        return f"np.{dtype.name}"
    # bfloat16, float8, int4 and the like come with ml_dtypes, which onnx brings.
    return f"onnx.helper.tensor_dtype_to_np_dtype({int(helper.np_dtype_to_tensor_dtype(dtype))})"


def _write_list(items: list[str], indent: str) -> str:
    """Write a list, broken into lines if it is long."""
    whole = f"[{', '.join(items)}]"
    if len(whole) <= WIDTH - 30:
        return whole
    lines, line = [], f"{indent}    "
    for item in items:
        if len(line) + len(item) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = f"{indent}    "
        line += f"{item}, "
    return "\n".join(["[", *lines, line.rstrip(), f"{indent}]"])


# What is wrong with a transformed model, and what shows it.
_BROKEN = {
    "onnx.checker accepts the original and refuses": "checker",
    "the transformed model declares": "declared",
    "the transformed model has lost the outputs": "declared",
    "the transformed model wants inputs": "inputs",
    # A reader of the model misses them; onnx's checker does not.
    "the transformed model calls functions that it has lost": "load",
    "onnxruntime ": "load",
    # Without names of sizes, which the short form does not compare
    r"'.*' is declared with the shape \[[\dNone, ]*\] and has": "sizes",
    # A module
    r"what \S+ leaves is not well-formed": "pass",
}
# Of failures that a short script shows
BRIEF_KINDS = ("mismatch", "error", "crash")
# The number of lines of a program shown beside its bytes.
_LINES = 60
# The longest text in a script, in characters.
_MOST = 64 << 10


def get_text(exported: ExportedFailure, workers: Workers) -> ModelText:
    """Return the program as text: printed now, or as a worker printed it before if the IR keeps that."""
    program, ir = exported.case.program, ir_of(exported.case.program)
    if not ir.keeps_script:
        return print_program(ir.load(exported.model, program.passes, program.name), workers)
    text = (program.script or program.text()).strip()
    # The text stands in a raw string of three quotes, which it must not end.
    safe = "'''" not in text and not text.endswith(("'", "\\")) and text.isascii() and len(text) <= _MOST
    return ModelText(text, program.script_is_exact and safe)


def get_optimised_text(exported: ExportedFailure, workers: Workers) -> str:
    """Return the optimised model as text, if its result is wrong and a target can show it; else ""."""
    program, shows = exported.case.program, exported.target.showing_graph
    ir, wrong = ir_of(program), exported.verdict.kind == "mismatch"
    broken = exported.observation.exception.rpartition(".")[2] == BROKEN_MODEL
    if shows is None or not (wrong or broken) or not ir.script.serialised:
        return ""
    outputs = workers.observe(shows, program, exported.case.inputs).outputs
    return print_program(ir.load(outputs["model"].tobytes(), (), ""), workers).text if outputs else ""


def list_imports(program: Program) -> tuple[str, ...]:
    """List the imports of a script besides the compiler."""
    return ir_of(program).script.packages


def write_imports(exported: ExportedFailure, text: ModelText, test: bool) -> str:
    """Write the lines that import the script's requirements, and parse the model's text; without them it
    exits with a message.
    """
    facts = ir_of(exported.case.program).script
    parsed = f"\n    MODEL = {facts.parse.format('TEXT')}\n" if facts.parse and text.exact else ""
    return template.LIBRARIES.format(
        imports="".join(f"    import {module}\n" for module in facts.imports) + parsed,
        # onnx.parser.ParseError of an older onnx
        errors="Exception" if parsed else "ImportError",
        ends=template.SKIPS if test else template.EXITS,
    )


def write_run(exported: ExportedFailure, text: ModelText | None = None) -> str:
    """Write the function `run` from the backend's own lines; "" if it lacks them for this IR."""
    backend: Any = exported.target.backend
    program, options = exported.case.program, exported.target.options
    if ir_of(program).script.serialised:
        return (
            str(backend.script(options, _list_border_dtypes(exported))) if hasattr(backend, "script") else ""
        )
    if not hasattr(backend, "script_of_module"):
        return ""
    return str(backend.script_of_module(program, text is not None and text.exact, options))


def write_brief_run(exported: ExportedFailure) -> str:
    """Write the function `run` from the statements of an issue's script.

    Returns "" if only the backend's own lines show the failure: a flaky one, or one of time or memory.
    """
    # The short form has neither loop nor time limit.
    if exported.verdict.kind not in BRIEF_KINDS or exported.runs > 1:
        return ""
    imports, lines = get_brief_source(exported)
    if not lines:
        return ""
    given = ["return outputs" if any(line.startswith("outputs = ") for line in lines) else "return {}"]
    body = [*imports, "", *lines, *given]
    return "def run(model, inputs):\n" + "".join(f"    {line}\n" if line else "\n" for line in body)


def get_brief_source(exported: ExportedFailure, text: ModelText | None = None) -> tuple[list[str], list[str]]:
    """Return imports and statements of a short script from the backend (`protocol.WritesScripts`), if it has
    them. For a module of TVM they read its `text` if that is exact, else its JSON.
    """
    backend: Any = exported.target.backend
    seen, program = exported.observation, exported.case.program
    # What fails before the run needs no call of the compiled program.
    failed = "compile" if exported.verdict.kind in ("error", "crash") and seen.stage != "run" else "run"
    if (exception := seen.exception.rpartition(".")[2]) in (BROKEN_MODEL, "NotWellFormed"):
        failed = next(
            (how for start, how in _BROKEN.items() if re.match(start, seen.message)),
            "" if exception == BROKEN_MODEL else failed,
        )
    is_module = not ir_of(program).script.serialised
    if not (failed and hasattr(backend, "brief")) or (is_module and text is None):
        return [], []
    if is_module and text is not None:
        program = keep_script(program, text.text, text.exact)
    imports, lines = backend.brief(exported.target.options, _list_border_dtypes(exported), program, failed)
    return list(imports), list(lines)


def write_opsieve_run(exported: ExportedFailure) -> str:
    """Write a function `run` that uses opsieve, for a backend without lines of its own."""
    program, target = exported.case.program, quote(str(exported.target))
    encode = "" if ir_of(program).script.serialised else ".encode()"
    return template.OURS.format(target=target, ir=program.ir, encode=encode, passes=tuple(program.passes))


def write_model(exported: ExportedFailure, text: ModelText, plain: Callable[[object, int], str]) -> list[str]:
    """Write the lines that make MODEL: its exact text, or else its bytes with the text as a comment."""
    facts = ir_of(exported.case.program).script
    if text.exact:
        return [f"{'TEXT' if facts.parse else 'MODEL'} = r'''{text.text}'''"]
    # TVM's printing begins with all constants.
    shown = text.text if facts.serialised else exported.case.program.text()
    # Cleaned, since a line end in a name would leave the comment.
    remark = [f"# {plain(line, 160)}" for line in shown.split("\n")[:_LINES] if line.strip()]
    return [
        *remark,
        f"MODEL = decode({encode_bytes(exported.model, '')}){'' if facts.serialised else '.decode()'}",
    ]


def _list_border_dtypes(exported: ExportedFailure) -> set[str]:
    """List the element types of the graph's inputs and outputs."""
    values = [leaf for leaf in iter_leaves([*exported.case.inputs.values()]) if hasattr(leaf, "dtype")]
    return {leaf.dtype.name for leaf in values} | set(exported.case.program.output_dtypes().values())
