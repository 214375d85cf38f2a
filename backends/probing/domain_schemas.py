"""Read the schemas of a domain's operators from onnx or the installed onnxruntime."""

import json
import re
import subprocess
import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx.defs

from opsieve.backends.probing.documented_shapes import read_definitions
from opsieve.gen.declarations.catalogue import named_dtypes
from opsieve.gen.errors import BadInput, shown

# Of ONNX's own operators in instances
OPSET = 21
# Seconds for onnxruntime to be imported
_PATIENCE = 120
_NUMBER = re.compile(r"(?<![\w.^-])-?\d{1,4}(?!\w|[.^]\d)")
_CHOICES = re.compile(r"(?:one of|hoose from|mong|either|alues are|upported:?) ([^.;]{0,200})")
_PLAIN_WORD = re.compile(r"\b[A-Za-z][A-Za-z0-9_]{2,20}\b")
_NO_CHOICES = frozenset(
    (
        "and",
        "the",
        "for",
        "default",
        "not",
        "with",
        "are",
        "following",
        "from",
        "one",
        "activation",
        "functions",
        "specified",
    )
)
_WORD = re.compile(r"['\"`]([A-Za-z][A-Za-z0-9_]{1,20})['\"`]")
_MOST_WORDS = 12
_SPARSE = "sparse_"
# Run by a Python of its own: a compiler is not loaded into opsieve.
_ASK = """
import json, sys
from onnxruntime.capi import onnxruntime_pybind11_state as state
domain = sys.argv[1]
def slot(p):
    return [p.name, p.typeStr, str(p.option).rsplit(".", 1)[-1], p.isHomogeneous, p.description or ""]
def attribute(a):
    return [str(a.type).rsplit(".", 1)[-1], bool(a.required), a.description or "", getattr(a, "_default_value", b"").hex()]
kernels = {}
for k in state.get_all_opkernel_def():
    if k.domain == domain and k.provider == "CPUExecutionProvider":
        taken = kernels.setdefault(k.op_name, {})
        for variable, types in k.type_constraints.items():
            taken.setdefault(variable, []).extend(types)
found = {}
for s in state.get_all_operator_schema():
    if s.domain == domain and not s.deprecated and (s.name not in found or found[s.name]["since"] < s.since_version):
        found[s.name] = dict(name=s.name, since=s.since_version, inputs=[slot(p) for p in s.inputs],
            outputs=[slot(p) for p in s.outputs], least=s.min_input,
            types={c.type_param_str: [t for t in c.allowed_type_strs if t in kernels.get(s.name, {}).get(c.type_param_str, [t])]
                for c in s.type_constraints}, doc=s.doc or "",
            attributes={k: attribute(a) for k, a in s.attributes.items()}, kernel=s.name in kernels)
print(json.dumps(list(found.values())))
"""


@dataclass(frozen=True, slots=True)
class SchemaSlot:
    """An input or output: its type or type variable; `optional` if it may be left out, `variadic` if
    repeated.

    `alike`: all repetitions have one type; `text` is its description; `sparse`: it is a sparse tensor.
    """

    name: str
    type: str
    optional: bool
    variadic: bool
    alike: bool = True
    text: str = ""
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class DomainSchema:
    """An operator's schema.

    `attributes` are kinds (INT, FLOATS, ...) by name, `required` those that must be given. `types` are those
    of the CPU kernels, if there is one (`kernel`). Attributes' descriptions name `words`, possible strings,
    and `numbers`, with the default. `definitions` are sizes that the domain's documentation defines by others
    (`documented_shapes`).
    """

    name: str
    since: int
    inputs: tuple[SchemaSlot, ...]
    outputs: tuple[SchemaSlot, ...]
    types: dict[str, tuple[str, ...]]
    attributes: dict[str, str]
    required: frozenset[str]
    words: dict[str, tuple[str, ...]]
    kernel: bool
    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    definitions: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_schemas(domain: str) -> list[DomainSchema]:
    """Read the operators of a domain by name; "" is ONNX's own.

    Raises:
        BadInput: If onnx and onnxruntime both lack the domain.
    """
    entries = [_convert_schema(schema) for schema in _list_onnx_schemas(domain) if not schema.deprecated]
    if not entries:
        entries = _query_onnxruntime(domain)
    if not entries:
        raise BadInput(
            f"neither onnx nor the onnxruntime that is installed has schemas of {shown(domain, 80)}: "
            "declare its operators by hand (docs/how-to/add-an-operator.md)"
        )
    definitions = read_definitions([text for entry in entries for text in _list_texts(entry)])
    return sorted((_make_schema(entry, definitions) for entry in entries), key=lambda schema: schema.name)


def _list_texts(entry: Mapping[str, Any]) -> list[str]:
    slots = [each[4] for side in ("inputs", "outputs") for each in entry[side]]
    return [entry["doc"], *slots, *(about[2] for about in entry["attributes"].values())]


def _list_onnx_schemas(domain: str) -> list[onnx.defs.OpSchema]:
    latest = [schema for schema in onnx.defs.get_all_schemas() if schema.domain == domain]
    if domain:
        return latest
    return [onnx.defs.get_schema(each.name, OPSET) for each in latest if onnx.defs.has(each.name, OPSET)]


def _convert_schema(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    def convert_slot(parameter: onnx.defs.OpSchema.FormalParameter) -> list[Any]:
        option = str(parameter.option).rsplit(".", 1)[-1]
        return [parameter.name, parameter.type_str, option, parameter.is_homogeneous, parameter.description]

    return {
        "name": schema.name,
        "since": schema.since_version,
        "inputs": [convert_slot(each) for each in schema.inputs],
        "outputs": [convert_slot(each) for each in schema.outputs],
        "types": {each.type_param_str: list(each.allowed_type_strs) for each in schema.type_constraints},
        "attributes": {
            k: [
                str(a.type).rsplit(".", 1)[-1],
                a.required,
                a.description,
                a.default_value.SerializeToString().hex(),
            ]
            for k, a in schema.attributes.items()
        },
        "doc": schema.doc,
        "kernel": True,
    }


def _query_onnxruntime(domain: str) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _ASK, domain],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
        )
        found = json.loads(done.stdout.decode("utf-8", "replace").splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        raise BadInput(
            f"onnxruntime, which has the schemas of {shown(domain, 80)}, is not installed or does not run"
        ) from None
    return list(found)


def _make_schema(entry: dict[str, Any], definitions: dict[str, tuple[str, ...]]) -> DomainSchema:
    sparse = {name for name, strings in entry["types"].items() if strings and all(map(_is_sparse, strings))}
    slots = {
        side: tuple(_make_slot(*each, sparse=sparse) for each in entry[side])
        for side in ("inputs", "outputs")
    }
    plain = {
        name: [text.removeprefix(_SPARSE) for text in strings] for name, strings in entry["types"].items()
    }
    types = {
        name: tuple(sorted(named_dtypes(plain[name] if name in sparse else strings)))
        for name, strings in entry["types"].items()
    }
    for slot in (*slots["inputs"], *slots["outputs"]):
        types.setdefault(slot.type, tuple(sorted(named_dtypes([slot.type]))))
    attributes = entry["attributes"]
    return DomainSchema(
        entry["name"],
        entry["since"],
        slots["inputs"],
        slots["outputs"],
        types,
        {name: kind for name, (kind, *_) in attributes.items()},
        frozenset(name for name, (_, required, *_) in attributes.items() if required),
        {name: _find_words(text) for name, (_, _, text, _) in attributes.items()},
        entry["kernel"],
        {
            name: _find_numbers(text, bytes.fromhex(default))
            for name, (_, _, text, default) in attributes.items()
        },
        definitions,
    )


def _find_words(text: str) -> tuple[str, ...]:
    """Find the possible strings in a description: quoted words, and those of a list of choices."""
    listed = [word for choices in _CHOICES.findall(text) for word in _PLAIN_WORD.findall(choices)]
    return tuple(
        dict.fromkeys((*_WORD.findall(text), *(word for word in listed if word not in _NO_CHOICES)))
    )[:_MOST_WORDS]


def _find_numbers(text: str, default: bytes) -> tuple[int, ...]:
    """Find the possible whole numbers: the default, and the numbers in a description."""
    usual = onnx.AttributeProto.FromString(default)
    known = [usual.i] if usual.type == onnx.AttributeProto.INT else []
    return tuple(dict.fromkeys((*known, *map(int, _NUMBER.findall(text)))))[:_MOST_WORDS]


def _is_sparse(text: str) -> bool:
    return text.startswith(_SPARSE)


def _make_slot(
    name: str, type_: str, option: str, alike: bool, text: str, *, sparse: Container[str]
) -> SchemaSlot:
    return SchemaSlot(name, type_, option == "Optional", option == "Variadic", alike, text, type_ in sparse)
