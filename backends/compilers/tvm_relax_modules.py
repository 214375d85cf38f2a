"""The part of the backend `tvm` that takes Relax modules: TVM's JSON, the passes that belong to the test,
main's inputs by name.

Of tvm_relax.py; with the same rules: Python 3.8, the standard library, numpy and
tvm. The module is loaded (`tvm.ir.load_json`), checked (`relax.analysis.well_formed`), put through its
passes, and built; local functions are lifted first, which no stock pipeline does. The option `check` asks for
the round trips, whose failure is an exception of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.compilers import tvm_tir
from opsieve.backends.compilers.tvm_relax_preconditions import PassPrecondition, find_precondition

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# The keyword that the argument of a pass is for, and its type (`NAME:VALUE` in a sequence;
# gen/irs/relax/passes.py draws them).
KEYWORDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "ConvertToDataflow": ("min_size", int),
    "EliminateCommonSubexpr": ("call_only", lambda text: text == "True"),
    "FuseOps": ("fuse_opt_level", int),
    "ToMixedPrecision": ("out_dtype", str),
    "TopologicalSort": ("order", str),
}

# The function in which LiftTransformParams computes the weights of main
LIFTED = "main_transform_params"


class RoundTripError(Exception):
    """A module that is not the same after it was printed and parsed, or written and read; or that cannot be
    read back.
    """


class NotWellFormed(Exception):
    """A module that TVM's own checker refuses; the message is TVM's."""


def prepare(
    tvm: Any, request: "Request", module: Any, passes: Callable[..., Any], build: Callable[..., Any]
) -> "Run":
    """Check and build the module of a request; `build`, under `passes`, lowers the result of its own passes
    to an executable.

    The unoptimised build (`opt=0`) is that of the module without its passes.
    """
    from tvm import relax

    provide(tvm)
    check(tvm, module, "the module")
    # Before the passes: what they leave is not the user's program.
    round_trips(tvm, module, request.options.get("check", "off"))
    # For a module this only proves that it is one.
    if request.options.get("stop") == "lower":
        return lambda values: {}
    original = module
    params = [(getattr(var, "ty", None), str(var.name)) for var in module["main"].params]
    request.stage("compile")
    with passes(tvm, request) as target:
        for item in request.passes if request.options["opt"] != "0" else ():
            module = apply(tvm, module, item)
        # Local functions cannot be lowered, and no stock pipeline lifts them.
        module = relax.transform.LambdaLift()(module)
        executable = build(tvm, request, module, target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    pack = packer(original, module, machine)

    def run(values: dict[str, Any]) -> dict[str, Any]:
        result = machine["main"](*pack([fed(tvm, kind, name, values) for kind, name in params]))
        return {"output_%d" % place: read(item) for place, item in enumerate(leaves(tvm, result))}

    return run


def packer(before: Any, after: Any, machine: Any) -> Callable[[list[Any]], list[Any]]:
    """Return the function that makes the arguments of `main` after the passes from those before them.

    The weights are the arguments from `num_input` on. LiftTransformParams computes what main takes instead by
    a function of its own; BundleModelParams makes one tuple of them.

    Raises:
        PassPrecondition: The passes change what main takes in another way.
    """
    old, new = ([type(var.ty).__name__ for var in module["main"].params] for module in (before, after))
    first = int((before["main"].attrs or {}).get("num_input", len(old)))
    names, made = ({str(item.name_hint) for item in module.functions} for module in (before, after))
    lifted = LIFTED in made - names
    bundled = not lifted and old != new and new[first:] == ["TupleType"]
    # Other passes change what that function takes, too.
    weights = (
        [field for var in after[LIFTED].params for field in getattr(var.ty, "fields", ())] if lifted else []
    )
    if (
        old[:first] != new[:first]
        or not (lifted or bundled or old == new)
        or (lifted and [type(field).__name__ for field in weights] != old[first:])
    ):
        raise PassPrecondition(
            "the passes change what main takes, which is not supported: its inputs are those of the program"
        )

    def pack(given: list[Any]) -> list[Any]:
        weights = list(machine[LIFTED](tuple(given[first:]))) if lifted else given[first:]
        return [*given[:first], *([tuple(weights)] if bundled else weights)]

    return pack


def provide(tvm: Any) -> None:
    """Register the packed function that generated modules call."""
    import tvm_ffi

    def copy_into(source: Any, target: Any) -> None:
        target.copyfrom(source)

    tvm_ffi.register_global_func("opsieve.copy_into", copy_into, override=True)


def check(tvm: Any, module: Any, what: str) -> None:
    """Raise NotWellFormed, with TVM's reason, for a module that is not well-formed."""
    try:
        tvm.relax.analysis.well_formed(module)
    except Exception as error:  # noqa: BLE001
        # Whatever TVM raises is its reason
        raise NotWellFormed("%s is not well-formed: %s" % (what, error)) from None


def make(tvm: Any, item: str) -> Any:
    """Make the pass `NAME` or `NAME:ARGUMENT`. Raises ValueError if this release lacks it."""
    name, _, argument = item.partition(":")
    found = tvm_tir.find_pass(tvm, name)
    if found is None or "." in name:
        return tvm_tir.make(tvm, item)
    keyword, convert = KEYWORDS.get(name, ("", str))
    if argument and not keyword:
        raise ValueError("the pass %s takes no argument here" % name[:80])
    return found(**({keyword: convert(argument)} if argument else {}))


def apply(tvm: Any, module: Any, item: str) -> Any:
    """Apply one pass, `NAME` or `NAME:ARGUMENT`, and check that its result is well-formed."""
    name, _, argument = item.partition(":")
    try:
        module = make(tvm, item)(module)
    except Exception as error:
        reason = find_precondition(name, str(error))
        if reason is None:
            raise
        # The end: TVM's messages begin with a stack.
        said = " ".join(str(error).split())[-160:]
        raise PassPrecondition("%s does not support this module, %s: %s" % (name, reason, said)) from error
    check(tvm, module, "what %s leaves" % item)
    return module


def round_trips(tvm: Any, module: Any, asked: str) -> None:
    """Raise RoundTripError if the module changes by TVM's printer and parser (`text`) or by its JSON
    (`json`).
    """
    import tvm_ffi

    def compare_round_trip(how: str, back: Callable[[], Any]) -> None:
        try:
            other = back()
        except Exception as error:  # noqa: BLE001
            # Whatever TVM raises is the finding
            # TVM's parser shows the line behind its sentence; other errors say what is wrong at their end.
            sentence, shown, _ = str(error).partition("-->")
            words = " ".join(sentence.split())
            reason = words[:300] if shown else words[-300:]
            raise RoundTripError(
                "%s cannot be read back: %s: %s" % (how, type(error).__name__, reason)
            ) from error
        if not tvm_ffi.structural_equal(module, other):
            raise RoundTripError("%s is read back as another module" % how)

    if asked in ("text", "all"):
        compare_round_trip("what TVM prints", lambda: tvm.script.from_source(module.script(show_meta=True)))
    if asked in ("json", "all"):
        compare_round_trip("what TVM saves as JSON", lambda: tvm.ir.load_json(tvm.ir.save_json(module)))


def fed(tvm: Any, kind: Any, name: str, values: Mapping[str, Any]) -> Any:
    """Return an argument of main: a tensor, a shape (int64 of one dimension), a scalar (rank 0) or a tuple
    (field by field).
    """
    which = type(kind).__name__
    if which == "TupleType":
        return tuple(
            fed(tvm, field, "%s.%d" % (name, place), values) for place, field in enumerate(kind.fields)
        )
    if which == "ShapeType":
        return tvm.runtime.ShapeTuple([int(size) for size in values[name]])
    if which == "PrimType":
        return np.asarray(values[name]).item()
    return tvm.runtime.tensor(np.asarray(values[name]))


def leaves(tvm: Any, result: Any) -> Iterator[Any]:
    """Yield the values in nested tuples, in order."""
    if hasattr(result, "numpy") or isinstance(result, (bool, int, float, str, tvm.runtime.ShapeTuple)):
        yield result
    else:
        for item in result:
            yield from leaves(tvm, item)


def read(item: Any) -> Any:
    """Convert a value of the virtual machine to an array."""
    if hasattr(item, "numpy"):
        return item.numpy()
    if isinstance(item, (bool, int, float)):
        return np.asarray(item)
    return np.array([int(size) for size in item], np.int64)
