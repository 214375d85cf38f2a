"""Values as Python source: readable literals for few elements, base64 of the bytes for many.

The source is printable ASCII for every value and name, and calls only `np.array`, `np.full` and the script's
own `decode`.
"""

import base64
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import helper

from opsieve.gen.model.tensors import Value

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
    text = base64.b64encode(packed if packed and len(packed) < len(data) else b"=" + data).decode()
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
    if array.dtype.kind in "OUS":
        flat = [
            ascii(item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item))
            for item in array.ravel()
        ]
        return f"np.array({_write_list(flat, indent)}, dtype=object).reshape({shape})"
    dtype = _write_dtype(array.dtype)
    if (
        array.size > 1
        and (array.view(f"V{array.itemsize}") == array.ravel()[:1].view(f"V{array.itemsize}")).all()
    ):
        text = _write_item(array.ravel()[0])
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
