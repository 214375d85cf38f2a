"""Twelve hosts of real bugs that no reduction was tuned on: control flow, functions in functions, sequences,
QDQ, float16, open sizes, external data, IR version 3; bugs of six tools. What `reduce` leaves and takes,
beside Polygraphy in both modes on the same predicate.

`{NAME:FROM:TO:COUNT}` stands for a chain of so many plain nodes, whose names begin with NAME; a bug of
onnxruntime stands where COUNT names one.
"""

import math
import re
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import onnx
from benchmarks.reducing.peers import Peer, Question, polygraphy
from benchmarks.reducing.scaled import Cost, measured
from onnx.parser import parse_model

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import open_case
from opsieve.gen.errors import BadInput
from opsieve.gen.model.structure import all_nodes

_PLAIN = ("Softsign", "Abs", "Neg", "Sigmoid", "Relu", "Exp")
_BUGS = {
    "divided": "a = Dropout ({0})  d = Div (one, {0})  {1} = Mul (d, a)",
    "cast": "a = Cast <to = 1> ({0})  d = Div (one, {0})  {1} = Mul (d, a)",
}


@dataclass(frozen=True, slots=True)
class FreshHost:
    """A host, the target that fails on it, the nodes of the smallest model that is known to fail so."""

    name: str
    target: str
    minimum: int
    text: str
    opset: int = 18
    ir: int = 9
    external: bool = False


HOSTS = (
    FreshHost("If in Loop", "onnxruntime", 3, """g (float[2,3] x, bool c) => (float[2,3] y)
        <bool t = {1}, int64 n = {2}, float one = {1}> { {p:x:k:20}
        m = Loop (n, t, k) <body = b (int64 i, bool g, float[2,3] s) => (bool g, float[2,3] r) { {s:s:z:8}
            r = If (c) <then_branch = f () => (float[2,3] v) { {b:z:e:divided} {v:e:v:6} },
                        else_branch = h () => (float[2,3] w) { w = Neg (z) }> }> {q:m:y:20} }"""),
    FreshHost("Scan", "onnxruntime", 3, """g (float[4,3] x) => (float[4,3] y) <float one = {1}> { {p:x:k:30}
        m = Scan <num_scan_inputs = 1, body = b (float[3] s) => (float[3] r) { {s:s:z:12} {b:z:e:cast} {v:e:r:5} }> (k)
        {q:m:y:30} }"""),
    FreshHost("functions in functions", "onnxruntime", 3, """g (float[2,3] x) => (float[2,3] y) { {p:x:k:25}
        l = local.outer (k)  m = local.outer (l)  {q:m:y:25} }
        <domain: "local", opset_import: ["" : 18, "local" : 1]> outer (u) => (o) { {s:u:w:5} o = local.inner (w) }
        <domain: "local", opset_import: ["" : 18]> inner (f) => (h) {
            one = Constant <value_float = 1.0> ()  {t:f:z:3} {b:z:e:divided} {v:e:h:3} }"""),
    FreshHost("sequences", "onnxoptimizer", 1, """g (float[2,3] x) => (seq(float[2,3]) s, float[2,3] y)
        <int64 at = {1}> { {p:x:k:30}  r = SequenceConstruct (x, k)  e = SequenceAt (r, at)  {q:e:y:20}
        s = SequenceInsert (r, y) }"""),
    FreshHost("QDQ", "onnxsim", 2, """g (float[1,1,3,3] x) => (float[1,1,4,5] y) <int64[8] n = {0,0,1,2,0,0,1,1},
        float f = {0.05}, int8 o = {0}> { {p:x:k:20}  a = QuantizeLinear (k, f, o)  b = DequantizeLinear (a, f, o)
        {q:b:l:20}  c = QuantizeLinear (l, f, o)  d = DequantizeLinear (c, f, o)  e = Pad (d, n)
        g = AveragePool <kernel_shape = [2, 2]> (e)  {r:g:y:20} }"""),
    FreshHost("float16", "onnxruntime-float16", 1, """g (float[2,3] x) => (float[2,3] y) {
        {p:x:z:40} c = Celu (z) {q:c:y:40} }"""),
    FreshHost("open sizes", "onnxruntime", 2, """g (float[N,1,1,M] x, float[1,1,1,1] w) => (float[N,1,1,L] y)
        <int64[8] pads = {0,0,0,0,0,0,0,1}> { {p:x:k:40}  {r:w:v:5}  wider = Pad (v, pads)  c = Conv (k, wider)
        {q:c:y:40} }""", 13, 7),
    FreshHost("external data", "onnxruntime", 6, """g (float[1024] x, float[1024,1024] u, float[1024] w) => (float[1024] y)
        <float two = {2}, float eps = {0.5}> { k0 = MatMul (x, u)  {p:k0:k:30}  q = Pow (k, two)
        m = ReduceMean <axes = [-1], keepdims = 1> (q)  e = Add (m, eps)  r = Sqrt (e)  n = Div (k, r)
        s = Mul (w, n)  {t:s:y:30} }""", 17, 8, external=True),
    FreshHost("IR version 3", "onnxruntime", 3, """g (float[2,3] x, float one) => (float[2,3] y)
        <float one = {1}> { {p:x:z:40} {b:z:e:divided} {q:e:y:40} }""", 9, 3),
    FreshHost("nested If", "onnx-ir:IdentityElimination", 4, """g (bool c, float[2,3] x) => (float[2,3] y) {
        {p:x:k:30}  y = If (c) <then_branch = t () => (float[2,3] a) { {r:k:l:5}
            a = If (c) <then_branch = u () => (float[2,3] e) { e = Identity (l) },
                        else_branch = v () => (float[2,3] f) { f = Abs (l) }> },
        else_branch = w () => (float[2,3] b) { b = Neg (x) }> }"""),
    FreshHost("wrong value", "onnxscript", 2, """g (float[2,3] x) => (float[2,3] y)
        <float low = {2}, float high = {-3}> { {p:x:k:40}  b = Clip (k, low, high)  e = Relu (b)  {q:e:y:20} }"""),
    FreshHost("integers", "tvm", 2, """g (int64[2] i, float[2,3] x) => (float[2,3] y)
        <int64 depth = {3}, float[2] v = {0.5, 1.5}, float f = {2}> { j = Abs (i)  {p:x:k:30}
        m = OneHot <axis = -1> (j, depth, v)  n = Mul (m, f)  o = Add (n, k)  {q:o:y:20} }"""),
)  # fmt: skip


def write_host(host: FreshHost, place: Path) -> tuple[Path, int]:
    """Write a host as a model; return its path and how many nodes it has."""
    head = f'<ir_version: {host.ir}, opset_import: ["" : {host.opset}, "local" : 1]>'
    model = parse_model(head + re.sub(r"\{(\w+):(\w+):(\w+):(\w+)\}", _chain, host.text))
    if "local." not in host.text:
        del model.opset_import[1]
    for tensor in [info for info in model.graph.input if host.external and info.name != "x"]:
        sizes = [dim.dim_value for dim in tensor.type.tensor_type.shape.dim]
        data = bytes(4 * math.prod(sizes))
        model.graph.input.remove(tensor)
        model.graph.initializer.append(onnx.helper.make_tensor(tensor.name, 1, sizes, data, raw=True))
    onnx.save_model(
        model,
        place / "model.onnx",
        save_as_external_data=host.external,
        location="weights",
        size_threshold=1024,
    )
    inner = sum(len(function.node) for function in model.functions)
    return place / "model.onnx", sum(1 for _ in all_nodes(model.graph.node)) + inner


def _chain(found: re.Match[str]) -> str:
    name, read, last = found[1], found[2], found[3]
    if found[4] in _BUGS:
        return _BUGS[found[4]].format(read, last)
    count = int(found[4])
    names = [read, *(f"{name}_{place}" for place in range(count - 1)), last]
    return " ".join(
        f"{names[place + 1]} = {_PLAIN[place % len(_PLAIN)]} ({names[place]})" for place in range(count)
    )


def bound(nodes: int, needed: int) -> float:
    """Return how many yes-or-no answers tell which of the nodes are needed."""
    return math.log2(math.comb(nodes, needed)) + needed + 1


def report(only: str, python: Path | None) -> None:
    """Print a row for each host, and how far the checks for nodes lie from the bound."""
    print(
        "| host (nodes) | target | known minimum | left | checks, for nodes + others | CPU, s | Polygraphy |"
    )
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for host in HOSTS:
        if only in host.name:
            with tempfile.TemporaryDirectory(prefix="opsieve-fresh-") as folder:
                path, nodes = write_host(host, Path(folder))
                cost = measured(path, host.target, Path(folder) / "out")
                node_checks = cost.facts.get("node_checks") or 0
                ratios.append(node_checks / bound(nodes, host.minimum))
                print(
                    f"| {host.name} ({nodes}) | {host.target} | {host.minimum} | {_left(cost)} | {node_checks} +"
                    f" {(cost.facts.get('checks') or 0) - node_checks} | {cost.cpu:.1f} |"
                    f" {'' if python is None else _peers(host, path, python)} |",
                    flush=True,
                )
    print(f"checks for nodes relative to the bound: median {statistics.median(ratios):.2f}")


def _left(cost: Cost) -> str:
    if cost.facts.get("nodes_after") is None:
        return "does not fail"
    return f"{cost.left}{'' if cost.facts.get('minimal') else ', not minimal'}"


def _peers(host: FreshHost, path: Path, python: Path) -> str:
    with Workers() as workers:
        try:
            question = Question(open_case(path), resolve(host.target), workers)
        except BadInput as error:
            return str(error)[:80]
        return "; ".join(
            _told(mode, polygraphy(question, path, python, mode)) for mode in ("bisect", "linear")
        )


def _told(mode: str, peer: Peer) -> str:
    end = f"died ({peer.why[:60]})" if peer.nodes is None else f"{peer.nodes} nodes"
    return f"{mode}: {end}, {peer.checks} checks, {peer.cpu:.1f} s CPU"
