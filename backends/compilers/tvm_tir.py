"""TIR functions with a sequence of passes: how the worker of the backend `tvm` compiles and runs them.

A program is TVM's own JSON graph of a PrimFunc, or of a module that holds one; its passes are names of
`gen/irs/tir/passes.py`. With the option `stop=lower` no code is generated. With `opt=0` the sequence is left
out, and so is what optimises in the default lowering. Every buffer is an argument that may be written, so
what stands in them afterwards is the result.
"""

import contextlib
import importlib
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List

import numpy as np

from opsieve.backends.compilers.tvm_relax_preconditions import PassPrecondition

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# The number of timed calls of a function.
CALLS = 1000
# What the context can switch off of the default lowering
UNOPTIMISED = {
    "tirx.disable_vectorize": True,
    "tirx.disable_storage_rewrite": True,
    "tirx.disable_cse_tir": True,
}
# Left out of the default lowering for the unoptimised build; what is not here is needed, or only makes the
# code legal.
OPTIMISING = [
    "s_tir.LoopPartition",
    "s_tir.HoistIfThenElse",
    "s_tir.RenormalizeSplitPattern",
    "tirx.RemoveNoOp",
]

# What a pass or the code generator wants of a function and says so, or what its place in TVM's own pipeline
# shows: asked for otherwise it refuses, which is no bug. (message, why)
PRECONDITIONS = (
    (
        r"must be called after MakePackedAPI",
        "storage of bfloat16 and float8 is made legal behind MakePackedAPI",
    ),
    (
        r"Please call pass ConvertBlocksToOpaque before|only works on opaque blocks",
        "blocks have to be opaque",
    ),
    (
        r"\(!(?:block_)?op->init\.has_value\(\)\) is false",
        "LowerInitBlock comes before what compacts buffers or lowers blocks",
    ),
    (r"VectorizeLoop before LiftStorageAlloc", "StorageRewrite comes behind VectorizeLoop"),
    (
        r"used before its definition \(AllocBuffer/DeclBuffer|occurred before its declaration",
        "blocks allocate what a pass for flat code looks for: LowerOpaqueBlock comes before",
    ),
    (r"Only the last index of a buffer access may be a vector", "VectorizeLoop comes behind FlattenBuffer"),
    (
        r"num_physical_dimensions|is allocated with \d+ physical dimensions",
        "StorageRewrite comes behind FlattenBuffer",
    ),
    (
        r"[Ss]oftware pipeline|pipeline_body_seq|pipeline_stages\.size",
        "an annotation of a software pipeline that does not fit its loop",
    ),
    (r"Cannot unroll non-constant loop", "a loop of kind `unrolled` has a constant extent"),
    (r"[Dd]ivide by zero", "the function divides by a constant zero"),
    (
        r"Unknown device id in current IR|thread_extent|Thread-related attr",
        "threads of a device in code for a CPU",
    ),
    (r"unknown intrinsic ", "there is no code of this intrinsic for a CPU"),
    (
        r"The buffer (?:parameter )?\w+ (?:allocated in the function )?has dtype",
        "ForceNarrowIndexToInt32 wants no buffers of int64",
    ),
    (
        r"Failed to vectorize loop with extent",
        "a vectorised loop has a constant extent where there are no scalable vectors",
    ),
    (r"All loops that are bound to `", "loops over one axis of threads have one extent"),
    (r"\(in_double_buffer_scope_\) is false", "memory that is double-buffered is written in its scope alone"),
    (r"Do not have a default for ir\.TensorRegion", "VectorizeLoop comes behind what lowers blocks"),
    (r"does not support this loop kind|Loop kind", "a kind of loop that this pass does not take"),
    (r"exceeds the maximum|[Ss]hared memory", "memory of a device"),
)


@contextlib.contextmanager
def preconditions() -> Iterator[None]:
    """Raise PassPrecondition, with TVM's message, for an error that states one of `PRECONDITIONS`."""
    try:
        yield
    except Exception as error:
        if any(re.search(pattern, str(error)[:1000]) for pattern, _ in PRECONDITIONS):
            raise PassPrecondition(str(error)) from error
        raise


def prepare(request: "Request", found: Any, passes: Callable[..., Any]) -> "Run":
    """Read the function, and under `passes` apply its own, lower it, and unless it stops there generate
    code.
    """
    import tvm
    import tvm.s_tir
    from tvm import tirx

    function = plain(tvm, found)
    names = arguments(function)
    module = tvm.IRModule({"main": function})

    request.stage("compile")
    optimised, only_lower = request.options["opt"] != "0", request.options["stop"] == "lower"
    sequence = list(request.passes) if optimised else []
    config = context_options(sequence) if optimised else UNOPTIMISED
    watcher = [effects(tvm, request.effects)] if request.effects is not None else []
    disabled = [] if optimised else OPTIMISING
    # A packed function has been lowered already.
    packed = any(name.startswith("tirx.MakePackedAPI") for name in sequence)
    with passes(tvm, request, watcher, config=config, disabled_pass=disabled) as target:
        module = tirx.transform.BindTarget(target.with_host(target))(module)
        for item in sequence:
            if not item.startswith("="):
                module = make(tvm, item)(module)
        if packed and not only_lower:
            raise NotImplementedError(
                "a function that its passes packed is not supported as a program that runs"
            )
        lowered, host, _ = tirx.get_tir_pipeline("s_tir")
        if not packed:
            module = lowered(module)
        if only_lower:
            if not packed:
                host()(module)
            return lambda inputs: {}
        # tirx.build itself is a function
        building = importlib.import_module("tvm.tirx.build")
        hosted, devices = building.split_host_device_mods(module)
        # Functions were split off for a GPU by a thread binding of the program.
        if devices:
            raise NotImplementedError("code for a device is not supported by this target")
        built = building.tir_to_runtime(host()(hosted), {}, target)
    return runner(tvm, built, names)


def runner(tvm: Any, built: Any, names: List[str]) -> "Run":
    """Make what runs the function of a built module. It times itself: calls take microseconds, less than
    feeding does, so the time of many is reported.
    """
    main = built["main"]

    def fed(values: Dict[str, Any]) -> List[Any]:
        return [tvm.runtime.tensor(np.ascontiguousarray(values[name])) for name in names]

    def run(values: Dict[str, Any]) -> Dict[str, Any]:
        tensors = fed(values)
        main(*tensors)
        return {name: tensor.numpy() for name, tensor in zip(names, tensors)}

    def time_run(values: Dict[str, Any]) -> float:
        # TVM's own timer: calling from Python takes longer than such a kernel.
        found = built.time_evaluator("main", tvm.cpu(), number=10, repeat=3, min_repeat_ms=3)(*fed(values))
        return CALLS * float(found.median)

    run.timed = time_run  # type: ignore[attr-defined]
    return run


def plain(tvm: Any, found: Any) -> Any:
    """Return the function, or the `main` or first function of a module, without its name."""
    from tvm import tirx

    if isinstance(found, tvm.IRModule):
        functions = {str(key.name_hint): value for key, value in found.functions.items()}
        found = functions.get("main") or next(iter(functions.values()))
    # Without the attributes `global_symbol`, which the module gives it anew.
    return tirx.PrimFunc(list(found.params), found.body, found.ret_type, attrs=found.attrs)


def find_pass(tvm: Any, name: str) -> Any:
    """Find what makes the pass of a name, of Relax or (`tirx.`, `s_tir.`) of TIR; else return `None`."""
    dialect, _, short = name.rpartition(".")
    home = getattr(tvm, dialect or "relax", None) if dialect in ("", "tirx", "s_tir") else None
    return getattr(home.transform, short, None) if home is not None and short[:1].isupper() else None


def make(tvm: Any, item: str) -> Any:
    """Make a pass of TIR by its name. Raises ValueError if this release lacks it."""
    name, _, argument = item.partition(":")
    found = find_pass(tvm, name) if "." in name else None
    if found is None:
        raise ValueError("tvm has no pass %r" % name[:80])
    if not argument:
        return found()
    return found(int(argument)) if argument.isdigit() else found(argument)


def context_options(sequence: Iterable[str]) -> Dict[str, Any]:
    """Return the options that a sequence sets (`=GROUP.FIELD:VALUE`), as a context takes them."""
    found: Dict[str, Any] = {}
    for item in sequence:
        if item.startswith("="):
            name, _, value = item[1:].rpartition(":")
            group, _, field = name.rpartition(".")
            found.setdefault(group, {})[field] = int(value)
    return found


def arguments(function: Any) -> List[str]:
    """Return the names of the arguments. Raises NotImplementedError for one that is not a buffer."""
    if any("BufferType" not in type(param.ty).__name__ for param in function.params):
        raise NotImplementedError("an argument that is no buffer is not supported")
    return [str(param.name) for param in function.params]


def effects(tvm: Any, into: List[str]) -> Any:
    """Make an instrument that records which pass changed what: the pass, and the kinds of nodes that it made
    or removed.
    """
    from tvm_ffi import structural_equal

    before: List[Any] = []

    @tvm.instrument.pass_instrument  # type: ignore[misc, unused-ignore]
    class Effects:
        def run_before_pass(self, module: Any, info: Any) -> None:
            before.append(module)

        def run_after_pass(self, module: Any, info: Any) -> None:
            # A stack, since passes run inside of passes.
            was, name = before.pop(), str(info.name)
            if structural_equal(was, module):
                return
            now, then = kinds(module), kinds(was)
            signed = [("+", now - then), ("-", then - now)]
            into.append(name)
            into.extend("%s %s%s" % (name, sign, kind) for sign, some in signed for kind in sorted(some))

    return Effects()


def kinds(module: Any) -> "set[str]":
    """Return the kinds of nodes in the functions of a module."""
    import tvm_ffi

    found: "set[str]" = set()

    def visit(node: Any) -> None:
        found.add(type(node).__name__)

    for function in module.functions.values():
        body = getattr(function, "body", None)
        if body is not None:
            tvm_ffi.structural_walk(body, visit, order="pre")
    return found
