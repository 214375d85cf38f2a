"""Writes gen/generation/exported.txt: parts of architectures as both of PyTorch's exporters write them, for
`mutate` to start from.

    python benchmarks/export_architectures.py [OUT] [--check]

Needs torch and onnxscript; equal releases give equal bytes (the first line of the file has them). Each module
of benchmarks/architecture_modules.py is exported by the exporter over torch.export (`-dynamo`) and by the
older one over TorchScript (`-script`), brought to short names, and printed in ONNX's text format. Weights
become parameters, inputs whose names begin with w, of which only the type is kept; whole numbers, truths,
masks and constants of a few elements stay. A module comes at all opsets at which ONNX's checker takes its
graph, from the newest that an exporter wrote on. `--check` compares with what is there.
"""

import argparse
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.printer
import onnxscript
import torch
from benchmarks.architecture_modules import MODULES, Module
from onnx import AttributeProto, GraphProto, ModelProto, helper, numpy_helper

from opsieve.gen.declarations.catalogue import OLDEST
from opsieve.gen.generation.random_graph import SUPPORTED
from opsieve.gen.strategies.mutate import Architecture, read_at

OUT = Path(__file__).parent.parent / "gen" / "generation" / "exported.txt"
_OPSET = 18
_FEW = 8  # elements of a constant of floats that are kept; of whole numbers:
_MANY = 256


def exported(module: Module, dynamo: bool) -> ModelProto:
    """The model that one of the exporters writes."""
    torch.manual_seed(0)
    model, inputs = module.made()
    model = model.eval()
    held = io.BytesIO()
    names = [f"x{place}" for place in range(len(inputs))]
    open_sizes = {name: dict(axes) for name, axes in zip(names, module.open_axes, strict=False)}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if dynamo:
            shapes = tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in open_sizes.values())
            program = torch.onnx.export(
                model, inputs, dynamo=True, opset_version=_OPSET, dynamic_shapes=shapes or None, verbose=False
            )
            return program.model_proto
        torch.onnx.export(
            model,
            inputs,
            held,
            dynamo=False,
            opset_version=_OPSET,
            input_names=names,
            dynamic_axes=open_sizes or None,
        )
    return onnx.load_model_from_string(held.getvalue())


def _is_kept(array: np.ndarray) -> bool:
    """Whether a constant says how the graph computes, rather than what it has learnt."""
    if array.dtype.kind != "f":
        return array.size <= _MANY
    return array.size <= _FEW or not np.isfinite(array).all()


class _Renamer:
    """Short names for a graph and its bodies, weights as inputs, constants as nodes."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {"": ""}
        self.weights: list[onnx.ValueInfoProto] = []

    def named(self, name: str, kind: str = "v") -> str:
        """The short name of a tensor."""
        return self.names.setdefault(name, f"{kind}{len(self.names)}")

    def graph(self, graph: GraphProto, top: bool) -> GraphProto:
        """The graph anew."""
        made = GraphProto(name="g")
        for tensor in graph.initializer:
            array = numpy_helper.to_array(tensor)
            if top and not _is_kept(array):
                name = self.named(tensor.name, "w")
                self.weights.append(helper.make_tensor_value_info(name, tensor.data_type, array.shape))
            else:
                value = numpy_helper.from_array(array)
                made.node.append(
                    helper.make_node("Constant", [], [self.named(tensor.name, "c")], value=value)
                )
        for infos, into, kind in ((graph.input, made.input, "x"), (graph.output, made.output, "v")):
            for info in infos:
                copy = into.add()
                copy.CopyFrom(info)
                copy.ClearField("metadata_props")
                copy.name = self.named(info.name, kind)
        for node in graph.node:
            copy = made.node.add(op_type=node.op_type, domain=node.domain)
            copy.input.extend(map(self.named, node.input))
            for attribute in node.attribute:
                copy.attribute.add().CopyFrom(attribute)
                copy.attribute[-1].ClearField("doc_string")
                if attribute.type == AttributeProto.GRAPH:
                    copy.attribute[-1].g.CopyFrom(self.graph(attribute.g, False))
                elif attribute.type == AttributeProto.TENSOR:
                    copy.attribute[-1].t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t)))
            copy.output.extend(map(self.named, node.output))
        if top:
            made.input.extend(self.weights)
        return made


def text(model: ModelProto) -> str:
    """The graph of a model in ONNX's text format, from its inputs on."""
    if model.functions:
        raise ValueError("functions")
    printed = onnx.printer.to_text(_Renamer().graph(model.graph, True))
    return printed[printed.index("(") :].rstrip() + "\n"


def _opsets(name: str, written: str, opset: int) -> range:
    """The opsets around that of an export at which the checker takes a graph, and that give the same
    types.
    """

    def holds(other: int) -> bool:
        architecture = Architecture(name, other, other, written)
        try:
            onnx.checker.check_model(architecture.parse_model(other), full_check=True)
            read_at(architecture, other)
        except Exception as error:  # whatever the checker says of another opset
            if other == opset:
                raise
            print(f"{name}: not at {other}: {str(error)[:100]!r}", file=sys.stderr)
            return False
        return True

    low = high = opset
    holds(opset)
    while low > OLDEST and holds(low - 1):
        low -= 1
    while high < SUPPORTED and holds(high + 1):
        high += 1
    return range(low, high + 1)


def parts() -> Iterator[str]:
    """What stands in the file for each module and exporter; one that cannot export a module is told."""
    for module in MODULES:
        before = ""
        for suffix, dynamo in (("dynamo", True), ("script", False)):
            name = f"{module.name}-{suffix}"
            try:
                model = exported(module, dynamo)
                written = text(model)
                opset = next(each.version for each in model.opset_import if not each.domain)
                opsets = _opsets(name, written, opset)
            except Exception as error:  # noqa: BLE001  # exporters raise anything
                print(f"{name}: left out, {type(error).__name__}: {str(error)[:200]!r}", file=sys.stderr)
                continue
            if written != before:
                yield f"## {name} {opsets[0]}-{opsets[-1]}\n{written}"
            before = written


def main() -> None:
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    head = (
        f"Exported by torch {torch.__version__.partition('+')[0]}, onnxscript {onnxscript.__version__},"
        f" printed by onnx {onnx.__version__}.\n"
    )
    made = head + "".join(parts())
    if given.check:
        sys.exit(given.out.read_text(encoding="utf-8") != made)
    given.out.write_text(made, encoding="utf-8")
    print(f"{made.count('## ')} graphs, {len(made):,} characters")


if __name__ == "__main__":
    main()
