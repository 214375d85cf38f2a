"""What is known of the operators of a domain before they are asked: their schemas, of onnx itself or of the onnxruntime that is installed."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import onnx.defs

from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.spec.schema import named_dtypes

_PATIENCE = 120  # seconds for onnxruntime to be imported
_WORD = re.compile(r"['\"`]([A-Za-z][A-Za-z0-9_]{1,20})['\"`]")
_MOST_WORDS = 12
# Run by a Python of its own: a compiler is not loaded into opsieve.
_ASK = """
import json, sys
from onnxruntime.capi import onnxruntime_pybind11_state as state
domain = sys.argv[1]
def slot(p):
    return [p.name, p.typeStr, str(p.option).rsplit(".", 1)[-1]]
def attribute(a):
    return [str(a.type).rsplit(".", 1)[-1], bool(a.required), a.description]
kernels = {k.op_name for k in state.get_all_opkernel_def() if k.domain == domain and k.provider == "CPUExecutionProvider"}
found = {}
for s in state.get_all_operator_schema():
    if s.domain == domain and not s.deprecated and (s.name not in found or found[s.name]["since"] < s.since_version):
        found[s.name] = dict(name=s.name, since=s.since_version, inputs=[slot(p) for p in s.inputs],
            outputs=[slot(p) for p in s.outputs], least=s.min_input,
            types={c.type_param_str: list(c.allowed_type_strs) for c in s.type_constraints},
            attributes={k: attribute(a) for k, a in s.attributes.items()}, kernel=s.name in kernels)
print(json.dumps(list(found.values())))
"""


@dataclass(frozen=True, slots=True)
class SchemaSlot:
    """An input or output: the type variable or type that it has; `optional` where it may be left out, `variadic` where repeated."""

    name: str
    type: str
    optional: bool
    variadic: bool


@dataclass(frozen=True, slots=True)
class DomainSchema:
    """An operator of a domain as its schema has it. `attributes` are kinds (INT, FLOATS, ...) by name, `required` those that must be given.

    `words` are words in quotes of an attribute's description: what a string may be. `kernel`: the compiler runs it on the CPU.
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


def schemas_of(domain: str) -> list[DomainSchema]:
    """The operators of a domain, by name. BadInput where neither onnx nor onnxruntime has a schema of it."""
    entries = [
        _own(schema) for schema in onnx.defs.get_all_schemas() if schema.domain == domain and not schema.deprecated
    ]
    if not entries:
        entries = _asked(domain)
    if not entries:
        raise BadInput(
            f"neither onnx nor the onnxruntime that is installed has schemas of {shown(domain, 80)}: "
            "declare its operators by hand (docs/how-to/add-an-operator.md)"
        )
    return sorted((_schema(entry) for entry in entries), key=lambda schema: schema.name)


def _own(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    def slot(parameter: onnx.defs.OpSchema.FormalParameter) -> list[str]:
        return [parameter.name, parameter.type_str, str(parameter.option).rsplit(".", 1)[-1]]

    return {
        "name": schema.name,
        "since": schema.since_version,
        "inputs": [slot(each) for each in schema.inputs],
        "outputs": [slot(each) for each in schema.outputs],
        "types": {each.type_param_str: list(each.allowed_type_strs) for each in schema.type_constraints},
        "attributes": {
            k: [str(a.type).rsplit(".", 1)[-1], a.required, a.description] for k, a in schema.attributes.items()
        },
        "kernel": True,
    }


def _asked(domain: str) -> list[dict[str, Any]]:
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


def _schema(entry: dict[str, Any]) -> DomainSchema:
    slots = {side: tuple(_slot(*each) for each in entry[side]) for side in ("inputs", "outputs")}
    types = {name: tuple(sorted(named_dtypes(strings))) for name, strings in entry["types"].items()}
    for slot in (*slots["inputs"], *slots["outputs"]):
        types.setdefault(slot.type, tuple(sorted(named_dtypes([slot.type]))))
    attributes = entry["attributes"]
    return DomainSchema(
        entry["name"],
        entry["since"],
        slots["inputs"],
        slots["outputs"],
        types,
        {name: kind for name, (kind, _, _) in attributes.items()},
        frozenset(name for name, (_, required, _) in attributes.items() if required),
        {name: tuple(dict.fromkeys(_WORD.findall(text)))[:_MOST_WORDS] for name, (_, _, text) in attributes.items()},
        entry["kernel"],
    )


def _slot(name: str, type_: str, option: str) -> SchemaSlot:
    return SchemaSlot(name, type_, option == "Optional", option == "Variadic")
