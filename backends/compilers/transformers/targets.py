"""Transformers of ONNX graphs as compilers: onnxruntime runs the transformed model with its own optimiser
off.

This module has four: onnxoptimizer (https://github.com/onnx/optimizer), onnxsim
(https://github.com/onnxsim/onnxsim), onnxscript's optimizer (https://microsoft.github.io/onnxscript/) and
onnxslim (https://github.com/inisis/OnnxSlim). Those in the wheels of onnx and onnxruntime have modules of
their own.

The original decides what may be expected: a failure counts against the transformer only if onnxruntime
accepts the original (and so does the checker, if the checker refuses the result). The original is run after a
failure only, so that a passing test costs no additional run. If onnxruntime fails on the original, that
failure is the answer, as for a baseline: this separates a kernel that onnxruntime lacks anyway from one for
an operator that the transformer introduced, and bugs of onnxruntime from bugs of the transformer.
"""

import importlib
import re
from typing import TYPE_CHECKING, Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from opsieve.backends.compilers.ort import BACKEND as ORT
from opsieve.backends.compilers.transformers import hosts, narrowing, pass_options, result_checks
from opsieve.backends.compilers.worker_common import (
    CLASSES,
    Adapter,
    NotRun,
    drop_fed_defaults,
    meaning_of,
    meaning_of_host,
    version_of,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

Options = Mapping[str, str]
SWITCH = ("on", "off")
# Passes are reported as `transformed_passes.py` says; `graph`: the transformed model is all that is given.
TRACE = (
    "off",
    "on",
    "graph",
)
MEMORY = r"bad_alloc|[Ff]ailed to allocate|bad allocation|[Cc]annot allocate memory|Unable to allocate"
# onnxoptimizer's word for constants of float8 and of four bits; onnxsim, which calls its passes, says it too.
NO_TYPE = (("unsupported", r"no supported data type: \d+"),)
# A release that is too old for one of the options.
NO_SWITCH = (
    r"unexpected keyword argument"
    r" '(?:perform_optimization|skipped_optimizers|skip_constant_folding|skip_shape_inference"
    r"|onnx_shape_inference|inline|keep_io_types|no_shape_infer|skip_optimizations|skip_fusion_patterns)'"
)


class Transformed(Adapter):
    """A backend that transforms a model and runs the result on onnxruntime unoptimised.

    `transform` maps a ModelProto, which it may alter, and the options to a ModelProto; `imports` are the
    modules that needs; `libraries` are the requirements of the package beside numpy and onnxruntime.
    `package` is given where the distribution is called otherwise than the target, `extra` then where it does
    not come with opsieve. `patterns` are meanings of messages, as `meaning_of` takes them. With `may_lack`,
    an operator of the result without a kernel is onnxruntime's lack, since the user asked for these
    operators; there is then no baseline to show a lack of the result as a fault. `checked`: onnx's checker
    must accept the result; not what onnxruntime makes for itself, with operators of its own in ONNX's domain
    (SimplifiedLayerNormalization). `examine` raises BrokenModel if outputs differ from the result's
    declarations. `older` is the first release that needs nothing more, and what those before it need.
    `restore` gives a model that was narrowed, after the original, its precision back: that
    one's values are the answer (narrowing.py). `fed`: `transform` is given the inputs too.
    """

    runs_on = "onnxruntime:level=disable_all"
    unchanged: Mapping[str, str] = {"optimise": "off"}
    version_of_distribution = True
    # An operator that a transformer introduced and onnxruntime lacks is a BrokenModel.
    states_lacks = True

    def __init__(
        self,
        name: str,
        options: Mapping[str, Tuple[str, ...]],
        main_option: str,
        libraries: Tuple[str, ...],
        imports: Tuple[str, ...],
        transform: Callable[..., Any],
        environment: Optional[Mapping[str, str]] = None,
        package: str = "",
        extra: str = "",
        patterns: Sequence[Tuple[str, str]] = (),
        may_lack: bool = False,
        checked: bool = True,
        milliseconds: float = 10.0,
        examine: Optional[Callable[[Any, Mapping[str, Any]], None]] = None,
        restore: Optional[Callable[[Any, Any], Any]] = None,
        fed: bool = False,
        older: Tuple[str, ...] = ("",),
    ) -> None:
        self.name, self.package, self.extra = name, package or name, name if not package else extra
        self.module = self.package.replace("-", "_")
        # Onnxsim calls its passes
        self.family = "onnxoptimizer" if name == "onnxsim" else package or name
        self.options: Mapping[str, Tuple[str, ...]] = dict([("optimise", SWITCH)], **options)
        self.main_option = main_option
        # All options, so that a model has one baseline whatever part of the transformer is asked.
        defaults = {option: legal[0] if legal else "" for option, legal in options.items()}
        self.baseline: Mapping[str, str] = {} if may_lack else dict(defaults, optimise="off")
        self.environment: Mapping[str, str] = dict(
            ORT.environment, OPENBLAS_NUM_THREADS="1", **(environment or {})
        )
        self.lacks: Tuple[str, ...] = ("what onnxruntime lacks, which runs the result",)
        # The newest onnxruntime runs the result, whatever the release.
        self.requirements = ("onnxruntime", *libraries)
        self.imports, self.transform = imports, transform
        self.patterns, self.may_lack, self.checked, self.examine = patterns, may_lack, checked, examine
        self.restore, self.fed, self.older = restore, fed, older
        self.shows_graph: Mapping[str, str] = {"trace": "graph"} if "trace" in options else {}
        self.milliseconds: Mapping[str, float] = {"onnx": milliseconds}

    def companions(self, release: str) -> Tuple[str, ...]:
        """Return what an old release needs, such as an onnx that has what newer ones lack."""
        ages = [[int(number) for number in re.findall(r"\d+", text)] for text in (release, self.older[0])]
        return self.older[1:] if ages[0] < ages[1] else ()

    def load(self) -> str:
        """Import onnx, onnxruntime and the package."""
        import onnx.checker
        import onnx.shape_inference  # noqa: F401
        import onnxruntime  # noqa: F401

        for name in self.imports:
            importlib.import_module(name)
        return version_of(self.module)

    def prepare(self, request: "Request") -> "Run":
        """Transform, check and load the model; BrokenModel when the result is worse than the original."""
        import onnx

        model = onnx.load_model_from_string(request.model)
        if request.options["optimise"] == "off":
            unchanged: "Run" = hosts.prepare_original(request, request.stage)
            return unchanged
        # Taken now: a tool may reorder the outputs.
        names = [item.name for item in model.graph.output]
        drop_fed_defaults(model.graph, request)
        before = onnx.ModelProto()
        # `transform` may alter the model in place.
        before.CopyFrom(model)
        request.stage("compile")
        sound, run_result, examine = False, None, self.examine
        try:
            result = self.transform(model, request.options, *([request.inputs] if self.fed else []))
            if request.options.get("trace") == "graph":
                graph: "Run" = hosts.return_model(result)
                return graph
            result_checks.check_result(before, result, request, self.checked)
            sound = True
            loaded = hosts.load_result(result.SerializeToString(), request.inputs, self.may_lack)
            if self.restore is not None:
                restored = self.restore(before, result).SerializeToString()
                loaded = narrowing.run_both(
                    loaded, hosts.load_result(restored, request.inputs, self.may_lack)
                )
            run_result = loaded
        except Exception:
            try:
                hosts.prepare_original(request, request.stage)
            except NotRun as lack:
                # onnxruntime refuses the original as well.
                hosts.evaluate_by_reference(request.model, before, lack)(request.inputs)
                if not sound:
                    request.notes.append(
                        "onnxruntime does not take the original, the reference does: %s" % lack
                    )
                else:
                    asked = result if self.restore is None else self.restore(before, result)
                    run_result = hosts.evaluate_by_reference(asked.SerializeToString(), before, lack)
                    # The reference is looser about types on the way than a compiler
                    examine = None
                    request.notes.append(
                        "run by the reference, for onnxruntime does not take the original: %s" % lack
                    )
            if not sound or run_result is None:
                raise
        # A tool may drop an unused input; onnxruntime refuses values for an input that it does not know.
        taken = {item.name for item in result.graph.input}

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            try:
                results = run_result({name: value for name, value in values.items() if name in taken})
            except Exception as error:
                # Raises NotRun if the original fails as well: then the tool is not at fault.
                hosts.prepare_original(request, hosts.ignore_stage)(values)
                raise hosts.explain_refusal(error, "run", self.may_lack) from error
            if examine is not None:
                examine(result, results)
            return {name: results[name] for name in names}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify: a lack is one that onnxruntime has with the original, or NotImplementedError; all else is
        an error.
        """
        kind = exception.rpartition(".")[2]
        if kind == "NotRun":
            return meaning_of_host(ORT.classify(stage, exception, message))
        patterns = [*([("environment", NO_SWITCH)] if kind == "TypeError" else []), *self.patterns]
        # A model that cannot be parsed is the user's at first, and later the tool's own.
        unread = "rejected" if stage == "import" else "error"
        classes = {**CLASSES, "UnknownName": "environment", "DecodeError": unread}
        return meaning_of(exception, message[:4000], patterns, classes, MEMORY)

    def script(self, options: Options, dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script."""
        from opsieve.backends.compilers.transformers.source import source

        return source(self.name, options, dtypes)

    def brief(
        self, options: Options, dtypes: Collection[str], program: Any, failed: str
    ) -> Tuple[List[str], List[str]]:
        """Return the statements of a short script: the transformation, and a check that shows that the result
        is wrong.
        """
        from opsieve.backends.compilers.transformers.source import brief

        return brief(self.name, options, dtypes, failed)


def run_onnxoptimizer(model: Any, options: Options) -> Any:
    """Run the default passes of onnxoptimizer, or the named ones, without those to skip."""
    import onnxoptimizer

    passes = pass_options.onnxoptimizer_passes(onnxoptimizer, options["passes"], options["skip"])
    if options["trace"] == "on":
        pass_options.trace_onnxoptimizer(onnxoptimizer, model, passes)
    return onnxoptimizer.optimize(model, passes, options["fixpoint"] == "on")


def run_onnxsim(model: Any, options: Options) -> Any:
    """Simplify without its own check, which would run the model."""
    import onnxsim

    skipped = pass_options.known_to_onnxsim(pass_options.split_names(options["skip"]))
    chosen: Dict[str, Any] = {"skipped_optimizers": skipped} if skipped else {}
    if options["trace"] == "on":
        pass_options.report_passes(
            "ran", [name for name in pass_options.onnxsim_passes() if name not in skipped]
        )
    if options["passes"] == "off":
        chosen["perform_optimization"] = False
    if options["folding"] == "off":
        chosen["skip_constant_folding"] = True
    if options["inference"] == "off":
        chosen["skip_shape_inference"] = True
    return onnxsim.simplify(model, **chosen)[0]


def run_onnxscript(model: Any, options: Options) -> Any:
    """Run the whole optimizer, or one of its two separate parts, without the passes and rules to skip."""
    from onnxscript import optimizer, rewriter

    chosen: Dict[str, Any] = {} if options["inference"] == "on" else {"onnx_shape_inference": False}
    with pass_options.onnxscript_passes(options["skip"], options["trace"] == "on"):
        if options["part"] == "rewrite":
            return rewriter.rewrite(model)
        if options["part"] == "fold":
            optimizer.fold_constants(model, **chosen)
            return model
        return optimizer.optimize(model, **chosen, **({} if options["inline"] == "on" else {"inline": False}))


def run_onnxslim(model: Any, options: Options) -> Any:
    """Slim a model without the optimisations and fusion patterns that `options` skip."""
    import onnxslim

    chosen: Dict[str, Any] = {"no_shape_infer": True} if options["inference"] == "off" else {}
    if options["skip"] or options["trace"] == "on":
        from onnxslim.core import OptimizationSettings
        from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

        steps = list(OptimizationSettings.keys())
        every = steps + list(DEFAULT_FUSION_PATTERNS)
        skipped = pass_options.check_names("onnxslim", pass_options.split_names(options["skip"]), every)
        if options["trace"] == "on":
            pass_options.report_passes("ran", [name for name in every if name not in skipped])
            # It only runs the patterns.
            pass_options.report_passes("host", [name for name in steps if name == "graph_fusion"])
        chosen["skip_optimizations"] = [name for name in skipped if name in steps]
        chosen["skip_fusion_patterns"] = [name for name in skipped if name not in steps]
    return onnxslim.slim(model, **chosen)


ONNXOPTIMIZER = Transformed(
    "onnxoptimizer",
    {"passes": (), "skip": (), "fixpoint": ("off", "on"), "trace": TRACE},
    "passes",
    ("onnx",),
    ("onnxoptimizer",),
    run_onnxoptimizer,
    patterns=NO_TYPE,
    milliseconds=8.0,
)
ONNXSIM = Transformed(
    "onnxsim",
    {"passes": SWITCH, "skip": (), "folding": SWITCH, "inference": SWITCH, "trace": TRACE},
    "skip",
    ("onnx", "rich"),
    ("onnxsim",),
    run_onnxsim,
    patterns=NO_TYPE,
    # a proof with z3 after the work, where z3 is installed; it alters nothing
    environment={"ONNXSIM_CERTIFY": "0"},
    milliseconds=33.0,
)
ONNXSCRIPT = Transformed(
    "onnxscript",
    {"part": ("all", "fold", "rewrite"), "skip": (), "inline": SWITCH, "inference": SWITCH, "trace": TRACE},
    "part",
    ("onnx", "onnx-ir", "ml_dtypes", "packaging", "typing_extensions"),
    ("onnxscript.optimizer", "onnxscript.rewriter"),
    run_onnxscript,
    milliseconds=40.0,
)
ONNXSLIM = Transformed(
    "onnxslim",
    {"skip": (), "inference": SWITCH, "trace": TRACE},
    "skip",
    # Releases before 0.1.78 are not imported beside a newer onnx.
    ("onnx<1.20", "sympy", "packaging", "ml_dtypes", "colorama"),
    ("onnxslim.core", "onnxslim.utils"),
    run_onnxslim,
    milliseconds=77.0,
)
