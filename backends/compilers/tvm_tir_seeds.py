"""Modules for a campaign to begin with, made in a worker of `tvm`: what its importer makes of an ONNX model,
the functions of TIR that become of that, and functions of topi.

Each is an output of the "program", the bytes of a module in TVM's JSON; a function of TIR is its `main`.
"""

import functools
from typing import TYPE_CHECKING, Any, Callable, Dict, List

import numpy as np

if TYPE_CHECKING:
    from opsieve.backends.protocol import Run

# Not a multiple of the vector width, so that vectorised loops have a tail.
SIDE = 6


def lower_module(module: Any, target: Any) -> "Run":
    """Return the TIR functions to which a Relax module is legalised, and those that fusion makes of them."""
    import tvm
    from tvm import relax, tirx

    with target:
        # Sorts and scans have no legalisation: the default pipelines dispatch them first.
        module = relax.backend.DispatchSortScan()(relax.transform.FoldConstant()(module))
        module = relax.transform.LegalizeOps()(module)
        fused = relax.transform.FuseTIR()(
            relax.transform.FuseOps()(relax.transform.AnnotateTIROpPattern()(module))
        )
    functions = [
        function
        # Both: the kernels of single operators, and the larger ones that fusing makes.
        for stage in (module, fused)
        for function in stage.functions.values()
        if isinstance(function, tirx.PrimFunc)
    ]
    return make_module_outputs(tvm, [alone(tvm, function) for function in functions])


def topi() -> "Run":
    """Make functions of topi over small tensors (reductions, windows, sorting, layouts and the like), and
    those of TVM's own tests.
    """
    import tvm
    from tvm import te, topi

    def tensor(name: str, *shape: int, dtype: str = "float32") -> Any:
        return te.placeholder(shape, name=name, dtype=dtype)

    square, other = tensor("A", SIDE, SIDE), tensor("B", SIDE, SIDE)
    image = tensor("A", 1, 4, SIDE, SIDE)
    ways: List[Callable[[], List[Any]]] = [
        lambda: [square, topi.sum(square, axis=1)],
        lambda: [square, topi.argmax(square, axis=0)],
        lambda: [square, topi.nn.softmax(square, axis=1)],
        lambda: [square, topi.nn.log_softmax(square, axis=1)],
        lambda: [square, other, topi.matmul(square, other)],
        lambda: [square, other, topi.maximum(square, other)],
        lambda: [square, topi.transpose(square)],
        lambda: [square, topi.reshape(square, (SIDE * SIDE,))],
        lambda: [square, topi.strided_slice(square, [0, 1], [4, 5], [1, 2])],
        lambda: [square, topi.flip(square, axis=1)],
        lambda: [square, other, topi.concatenate([square, other], axis=1)],
        lambda: [square, topi.cast(square, "int32")],
        lambda: [square, topi.tile(square, (2, 1))],
        lambda: [square, topi.repeat(square, 2, axis=0)],
        lambda: [square, topi.nn.pad(square, [1, 0], [0, 2])],
        lambda: [square, topi.cumsum(square, axis=1)],
        lambda: [square, topi.clip(square, -1.0, 1.0)],
        lambda: [square, topi.where(topi.greater(square, 0.0), square, topi.negative(square))],
        lambda: [image, topi.nn.pool2d(image, [2, 2], [1, 1], [1, 1], [0, 0, 0, 0], "max")],
        lambda: [image, topi.nn.adaptive_pool(image, [2, 2], "avg")],
        lambda: [image, topi.nn.upsampling(image, 2, 2)],
        lambda: [image, topi.nn.depth_to_space(image, 2)],
        lambda: [image, topi.nn.space_to_depth(image, 2)],
    ]
    functions = []
    for way in [*ways, *list_workloads()]:
        try:
            functions.append(te.create_prim_func(list(way())))
        except Exception:  # noqa: BLE001, PERF203
            # A function that this release makes otherwise is one seed less
            continue
    return make_module_outputs(tvm, [alone(tvm, function) for function in functions])


def list_workloads() -> List[Callable[[], Any]]:
    """List the kernels on which TVM tests its tuner (convolutions, products, norms), in small sizes."""
    try:
        from tvm.s_tir.meta_schedule.testing import te_workload
    except ImportError:
        # Another release has them elsewhere
        return []
    return [
        # The tuner's sizes are far beyond the steps that the reference takes.
        functools.partial(make, *[min(size, SIDE) if isinstance(size, int) else size for size in sizes])
        for make, sizes in te_workload.CONFIGS.values()
    ]


def alone(tvm: Any, function: Any) -> Any:
    """Return a module with the function as its `main`."""
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def make_module_outputs(tvm: Any, modules: List[Any]) -> "Run":
    """Return the modules as outputs."""
    texts = [tvm.ir.save_json(module) for module in modules]

    def run(inputs: Dict[str, Any]) -> Dict[str, Any]:
        return {
            "module_%d" % at: np.frombuffer(text.encode("utf-8"), np.uint8) for at, text in enumerate(texts)
        }

    return run
