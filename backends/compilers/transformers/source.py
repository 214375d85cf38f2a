"""Source for exported scripts about transformers of ONNX graphs: transform, check, run on onnxruntime
unoptimised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from opsieve.backends.compilers.ort import BRIEF_RUN, LEVELS, brief_session, carriers, run_source
from opsieve.backends.compilers.transformers.ir_passes import USUAL

_CHECKS = """\
def complaint(model):
    try:
        onnx.checker.check_model(model)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def declared(model):
    tensors = {item.name: item.type.tensor_type for item in model.graph.output}
    return {
        name: [dim.dim_value for dim in tensor.shape.dim]
        for name, tensor in tensors.items()
        if tensor.HasField("shape")
    }


def run(model, inputs):
    import onnxruntime as ort
"""
# Cut out of the text, so that the two cannot differ.
_CHECKER = _CHECKS[_CHECKS.index("    try:") : _CHECKS.index('    return ""')]
_UNCHECKED = "    # onnxruntime makes operators that onnx's checker does not know\n"
# Their results have operators of com.microsoft, which onnx's checker rejects.
_OF_ONNXRUNTIME = ("onnxruntime-transformers", "onnxruntime-saved")
# What the house's own run of a transformer asks of its result, and in the same order.
_RUN = """\
    before = onnx.load_model_from_string(model)
    if complaint(after) and not complaint(before):
        raise AssertionError("onnx.checker refuses the transformed model: " + complaint(after))
    shapes = declared(after)
    for name, was in declared(before).items():
        now = shapes.get(name, was)
        if len(now) != len(was) or any(a and b and a != b for a, b in zip(was, now)):
            raise AssertionError(
                "the transformed model declares %r as %s where the original has %s" % (name, now, was)
            )
    transformed = after.SerializeToString()
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        ort.InferenceSession(model, plain, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ImportError("onnxruntime refuses the original model: %s" % error)
    taken = {item.name for item in after.graph.input}
    inputs = {name: value for name, value in inputs.items() if name in taken}
"""


def source(name: str, options: Mapping[str, str], dtypes: Collection[str]) -> str:
    """Return the source of `run` for the transformer called `name`; "" if only opsieve can skip the rule, or
    compare values with their declarations.
    """
    # Skipping a rule of onnxscript patches its classes, which is too long for a script.
    if name not in _TRANSFORMS or (name == "onnxscript" and options.get("skip")):
        return ""
    off: Lines = ([], ["after = onnx.load_model_from_string(model)"])
    imports, lines = _TRANSFORMS[name](options) if options["optimise"] == "on" else off
    # Imports inside `run`: an ImportError then means "not installed" and not a failure.
    lines = [*dict.fromkeys([*imports, "import onnxruntime as ort"]), "", *lines]
    text = "".join(f"    {line}\n" if line else "\n" for line in lines)
    checks = _CHECKS.replace(_CHECKER, _UNCHECKED) if name in _OF_ONNXRUNTIME else _CHECKS
    return (
        carriers(dtypes)
        + checks
        + text
        + _RUN
        + run_source("transformed", "inputs", "ORT_DISABLE_ALL", [], dtypes)
    )


def brief(name: str, options: Mapping[str, str], dtypes: Collection[str], failed: str) -> "Lines":
    """Return the statements of a short script for the transformer called `name`; two empty lists if only
    `source` shows the failure.
    """
    shown = failed != "run" if name in _NARROWING else bool(source(name, options, dtypes))
    if not shown or options["optimise"] != "on" or carriers(dtypes):
        return [], []
    imports, lines = _TRANSFORMS[name](options) if name in _TRANSFORMS else _write_narrowing(name, options)
    if failed in _SHOWS:
        return imports, [*lines, *_SHOWS[failed]]
    run, checks = ("model", _SIZES) if failed == "sizes" else ("after.SerializeToString()", [])
    lines = [*lines, *brief_session(run, "ORT_DISABLE_ALL", []), *BRIEF_RUN, *checks]
    return list(dict.fromkeys([*imports, "import onnxruntime as ort"])), lines


# Lines of imports, and lines that turn `model` into `after`.
Lines = tuple[list[str], list[str]]
# What shows a failure of the tool itself, or an invalid result
_SHOWS: Mapping[str, list[str]] = {
    "compile": [],
    "checker": ["onnx.checker.check_model(after, full_check=True)"],
    "declared": [
        "was = onnx.load_model_from_string(model).graph.output",
        "assert list(after.graph.output) == list(was), after.graph.output",
    ],
    "inputs": [
        "was = [item.name for item in onnx.load_model_from_string(model).graph.input]",
        "assert all(item.name in was for item in after.graph.input), after.graph.input",
    ],
}
# Inferred sizes are compared with those of the values.
_SIZES = [
    "for item in after.graph.output:",
    "    dims, found = item.type.tensor_type.shape.dim, outputs[item.name].shape",
    "    sizes = [dim.dim_value if dim.HasField('dim_value') else None for dim in dims]",
    "    fits = len(sizes) == len(found) and all(a in (None, b) for a, b in zip(sizes, found))",
    "    assert fits or not item.type.tensor_type.HasField('shape'), (sizes, found)",
]
_YES = {"merge": "on", "initializers": "all", "channels": "each"}
_READER = """\
class Reader(quantization.CalibrationDataReader):
    feeds = iter([inputs])

    def get_next(self):
        return next(self.feeds, None)

"""
# Tools that give up precision or only declare. A script shows that they raise, or that their result is not
# valid; wrong values show only once the precision is restored, which is too long for a script.
_NARROWING = {
    "onnxruntime-symbolic-shapes": """\
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
before = onnx.load_model_from_string(model)
after = SymbolicShapeInference.infer_shapes(before, auto_merge={merge})
""",
    "onnxruntime-float16": """\
from onnxruntime.transformers import float16
before = onnx.load_model_from_string(model)
after = float16.convert_float_to_float16(before, keep_io_types=True, force_fp16_initializers={initializers})
""",
    "onnxconverter-float16": """\
from onnxconverter_common import float16
before = onnx.load_model_from_string(model)
after = float16.convert_float_to_float16(before, keep_io_types=True)
""",
    "onnxruntime-quantization": """\
from onnxruntime import quantization
{reader}before = onnx.load_model_from_string(model)
quantization.quantize_{mode}(before, "after.onnx", {fed}per_channel={channels})
after = onnx.load("after.onnx")
""",
}


def _write_narrowing(name: str, options: Mapping[str, str]) -> Lines:
    """Write the import and the call of a tool with the arguments that the options mean."""
    static = options.get("mode") == "static"
    lines = _NARROWING[name].format(
        mode=options.get("mode"),
        reader=_READER * static,
        fed="Reader(), " if static else "op_types_to_quantize=['MatMul', 'Conv', 'Gather'], ",
        **{key: options.get(key) == yes for key, yes in _YES.items()},
    )
    return lines.splitlines()[:1], lines.splitlines()[1:]


def _onnxoptimizer(options: Mapping[str, str]) -> Lines:
    passes, lines = f"{_split(options['passes']) or None!a}", []
    if options.get("skip"):
        # onnxoptimizer has no option that skips, so that the script takes the passes out of the list.
        every = passes if options["passes"] else "onnxoptimizer.get_fuse_and_elimination_passes()"
        lines = [f"passes = [name for name in {every} if name not in {_split(options['skip'])!a}]"]
        passes = "passes"
    call = (
        f"onnxoptimizer.optimize(onnx.load_model_from_string(model), {passes}, {options['fixpoint'] == 'on'})"
    )
    return ["import onnxoptimizer"], [*lines, f"after = {call}"]


def _onnxsim(options: Mapping[str, str]) -> Lines:
    words = ["onnx.load_model_from_string(model)"]
    words += [f"skipped_optimizers={_split(options['skip'])!a}"] * bool(options["skip"])
    # A list times a truth value adds the word or nothing.
    words += ["perform_optimization=False"] * (options["passes"] == "off")
    words += ["skip_constant_folding=True"] * (options["folding"] == "off")
    words += ["skip_shape_inference=True"] * (options["inference"] == "off")
    return ["import onnxsim"], [f"after = onnxsim.simplify({', '.join(words)})[0]"]


def _onnxscript(options: Mapping[str, str]) -> Lines:
    words = ["onnx_shape_inference=False"] * (options["inference"] == "off")
    model = "after = onnx.load_model_from_string(model)"
    if options["part"] == "rewrite":
        return ["from onnxscript import rewriter"], [model, "after = rewriter.rewrite(after)"]
    if options["part"] == "fold":
        return ["from onnxscript import optimizer"], [
            model,
            f"optimizer.fold_constants({', '.join(['after', *words])})",
        ]
    words += ["inline=False"] * (options["inline"] == "off")
    return ["from onnxscript import optimizer"], [
        model,
        f"after = optimizer.optimize({', '.join(['after', *words])})",
    ]


def _onnxslim(options: Mapping[str, str]) -> Lines:
    words = ["onnx.load_model_from_string(model)"]
    words += ["no_shape_infer=True"] * (options["inference"] == "off")
    imports, lines = ["import onnxslim"], []
    if options["skip"]:
        imports.append("from onnxslim.core import OptimizationSettings")
        lines = ["steps = list(OptimizationSettings.keys())", f"skipped = {_split(options['skip'])!a}"]
        words.append("skip_optimizations=[name for name in skipped if name in steps]")
        words.append("skip_fusion_patterns=[name for name in skipped if name not in steps]")
    return imports, [*lines, f"after = onnxslim.slim({', '.join(words)})"]


def _version_converter(options: Mapping[str, str]) -> Lines:
    return ["from onnx import version_converter"], [
        "after = version_converter.convert_version(onnx.load_model_from_string(model),"
        f" {int(options['opset'])})"
    ]


def _onnxscript_converter(options: Mapping[str, str]) -> Lines:
    return ["import onnx_ir", "from onnxscript import version_converter"], [
        "held = onnx_ir.from_proto(onnx.load_model_from_string(model))",
        f"version_converter.convert_version(held, {int(options['opset'])})",
        "after = onnx_ir.to_proto(held)",
    ]


def _ir_passes(options: Mapping[str, str]) -> Lines:
    chosen = [name for name in _split(options["passes"]) or USUAL if name not in _split(options["skip"])]
    return ["import onnx_ir", "from onnx_ir.passes import common"], [
        "held = onnx_ir.from_proto(onnx.load_model_from_string(model))",
        f"for name in {chosen!a}:",
        '    held = getattr(common, name + "Pass")()(held).model',
        "after = onnx_ir.to_proto(held)",
    ]


def _graphsurgeon(options: Mapping[str, str]) -> Lines:
    return ["import onnx_graphsurgeon"], [
        "graph = onnx_graphsurgeon.import_onnx(onnx.load_model_from_string(model))",
        *["graph.fold_constants()"] * (options["fold"] == "on"),
        *["graph.cleanup().toposort()"] * (options["clean"] == "on"),
        "after = onnx_graphsurgeon.export_onnx(graph)",
    ]


def _inliner(options: Mapping[str, str]) -> Lines:
    imports, read = ["from onnx import inliner"], "after = onnx.load_model_from_string(model)"
    call = f"inline_local_functions(after, convert_version={options['convert'] == 'on'})"
    if options["functions"] == "schema":
        imports = ["from onnx import inliner, shape_inference"]
        read = "after = shape_inference.infer_shapes(onnx.load_model_from_string(model))"
        call = "inline_selected_functions(after, [], exclude=True, inline_schema_functions=True)"
    return imports, [read, f"after = inliner.{call}"]


def _extractor(options: Mapping[str, str]) -> Lines:
    return ["from onnx.utils import Extractor"], [
        "whole = onnx.load_model_from_string(model)",
        "given = {tensor.name for tensor in whole.graph.initializer}",
        "wanted = [item.name for item in whole.graph.input if item.name not in given]",
        "after = Extractor(whole).extract_model(wanted, [item.name for item in whole.graph.output])",
    ]


def _compose(options: Mapping[str, str]) -> Lines:
    words = "".join(
        f", rename_{kind}={options['names'] in ('all', kind)}"
        for kind in ("nodes", "edges", "initializers", "value_infos", "functions")
    )
    return ["from onnx import compose"], [
        "after = compose.add_prefix(onnx.load_model_from_string(model), 'part/', rename_inputs=False,"
        f" rename_outputs=False{words})"
    ]


def _ort_fusion(options: Mapping[str, str]) -> Lines:
    imports = ["from onnxruntime.transformers import optimizer", "from fusion_options import FusionOptions"]
    lines = [f"fusions = FusionOptions({options['model']!a})"]
    lines += [f"setattr(fusions, {'enable_' + name!a}, False)" for name in _split(options["skip"])]
    words = (
        f"model_type={options['model']!a}, opt_level={int(options['level'])}, optimization_options=fusions"
    )
    return imports, [
        *lines,
        f"after = optimizer.optimize_model(onnx.load_model_from_string(model), {words}).model",
    ]


def _ort_saved(options: Mapping[str, str]) -> Lines:
    disabled = _split(options["disabled_optimizers"])
    extra = f", disabled_optimizers={disabled!a}" if disabled else ""
    return ["import os", "import tempfile", "import onnxruntime as ort"], [
        "saving = ort.SessionOptions()",
        f"saving.graph_optimization_level = ort.GraphOptimizationLevel.{LEVELS[options['level']]}",
        "with tempfile.TemporaryDirectory() as folder:",
        '    saving.optimized_model_filepath = os.path.join(folder, "saved.onnx")',
        f'    ort.InferenceSession(model, saving, providers=["CPUExecutionProvider"]{extra})',
        "    after = onnx.load(saving.optimized_model_filepath)",
    ]


# In each function the options become the arguments that a user of the tool would write.
_TRANSFORMS = {
    "onnxruntime-transformers": _ort_fusion,
    "onnxruntime-saved": _ort_saved,
    "onnx-version-converter": _version_converter,
    "onnxscript-version-converter": _onnxscript_converter,
    "onnx-inliner": _inliner,
    "onnx-ir": _ir_passes,
    "onnx-graphsurgeon": _graphsurgeon,
    "onnx-extractor": _extractor,
    "onnx-compose": _compose,
    "onnxoptimizer": _onnxoptimizer,
    "onnxsim": _onnxsim,
    "onnxscript": _onnxscript,
    "onnxslim": _onnxslim,
}


def _split(text: str) -> list[str]:
    return [name for name in text.split("+") if name]
