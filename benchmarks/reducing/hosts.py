"""Real bugs of released compilers inside of networks of well-known shapes: what `reduce` leaves of them,
beside Polygraphy as its users run it.

A bug is a small model from the samples or from a folder of cases, reduced alone first: that is the known
minimum. Each of its inputs x is fed, and arrives as max(min(x, v), x) with v a number that the network
computes, so that it depends on the network and keeps its value; what it gives is added to a value of the
network.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx
from benchmarks.reducing.architectures import HOSTS, Architecture, Network, heavy
from benchmarks.reducing.bugs import Bug, bugs
from benchmarks.reducing.peers import Peer, Question
from benchmarks.reducing.scaled import Cost, measured
from benchmarks.reducing.users import as_a_user
from onnx import TensorProto

from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.data.data_set import write_folder
from opsieve.gen.irs.onnx.model_file import load_program
from opsieve.gen.irs.onnx.program import onnx_program

# host -> bug, and what its message says (WRONG for a wrong result), for the check of Polygraphy's user
PLANTED = {
    "ResNet": ("pad-maxpool-wrong-value", "WRONG"),
    "transformer": ("pad-avgpool-wrong-value", "WRONG"),
    "LSTM": ("c01_reluclip_f64_resnet", "relu_clip_fusion"),
    "UNet": ("pad-conv-weight-load-error", ""),
    "If, Loop, Scan": ("pad-maxpool-wrong-value", "WRONG"),
    "functions": ("onnxscript-clip-bounds-wrong-value", "WRONG"),
    "QDQ": ("pad-avgpool-wrong-value", "WRONG"),
    "heavy": ("c01_reluclip_f64_resnet", "relu_clip_fusion"),
    "heavy, wrong values": ("pad-maxpool-wrong-value", "WRONG"),
}
_FLOATS = frozenset([TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
_FILE = 1 << 20  # bytes of weights from which on they lie in a file beside the model


@dataclass(frozen=True, slots=True)
class HostResult:
    """One host: its bug, the nodes of the bug alone, what we took, and what Polygraphy came to (None where it
    was not asked).
    """

    host: str
    bug: str
    nodes: int
    minimum: int
    cost: Cost
    peer: Peer | None


def reduce_hosts(
    folder: Path | None, polygraphy: Path | None, only: str, most: int, weights: int
) -> Iterator[HostResult]:
    """Every host whose name has `only` in it; `folder` has cases with a manifest, models above `most` MiB are
    not given to Polygraphy. The heavy ones have `weights` MiB of external data.
    """
    wanted = {host: bug for host, bug in PLANTED.items() if only in host}
    with Workers() as workers:
        found = {bug.name: bug for bug in bugs(workers, folder, {name for name, _ in wanted.values()})}
    for host, (name, sign) in wanted.items():
        if name not in found:
            print(f"{host}: left out, {name} is among the --cases", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="opsieve-host-") as scratch:
            make = partial(heavy, mebibytes=weights) if HOSTS[host] is heavy else HOSTS[host]
            yield _one(Path(scratch), host, make, found[name], sign, polygraphy, most)


def _one(
    place: Path, host: str, make: Architecture, bug: Bug, sign: str, polygraphy: Path | None, most: int
) -> HostResult:
    model, net = make(lambda network, value: planted(network, value, bug))
    onnx.checker.check_model(model, full_check=model.ByteSize() < _FILE)
    path = place / "model.onnx"
    large = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    onnx.save_model(
        model, path, save_as_external_data=large > _FILE, location="weights.bin", size_threshold=1024
    )
    del model
    program = load_program(path)
    (place / "test_data_set_0").mkdir()
    write_folder(place / "test_data_set_0", net.feeds, program.inputs(), "input")
    target = str(bug.target)
    cost = measured(path, target, place / "out")
    peer = None
    if polygraphy is not None and large >> 20 <= most and bug.target.name == "onnxruntime":
        with Workers() as workers:
            question = Question(Case(program, net.feeds), bug.target, workers)
            peer = as_a_user(question, path, polygraphy, {"signature": sign}, bug.target)
    return HostResult(host, bug.name, program.size, len(bug.operators), cost, peer)


def planted(net: Network, value: str, bug: Bug) -> str:
    """The bug's model beside a value of the network, which it depends on and changes."""
    graph = onnx_program(bug.case.program, "this").proto.graph
    names = {"": ""}
    for info in graph.input:
        kind = info.type.tensor_type.elem_type
        names[info.name] = net.feed(bug.case.inputs[info.name])  # type: ignore[arg-type]
        if kind in _FLOATS:
            number = net.op("Cast", net.op("ReduceMax", value, keepdims=0), to=kind)
            lower = net.op("Min", names[info.name], number)
            names[info.name] = net.op("Max", lower, names[info.name])
            net.known.append(onnx.ValueInfoProto(name=names[info.name], type=info.type))
    for tensor in graph.initializer:
        names[tensor.name] = f"bug_{tensor.name}"
        net.constants.append(onnx.TensorProto.FromString(tensor.SerializeToString()))
        net.constants[-1].name = names[tensor.name]
    for node in graph.node:
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        names |= {name: f"bug_{name}" for name in node.output if name}
        copy.input[:] = [names[name] for name in node.input]
        copy.output[:] = [names[name] for name in node.output]
        copy.name = f"/bug_{len(net.nodes)}"
        net.nodes.append(copy)
    for info in graph.output:
        number = net.op("Cast", names[info.name], to=TensorProto.FLOAT)
        value = net.op("Add", value, net.op("ReduceMax", number, keepdims=0))
    return value


def report(folder: Path | None, polygraphy: Path | None, only: str, most: int, weights: int) -> None:
    """A line of a table for each host."""
    print(
        "| host (nodes) | bug (known minimum) | nodes left | checks | CPU, s | clock, s | memory, MiB (main"
        " process) | Polygraphy |"
    )
    for result in reduce_hosts(folder, polygraphy, only, most, weights):
        cost, peer = result.cost, result.peer
        other = "not asked"
        if peer is not None:
            end = f"died: {peer.why}" if peer.nodes is None else f"{peer.nodes} nodes, same {peer.same}"
            other = f"{end}; {peer.checks} checks, {peer.cpu:.1f} s CPU, {peer.seconds:.1f} s"
        print(
            f"| {result.host} ({result.nodes}) | {result.bug} ({result.minimum}) | {cost.left} |"
            f" {cost.facts.get('node_checks')} +"
            f" {(cost.facts.get('checks') or 0) - (cost.facts.get('node_checks') or 0)} | {cost.cpu:.1f} |"
            f" {cost.seconds:.1f} | {cost.memory >> 20} ({cost.main_memory >> 20}) | {other} |",
            flush=True,
        )
