"""Damage that keeps the structure of a file: values of JSON, fields of protobuf, entries of archives, and
plain bytes. Drawn by hypothesis.
"""

import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from typing import Any

import onnx
from hypothesis import strategies as st

Damage = Callable[[st.DrawFn, bytes], bytes]

_INTEGERS = [
    0,
    1,
    -1,
    7,
    65,
    2**16,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**53,
    2**62,
    2**63 - 1,
    -(2**31),
    -(2**63),
]
_TEXTS = [
    "",
    "x",
    "\0",
    "\x1b[31m",
    "\u2028\n\r",
    "²",
    "\udc80",
    "../..",
    "/etc/passwd",
    "%s{0}",
    "a" * 5000,
    "'; DROP TABLE failures; --",
    "float32",
    "onnxruntime==../..",
]
_OTHERS = [
    None,
    True,
    False,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    [],
    {},
    10**400,
    1 << 64,
]


def _nested(depth: int, as_object: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"k": value} if as_object else [value]
    return value


_JSON = st.one_of(
    st.sampled_from(_INTEGERS),
    st.sampled_from(_TEXTS),
    st.sampled_from(_OTHERS),
    st.builds(_nested, st.sampled_from([3, 200, 900]), st.booleans()),
    st.builds(
        lambda count, value: [value] * count, st.sampled_from([2, 70, 3000]), st.sampled_from(_INTEGERS)
    ),
)


def raw(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes cut, flipped, repeated, removed or put in."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        size = draw(st.integers(1, 32))
        kind = draw(st.sampled_from(["cut", "flip", "repeat", "remove", "put in", "replace"]))
        if kind == "cut":
            data = data[:at]
        elif kind == "flip":
            data = data[:at] + bytes(byte ^ 1 << size % 8 for byte in data[at : at + 1]) + data[at + 1 :]
        elif kind == "repeat":
            data = data[: at + size] + data[at:]
        elif kind == "remove":
            data = data[:at] + data[at + size :]
        else:
            data = (
                data[:at] + draw(st.binary(min_size=1, max_size=8)) + data[at + size * (kind == "replace") :]
            )
    return data


def json_values(draw: st.DrawFn, data: bytes) -> bytes:
    """A value of a JSON text replaced by one of another kind, left out, doubled, or swapped with another."""
    whole = [json.loads(data)]
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(whole))
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        kind = draw(st.sampled_from(["replace", "replace", "leave out", "exchange", "put in"]))
        if kind == "leave out" and holder is not whole:
            del holder[key]
        elif kind == "exchange":
            other, there = places[draw(st.integers(0, len(places) - 1))]
            holder[key] = json.loads(json.dumps(other[there]))
        elif kind == "put in" and isinstance(holder, dict):
            holder[draw(st.sampled_from(_TEXTS))] = draw(_JSON)
        else:
            holder[key] = draw(_JSON)
    return json.dumps(whole[0]).encode()


def _places(value: Any) -> Any:
    stack = [value]
    while stack:
        value = stack.pop()
        for key, item in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
            yield value, key
            if isinstance(item, (dict, list)):
                stack.append(item)


def json_lines(draw: st.DrawFn, data: bytes) -> bytes:
    """One line of several damaged, as JSON or as bytes; lines doubled or exchanged."""
    lines = data.splitlines()
    at, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    kind = draw(st.sampled_from(["value", "value", "value", "bytes", "double", "exchange"]))
    if kind in ("value", "bytes"):
        lines[at] = (json_values if kind == "value" else raw)(draw, lines[at])
    elif kind == "double":
        lines[at:at] = [lines[at]] * draw(st.integers(1, 50))
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return b"\n".join(lines) + b"\n"


def protobuf(message: Callable[[], Any]) -> Damage:
    """Fields of a message, or of one inside it, set to what they should not be, doubled, cleared or moved."""

    def damage(draw: st.DrawFn, data: bytes) -> bytes:
        whole = message()
        whole.ParseFromString(data)
        for _ in range(draw(st.integers(1, 3))):
            every = list(_messages(whole))
            _change(draw, every[draw(st.integers(0, len(every) - 1))], every)
        return bytes(whole.SerializeToString())

    return damage


def _messages(message: Any) -> Any:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if _repeated(field) else [value]:
                yield from _messages(part)


def _repeated(field: Any) -> bool:
    return bool(
        field.label == field.LABEL_REPEATED if not hasattr(field, "is_repeated") else field.is_repeated
    )


def _change(draw: st.DrawFn, message: Any, every: list[Any]) -> None:
    fields = message.DESCRIPTOR.fields
    field = fields[draw(st.integers(0, len(fields) - 1))]
    if draw(st.booleans()) and message.ListFields():  # one that is set
        present = message.ListFields()
        field = present[draw(st.integers(0, len(present) - 1))][0]
    if draw(st.integers(0, 5)) == 0:
        message.ClearField(field.name)
        return
    if field.message_type is not None:
        same = [part.SerializeToString() for part in every if part.DESCRIPTOR is field.message_type] or [b""]
        chosen = same[draw(st.integers(0, len(same) - 1))]
        holder = getattr(message, field.name)
        for _ in range(draw(st.sampled_from([1, 1, 2, 70])) if _repeated(field) else 1):
            (holder.add() if _repeated(field) else holder).MergeFromString(chosen)
        return
    value = _scalar(draw, field)
    if _repeated(field):
        getattr(message, field.name).extend([value] * draw(st.sampled_from([1, 1, 2, 70])))
    else:
        setattr(message, field.name, value)


def _scalar(draw: st.DrawFn, field: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        text = draw(st.sampled_from(_TEXTS)).encode("utf-8", "replace")
        return text if field.type == field.TYPE_BYTES else text.decode()
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return draw(st.sampled_from([0.0, -0.0, 1.5, float("inf"), float("nan")]))
    if field.cpp_type == field.CPPTYPE_ENUM:
        return draw(st.sampled_from([value.number for value in field.enum_type.values]))
    number = draw(st.sampled_from(_INTEGERS))
    low, high = {
        field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
        field.CPPTYPE_UINT32: (0, 2**32 - 1),
        field.CPPTYPE_UINT64: (0, 2**64 - 1),
    }.get(field.cpp_type, (-(2**63), 2**63 - 1))
    return max(low, min(high, number))


model = protobuf(onnx.ModelProto)
tensor = protobuf(onnx.TensorProto)


def archive(draw: st.DrawFn, data: bytes) -> bytes:
    """An entry of a zip damaged, renamed or doubled; the rest is a sound zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        entries = [(name, file.read(name)) for name in file.namelist()]
    at = draw(st.integers(0, len(entries) - 1))
    name, content = entries[at]
    kind = draw(st.sampled_from(["content", "header", "name", "more"]))
    if kind == "content":
        entries[at] = name, raw(draw, content)
    elif kind == "header":  # numpy's is a Python literal in the first 128 bytes
        words = [b"'descr'", b"(2, 3)", b"False", b"'<f4'", b"}", b"2", b"shape"]
        others = [
            b"'|O'",
            b"(99999999999, 9999999)",
            b"(-1,)",
            b"(True, 1.5)",
            b"('<f4', 3)",
            b"[" * 90,
            b"2**2",
            b"'|V0'",
            b"1" * 4400,
        ]
        word, other = draw(st.sampled_from(words)), draw(st.sampled_from(others))
        entries[at] = name, content[:128].replace(word, other) + content[128:]
    elif kind == "name":
        entries[at] = draw(st.sampled_from([text for text in _TEXTS if text.isprintable()])) + ".npy", content
    else:
        entries += [(f"{number}.npy", content) for number in range(draw(st.integers(1, 9)))]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries:
            file.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


def gzipped(inner: Damage) -> Damage:
    """Damage of what is packed."""
    return lambda draw, data: gzip.compress(inner(draw, gzip.decompress(data)), 1)


def xz(inner: Damage) -> Damage:
    """As `gzipped`, of xz."""
    return lambda draw, data: lzma.compress(inner(draw, lzma.decompress(data)), preset=0)
