"""TVMScript for the backend `tvm`: a module as text, and the source of the scripts that show a failure of
one.

Of tvm_relax.py. A worker prints a module (`stop=print`, `stop=read`); the main process only writes
source text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.compilers.tvm_tir import context_options

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

RELAX = """\
def run(model, inputs):
    import tvm
    from tvm import relax
%(packed)s
    module = %(read)s
%(checks)s    params = module["main"].params
    target = tvm.target.Target(%(target)r)%(watcher)s
    with tvm.transform.PassContext(opt_level=%(opt)d%(watched)s), target:
%(passes)s        module = relax.transform.LambdaLift()(module)%(before)s
        built = relax.build(module, target, relax_pipeline=%(pipeline)s, exec_mode=%(exec)r)
    machine = relax.VirtualMachine(built, tvm.cpu())

    def fed(kind, name):
        which = type(kind).__name__
        if which == "TupleType":
            return tuple(fed(field, f"{name}.{place}") for place, field in enumerate(kind.fields))
        if which == "ShapeType":
            return tvm.runtime.ShapeTuple([int(size) for size in inputs[name]])
        return inputs[name].item() if which == "PrimType" else tvm.runtime.tensor(inputs[name])

    def leaves(item):
        if hasattr(item, "numpy"):
            return [item.numpy()]
        if isinstance(item, tvm.runtime.ShapeTuple):
            return [np.array(list(item), np.int64)]
        return [np.asarray(item)] if isinstance(item, (bool, int, float)) else sum(map(leaves, item), [])

    arguments = [fed(param.ty, str(param.name)) for param in params]
%(weights)s    results = leaves(machine["main"](*arguments))
    return {f"output_{place}": value for place, value in enumerate(results)}
"""
TIR = """\
def run(model, inputs):
    import tvm
    import tvm.s_tir
    from tvm import tirx

    module = %(read)s
    function = module if isinstance(module, tirx.PrimFunc) else next(iter(module.functions.values()))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    target = tvm.target.Target(%(target)r)
    with tvm.transform.PassContext(opt_level=%(opt)d, config=%(config)a), target:
        module = tirx.transform.BindTarget(target.with_host(target))(module)
%(passes)s        built = tvm.compile(module, target)
    tensors = [tvm.runtime.tensor(value) for value in inputs.values()]
    built["main"](*tensors)
    return {name: tensor.numpy() for name, tensor in zip(inputs, tensors)}
"""
# The round trips that `check` asks for, as those of tvm_relax_modules.py.
ROUND_TRIP = """\
    if not tvm_ffi.structural_equal(module, %s):
        raise ValueError("%s")
"""
ROUND_TRIPS = {
    "text": (
        "tvm.script.from_source(module.script(show_meta=True))",
        "what TVM prints is read back as another module",
    ),
    "json": (
        "tvm.ir.load_json(tvm.ir.save_json(module))",
        "what TVM saves as JSON is read back as another module",
    ),
}
APPLIED = """\
        module = %s(module)
        relax.analysis.well_formed(module)  # what a pass leaves has to be
"""
# What passes do to the weights of main, which begin at `num_input`; as `packer` of tvm_relax_modules.py.
WEIGHTS = {
    "LiftTransformParams": """\
    first = int(module["main"].attrs["num_input"])
    arguments[first:] = machine["main_transform_params"](tuple(arguments[first:]))
""",
    "BundleModelParams": """\
    first = int(module["main"].attrs["num_input"])
    arguments[first:] = [tuple(arguments[first:])]
""",
}
PACKED = """
    @tvm.register_global_func("opsieve.copy_into", override=True)
    def copy_into(source, target):
        target.copyfrom(source)
"""
# How TVM's printing begins where it has constants.
METADATA = re.compile(r'metadata = tvm\.ir\.load_json\("""([^\x00]*?)"""\)\n')
REMARK = re.compile(r" +# (?:from [\w.]+ import [\w ]+|with T\.sblock\(\"root\"\):)$")
# Of a constant that is written out
MOST_ELEMENTS = 256
LITERAL = frozenset(
    "%s%d" % (kind, bits)
    for kind in ("int", "uint", "float")
    for bits in (8, 16, 32, 64)
    if (kind, bits) != ("float", 8)
) | {"bool"}


def prepare(tvm: Any, request: "Request", module: Any) -> "Run":
    """Print the module, and with `stop=read` find out whether TVM reads that back as the same module.

    Reading TVMScript evaluates it: it is not asked for of a module whose names could be code
    (gen/irs/tvm/program.py, `is_plain`).
    """
    import tvm_ffi

    # Registers the nodes that a function may hold
    from tvm import s_tir  # noqa: F401

    text = with_constants(tvm, str(module.script(show_meta=True)))
    try:
        exact = request.options["stop"] == "read" and bool(
            tvm_ffi.structural_equal(module, tvm.script.from_source(text))
        )
    except Exception:  # noqa: BLE001
        # Whatever TVM raises: then the text is for reading only
        exact = False

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"text": np.frombuffer(text.encode("utf-8"), np.uint8), "exact": np.array(exact)}

    return run


def with_constants(tvm: Any, text: str) -> str:
    """Move constants in TVM's printing to their uses: TVM keeps them in a table of JSON at the top, which is
    unreadable.

    The table stays if something still uses it: a large constant, or one with a value that has no literal.
    """
    found = METADATA.match(text)
    if found is None:
        return without_remarks(text)
    table = tvm.ir.load_json(ast.literal_eval('"""%s"""' % found.group(1)))
    body = text[found.end() :]
    for place, item in enumerate(table.get("ir.GenericConst", ())):
        array = item.value.numpy()
        # NaN and infinities have no literal in TVMScript.
        if array.size <= MOST_ELEMENTS and array.dtype.name in LITERAL and np.isfinite(array).all():
            literal = "R.const(%s, %r)" % (write_list(array.tolist()), array.dtype.name)
            body = body.replace('metadata["ir.GenericConst"][%d]' % place, literal)
    # A constant that is left needs the table, and then the whole of it.
    return without_remarks(body if "metadata[" not in body else text[: found.end()] + body)


def write_list(value: Any) -> str:
    """Return nested lists as TVMScript, those of equal items by a product: `[[1.0] * 4] * 3`."""
    if not isinstance(value, list):
        return repr(value)
    items = [write_list(item) for item in value]
    is_equal = len(items) > 2 and len(set(items)) == 1
    return "[%s] * %d" % (items[0], len(items)) if is_equal else "[%s]" % ", ".join(items)


def without_remarks(text: str) -> str:
    """Return the text without the remarks that TVM writes in it: imports before every function, the block of
    a kernel; those at the top stay.
    """
    lines = [line.rstrip() for line in text.split("\n") if not REMARK.match(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def source(program: Any, text: bool, settings: Mapping[str, Any], keywords: Mapping[str, Any]) -> str:
    """Return the source of `run` for a module with its passes; it is fed TVMScript if
    `text`, else TVM's JSON.

    `settings` are those of a script for an ONNX model; `keywords` says which argument of a Relax pass is
    written behind its colon.
    """
    read = "tvm.script.from_source(model)" if text else "tvm.ir.load_json(model)"
    chosen = program.passes if settings["opt"] else ()
    if program.ir == "relax":
        calls = [relax_call(item, keywords) for item in chosen]
        lines = "".join(APPLIED % call for call in calls)
        trips = [trip for name, trip in ROUND_TRIPS.items() if settings["check"] in (name, "all")]
        checks = "".join(["    import tvm_ffi\n\n"] * bool(trips) + [ROUND_TRIP % trip for trip in trips])
        weights = "".join(text for name, text in WEIGHTS.items() if name in chosen)
        packed = PACKED if b"opsieve.copy_into" in program.data else ""
        return RELAX % dict(settings, read=read, passes=lines, packed=packed, checks=checks, weights=weights)
    # An item with `=` sets an option of the context and is no pass.
    calls = [tir_call(item) for item in chosen if not item.startswith("=")]
    lines = "".join("        module = %s(module)\n" % call for call in calls)
    return TIR % dict(settings, read=read, passes=lines, config=context_options(chosen))


# Where the source of `run` goes on to statements that a failure does not need
ENDS = {
    "pass": r"(?<=has to be)\n        module = relax.transform.LambdaLift|\n    def fed",
    "compile": r"\n    (?:def fed|tensors = )",
    "run": r"\n\n    def fed",
}


def cut_brief(whole: str, program: Any, failed: str) -> tuple[list[str], list[str]]:
    """Return the imports, and the statements that show the failure, of the source of `run`.

    A module that a pass breaks is not compiled. Only a Relax module whose `main` takes tensors and gives one
    has statements that run it.
    """
    kept = re.split(ENDS[failed], whole)[0].split("\n")[1:]
    imports, _, statements = "\n".join(line[4:] for line in kept if "params = module[" not in line).partition(
        "\n\n"
    )
    lines = statements.split("\n")
    if failed == "run":
        kinds = [param.get("ty") for param in program.entry.get("params")] + [program.entry.get("ret_ty")]
        if "first = " in whole or any(getattr(kind, "type", "") != "relax.TensorType" for kind in kinds):
            return [], []
        fed = ", ".join("tvm.runtime.tensor(inputs[%a])" % name for name in program.inputs())
        lines.append('outputs = {"output_0": machine["main"](%s).numpy()}' % fed)
    return imports.split("\n"), lines


def relax_call(item: str, keywords: Mapping[str, Any]) -> str:
    """Return `relax.transform.FuseOps(fuse_opt_level=1)` for `FuseOps:1`; passes of TIR as `tir_call` writes
    them.
    """
    name, _, argument = item.partition(":")
    if "." in name:
        return "tvm.%s" % tir_call(item).replace("tvm.", "")
    keyword, convert = keywords.get(name, ("", str))
    return "relax.transform.%s(%s)" % (name, "%s=%a" % (keyword, convert(argument)) if argument else "")


def tir_call(item: str) -> str:
    """Return `tirx.transform.NarrowDataType(32)` for `tirx.NarrowDataType:32`."""
    name, _, argument = item.partition(":")
    dialect, _, short = name.partition(".")
    written = argument if argument.isdigit() else "%a" % argument if argument else ""
    home = "tvm.s_tir" if dialect == "s_tir" else "tirx"
    return "%s.transform.%s(%s)" % (home, short, written)
