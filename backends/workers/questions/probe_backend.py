"""Examine a backend on this machine: whether it is installed, its version, the newest IR version and opset it
accepts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from opsieve.backends.registry import ORACLE, ResolvedTarget, names, plugin, resolve
from opsieve.backends.target import BadTarget
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.errors import format_install_command
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program

# ONNX Runtime guarantees nothing for models of older opsets.
OLDEST_OPSET = 7
OLDEST_IR = 3


@dataclass(frozen=True, slots=True)
class Examination:
    """One backend: `newest_ir` and `newest_opset` are measured, 0 if every one is refused; `problem` explains
    its absence.
    """

    name: str
    version: str
    problem: str
    newest_ir: int
    newest_opset: int
    options: dict[str, tuple[str, ...]]
    lacks: tuple[str, ...]
    install: str


def examine_all(workers: Workers) -> Iterator[Examination]:
    """Examine every named backend, each in a worker; import errors are part of the result."""
    for name in list_examined():
        yield _examine_backend(name, workers)


def list_examined() -> tuple[str, ...]:
    """List the backends to examine, without commands and users' oracles, which need an argument."""
    return tuple(name for name in names() if name != ORACLE and not _is_command(name))


def _is_command(name: str) -> bool:
    try:
        return plugin(name).facts.runs_command
    except BadTarget:
        return False


def _examine_backend(name: str, workers: Workers) -> Examination:
    try:
        facts = plugin(name).facts
    except BadTarget as error:
        return Examination(name, "", str(error), 0, 0, {}, (), "")
    # Shown next to an absent backend, as its next step.
    install = format_install_command(f"opsieve[{facts.extra}]") if facts.extra else ""
    options = dict(facts.options)
    try:
        version = workers.version(resolve(name))
    except Unavailable as error:
        return Examination(name, "", str(error), 0, 0, options, facts.lacks, install)
    newest_opset = onnx.defs.onnx_opset_version()
    opsets = range(OLDEST_OPSET, newest_opset + 1)
    versions = range(OLDEST_IR, onnx.IR_VERSION + 1)
    return Examination(
        name,
        version,
        "",
        _find_newest(workers, resolve(name), {ir: _make_model(OLDEST_OPSET, ir) for ir in versions}),
        _find_newest(workers, resolve(name), {opset: _make_model(opset, None) for opset in opsets}),
        options,
        facts.lacks,
        install,
    )


def _find_newest(workers: Workers, target: ResolvedTarget, programs: dict[int, Program]) -> int:
    """Find the largest key whose program the target runs."""
    inputs = {"x": np.zeros(2, np.float32)}
    # The newest is mostly near the end
    for number in sorted(programs, reverse=True):
        (answer,) = workers.observe_many(target, [Test(programs[number], inputs, as_is=True)])
        if answer.outcome == "ok":
            return number
    return 0


def _make_model(opset: int, ir: int | None) -> Program:
    """Make y = Relu(x) for two floats, with the lowest IR version of the opset unless one is given."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", value[:1], value[1:])
    imports = [helper.make_opsetid("", opset)]
    lowest = helper.find_min_ir_version_for(imports)
    return OnnxProgram(
        helper.make_model(graph, opset_imports=imports, ir_version=ir or lowest).SerializeToString()
    )
