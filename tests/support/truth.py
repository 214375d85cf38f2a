"""Programs whose verdict is known (tests/corpus/truth), read into cases."""

import tomllib
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.parser
from repository import CORPUS, SAMPLES

from opsieve.gen.case.case import load
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import DTYPES

PROGRAMS = CORPUS / "truth" / "programs.toml"


@dataclass(frozen=True)
class Known:
    """A program with its inputs, whom it is asked of, and the right verdict."""

    name: str
    kind_of_truth: str
    target: str
    verdict: str
    kind: str
    why: str
    program: Program
    inputs: dict[str, Any]


def known() -> list[Known]:
    """Every program of the corpus."""
    return [_read(entry) for entry in tomllib.loads(PROGRAMS.read_text(encoding="utf-8"))["program"]]


def _read(entry: dict[str, Any]) -> Known:
    facts = {name: entry[name] for name in ("name", "target", "verdict", "why")}
    facts |= {"kind_of_truth": entry["class"], "kind": entry.get("kind", "")}
    if "sample" in entry:  # what its own outputs should be is kept from the judge
        case = load(SAMPLES / entry["sample"])
        return Known(**facts, program=case.program, inputs=case.inputs)
    opset = entry.get("opset", 21)
    head = f'<ir_version: {8 if opset < 20 else 10}, opset_import: ["" : {opset}]>\n'
    model = onnx.parser.parse_model(head + entry["text"])
    given, draw = entry.get("inputs", {}), np.random.default_rng(7)
    inputs: dict[str, Any] = {}
    for value in model.graph.input:
        dtype = DTYPES[value.type.tensor_type.elem_type]
        kind: Any = object if dtype == "string" else np.dtype(dtype)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.name in given:
            inputs[value.name] = np.array(given[value.name], kind)
        elif dtype == "bool" or np.dtype(dtype).kind in "iu":
            inputs[value.name] = draw.integers(0, 2, shape).astype(kind)
        else:
            inputs[value.name] = draw.uniform(0.2, 0.9, shape).astype(kind)
    return Known(**facts, program=OnnxProgram(model.SerializeToString(), entry["name"]), inputs=inputs)
