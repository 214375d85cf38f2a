"""TVM with a fault of our own, for tests and benchmarks: a backend that both sides load, as plug-ins are.

`fault=KIND PATTERN`, written `planted-tvm:fault=value/relax.exp`. What is planted runs as one pass more, on
the module as it was given; the unoptimised build (`opt=0`) leaves it out, as it leaves out the passes that
belong to a program.

    PATTERN     `relax.exp` an operator; `relax.exp>relax.add` an operator that reads another's result;
    `FoldConstant>FuseOps` two passes of
                the program's sequence, in this order, whatever stands between them. Of a TIR function
                `tirx.exp` an intrinsic, `prim.Max` a kind of node, `tirx.exp>prim.Max` one that has another
                as an argument, `pass:tirx.UnrollLoop>s_tir.LoopPartition` two passes
    KIND        `value` one more than it should be, `error` an exception, `crash` SIGSEGV
"""

import os
import signal
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, ClassVar

from opsieve.backends.compilers import tvm_relax, tvm_relax_modules, tvm_tir

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

NAME = "planted-tvm"


class PlantedFault(Exception):
    """A fault that shows as an exception of the compiler."""


class PlantedTvm(tvm_relax.TvmRelax):
    """The backend `tvm` with a fault."""

    name = NAME
    options: ClassVar[dict[str, tuple[str, ...]]] = {**tvm_relax.TvmRelax.options, "fault": ()}
    irs = ("relax", "tir")

    def from_relax(self, request: "Request") -> "Run":
        """A Relax module, its faulty pass first."""
        import tvm

        def build(tvm: Any, request: Any, module: Any, target: Any) -> Any:
            if operators and request.options["opt"] != "0":
                module = planted(module, kind, pattern)
            return tvm_relax.build(tvm, request, module, target)

        kind, _, pattern = request.options["fault"].partition("/")
        operators = pattern.startswith("relax.")
        run: Run = tvm_relax_modules.prepare(
            tvm, request, tvm_relax.module_of(tvm, request), tvm_relax.passes, build
        )
        if operators or request.options["opt"] == "0" or not in_order(pattern.split(">"), request.passes):
            return run
        if kind != "value":
            fail(kind, pattern)
        return lambda values: {name: value + value.dtype.type(1) for name, value in run(values).items()}

    def from_tir(self, request: "Request") -> "Run":
        """A TIR function that goes wrong when it holds the pattern, or has the guilty passes."""
        import tvm

        kind, _, pattern = request.options["fault"].partition("/")
        function = tvm_tir.plain(tvm, tvm_relax.module_of(tvm, request))
        by_passes, names = pattern.startswith("pass:"), pattern.removeprefix("pass:").split(">")
        shows = in_order(names, request.passes) if by_passes else holds(function, names)
        run: Run = super().from_tir(request)
        if not shows or request.options["opt"] == "0":
            return run
        if kind != "value":
            fail(kind, pattern)
        return lambda values: {name: wrong(value) for name, value in run(values).items()}


def holds(function: Any, names: list[str]) -> bool:
    """Whether a TIR function has a node of that name, or one with another below it as an argument."""
    import tvm_ffi

    found: list[bool] = []

    def visit(node: Any) -> None:
        if named_node(node) == names[-1]:
            inner = [
                getattr(node, name, None)
                for name in ("a", "b", "value", "condition", "true_value", "false_value")
            ]
            inner += list(getattr(node, "args", ()))
            found.append(
                len(names) == 1 or any(named_node(item) == names[0] for item in inner if item is not None)
            )

    tvm_ffi.structural_walk(function.body, visit, order="pre")
    return any(found)


def named_node(node: Any) -> str:
    """`tirx.exp` of a call, `prim.Max` or `tirx.For` of any other node, as gen/irs/tir names them."""
    op = getattr(node, "op", None)
    if op is not None and hasattr(op, "name"):
        return str(op.name)
    key = getattr(type(node), "__tvm_ffi_type_info__", None)
    return str(key.type_key) if key is not None else type(node).__name__


def wrong(value: Any) -> Any:
    """One more than it should be."""
    return ~value if value.dtype == bool else value + value.dtype.type(1)


def in_order(guilty: list[str], passes: Any) -> bool:
    """Whether the sequence has the guilty passes in this order."""
    names = iter([item.partition(":")[0] for item in passes])
    return all(name in names for name in guilty)


def fail(kind: str, pattern: str) -> None:
    """The fault that is no wrong value."""
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    raise PlantedFault(f"the planted fault at {pattern}")


def planted(module: Any, kind: str, pattern: str) -> Any:
    """The module in which every place that the pattern fits is wrong; it fails itself where the kind is no
    `value`.
    """
    import tvm
    from tvm import relax

    first, _, second = pattern.partition(">")
    wanted = second or first

    @relax.expr_functor.mutator
    class Wrong(relax.PyExprMutator):  # type: ignore[misc, name-defined, unused-ignore]
        def visit_call_(self, call: Any) -> Any:
            made = super().visit_call_(call)
            if named(call) != wanted:
                return made
            if second and not any(named(self.lookup_binding(arg)) == first for arg in variables(call.args)):
                return made
            if kind != "value":
                fail(kind, pattern)
            dtype = str(getattr(made.ty, "dtype", ""))
            if dtype == "bool":
                return relax.op.logical_not(made)
            return relax.op.add(self.builder_.normalize(made), relax.const(1, dtype)) if dtype else made

    def variables(args: Any) -> Iterator[Any]:
        for arg in args:
            if isinstance(arg, relax.Tuple):
                yield from variables(arg.fields)
            elif isinstance(arg, tvm.ir.Var | relax.DataflowVar):
                yield arg

    def named(expr: Any) -> str:
        op = getattr(expr, "op", None)
        return str(op.name) if isinstance(op, tvm.ir.Op) else ""

    mutator = Wrong(module)
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()


BACKEND = PlantedTvm()


ENTRY = EntryPoint(NAME, "planted_tvm:BACKEND", "opsieve.backends")  # what the registry finds backends by
