"""TVM's importer, onnxscript's optimizer and onnxslim as backends `seeded-tvm`, `seeded-onnxscript` and
`seeded-onnxslim`, with an option
more: `fault`.

`fault=FILE~CLASS~FUNCTION~KIND~PLACE~NUMBER` changes one expression of the function (`changes.py`) in the
worker before it is asked. CLASS is "" for a function of the module. FILE is one of `FILES`. With `fault=none`
nothing is changed, and the notes of an observation tell which functions ran, as `ran FILE~CLASS~FUNCTION`.
"""

import __future__

import ast
import importlib
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

from triaging.changes import change, sites

from opsieve.backends.compilers.transformers.targets import ONNXSCRIPT, ONNXSLIM
from opsieve.backends.compilers.tvm_relax import BACKEND as TVM

FILES = {
    "importer": "tvm.relax.frontend.onnx.onnx_frontend",
    "relax-manipulate": "tvm.relax.op.manipulate",
    "relax-nn": "tvm.relax.op.nn.nn",
    "relax-create": "tvm.relax.op.create",
    "legal-manipulate": "tvm.relax.transform.legalize_ops.manipulate",
    "legal-nn": "tvm.relax.transform.legalize_ops.nn",
    "legal-index": "tvm.relax.transform.legalize_ops.index",
    "legal-linear": "tvm.relax.transform.legalize_ops.linear_algebra",
    "legal-statistical": "tvm.relax.transform.legalize_ops.statistical",
    "topi-transform": "tvm.topi.transform",
    "topi-reduction": "tvm.topi.reduction",
    "topi-utils": "tvm.topi.utils",
    "topi-pooling": "tvm.topi.nn.pooling",
    "topi-conv": "tvm.topi.nn.conv2d",
    "folding": "onnxscript.optimizer._constant_folding",
    "basic": "onnxscript.rewriter.rules.common._basic_rules",
    "matmul": "onnxscript.rewriter.rules.common._broadcast_to_matmul",
    "slices": "onnxscript.rewriter.rules.common._collapse_slices",
    "clips": "onnxscript.rewriter.rules.common._fuse_relus_clips",
    "minmax": "onnxscript.rewriter.rules.common._min_max_to_clip",
    "batchnorm": "onnxscript.rewriter.rules.common._fuse_batchnorm",
    "gemm": "onnxscript.rewriter.rules.common._matmul_add_to_gemm",
    "noop": "onnxscript.rewriter.rules.common._no_op",
    "expand": "onnxscript.rewriter.rules.common._remove_expand_before_binary_op",
    "reshape": "onnxscript.rewriter.rules.common._materialize_reshape_shape",
    "slim-importer": "onnxslim.third_party.onnx_graphsurgeon.importers.onnx_importer",
    "slim-exporter": "onnxslim.third_party.onnx_graphsurgeon.exporters.onnx_exporter",
    "slim-graph": "onnxslim.third_party.onnx_graphsurgeon.ir.graph",
    "slim-node": "onnxslim.third_party.onnx_graphsurgeon.ir.node",
    "slim-tensor": "onnxslim.third_party.onnx_graphsurgeon.ir.tensor",
    "slim-dead": "onnxslim.core.optimization.dead_node_elimination",
    "slim-equal": "onnxslim.core.optimization.subexpression_elimination",
    "slim-weights": "onnxslim.core.optimization.weight_tying",
    "slim-inference": "onnxslim.core.shape_inference.base",
    "slim-context": "onnxslim.core.shape_inference.context",
    "slim-symbols": "onnxslim.core.shape_inference.utils",
}


def layer_of(file: str) -> str:
    """The compiler that a file is of."""
    return FILES[file].partition(".")[0]


class Seeded:
    """Another backend with the option `fault`."""

    def __init__(self, name: str, inner: Any):
        self.name, self._inner = name, inner
        self.options = {**inner.options, "fault": ()}
        self._done = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def prepare(self, request: Any) -> Any:
        """As the other backend does, with the fault in place."""
        fault = request.options["fault"]
        if fault == "none":
            return self._watched(request)
        if fault and fault != self._done:  # a worker serves one target, so one fault
            plant(fault)
            self._done = fault
        return self._inner.prepare(request)

    def _watched(self, request: Any) -> Any:
        names = {str(Path(str(module.__file__))): file for file, module in _loaded().items()}
        ran: set[str] = set()

        def called(frame: Any, event: str, argument: Any) -> None:
            file = names.get(frame.f_code.co_filename)
            if event == "call" and file:
                owner, _, function = frame.f_code.co_qualname.rpartition(".")
                ran.add(f"ran {file}~{owner}~{function}")

        sys.setprofile(called)
        try:
            return self._inner.prepare(request)
        finally:
            sys.setprofile(None)
            request.notes += sorted(ran)


def _loaded() -> dict[str, Any]:
    return {file: sys.modules[name] for file, name in FILES.items() if name in sys.modules}


def plant(fault: str) -> None:
    """Change the function that a fault names, in this process."""
    file, owner, function, kind, place, number = fault.split("~")
    module = importlib.import_module(FILES[file])
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    holder: Any = (
        next(item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == owner)
        if owner
        else tree
    )
    changed = next(
        item for item in holder.body if isinstance(item, ast.FunctionDef) and item.name == function
    )
    if kind == "die":
        death = ast.parse("__import__('ctypes').string_at(0)").body[0]
        for node in ast.walk(death):
            ast.copy_location(node, changed.body[int(place)])
        changed.body.insert(int(place), death)
    else:
        at = [node for found, node in sites(changed) if found == kind][int(place)]
        change(changed, kind, at, int(number))
    changed.decorator_list = [
        item for item in changed.decorator_list if getattr(item, "id", "") in ("classmethod", "staticmethod")
    ]
    body: list[ast.stmt] = [changed]
    if owner:
        body = [ast.copy_location(ast.ClassDef(owner, [], [], [changed], []), holder)]
    scope = dict(vars(module))
    code = compile(
        ast.fix_missing_locations(ast.Module(body, [])),
        str(module.__file__),
        "exec",
        __future__.annotations.compiler_flag,
    )
    exec(code, scope)  # noqa: S102  the compiler's own source
    new = _plain(vars(scope[owner])[function] if owner else scope[function])
    old = _plain(vars(getattr(module, owner))[function] if owner else getattr(module, function))
    old.__code__, old.__defaults__ = new.__code__, new.__defaults__


def _plain(method: Any) -> FunctionType:
    function: FunctionType = getattr(method, "__func__", method)
    return function


SEEDED_TVM = Seeded("seeded-tvm", TVM)
SEEDED_ONNXSCRIPT = Seeded("seeded-onnxscript", ONNXSCRIPT)
SEEDED_ONNXSLIM = Seeded("seeded-onnxslim", ONNXSLIM)
