"""onnxruntime, on the CPU where no other device is named.

https://onnxruntime.ai/docs/performance/model-optimizations/graph-optimizations.html describes the levels;
`disabled_optimizers` takes names of transformers and of single rewrite rules, joined with `+`
(`Pad_Fusion+ConstantFolding`).
"""

import ctypes
import inspect
import mmap
import os
import re
from typing import TYPE_CHECKING, Any, Collection, Dict, List, Mapping, Tuple

import numpy as np

from opsieve.backends.compilers.worker_common import Adapter, meaning_of

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disable_all": "ORT_DISABLE_ALL",
}
# Devices, and the execution providers that compute on them; what a provider does not take runs on the CPU.
PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
}
# Element types that numpy's own dtypes cannot tell: onnx's number, the carrier that onnxruntime is fed with,
# values a byte.
EXTENDED = {
    "bfloat16": (16, "uint16", 1),
    "float8e4m3fn": (17, "uint8", 1),
    "float8e4m3fnuz": (18, "uint8", 1),
    "float8e5m2": (19, "uint8", 1),
    "float8e5m2fnuz": (20, "uint8", 1),
    "uint4": (21, "uint8", 2),
    "int4": (22, "uint8", 2),
    "float4e2m1": (23, "uint8", 2),
    "uint2": (25, "uint8", 4),
    "int2": (26, "uint8", 4),
}
# ONNX's numbers of the element types that numpy has.
PLAIN = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}
# Prefixes of input types that are fed as such; test cases store arrays.
SPARSE = "sparse_tensor("
NUMPY_NAMES = {
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float4e2m1": "float4_e2m1fn",
}
# What `disabled_optimizers` takes: the union over releases 1.17 to 1.31; a release ignores names that it does
# not know. Transformers were read from verbose logs, which do not show rewrite rules: the names of rules are
# known ones that stand as strings in the library of 1.31.1; that each acts was seen only for the rules that a
# case has blamed. The hosts apply the rules: disabling one disables all of its own.
HOSTS = ("Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer")
RULES = (
    "EliminateIdentity", "EliminateSlice", "EliminateDropout", "UnsqueezeElimination", "ExpandElimination",
    "CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion",
    "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion",
    "ConvMulFusion", "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion",
    "ClipQuantRewrite", "ReluQuantRewrite",
)  # fmt: skip
TRANSFORMERS = (
    "EnsureUniqueDQForNodeUnit", "DoubleQDQPairsRemover", "ConstantSharing", "CommonSubexpressionElimination",
    "ConstantFolding", "MatMulAddFusion", "ReshapeFusion", "FreeDimensionOverrideTransformer",
    "QDQPropagationTransformer", "RocmBlasAltImpl", "TransposeOptimizer",
    "TransposeOptimizer_CPUExecutionProvider", "QDQS8ToU8Transformer", "QDQSelectorActionTransformer",
    "GemmActivationFusion", "MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion",
    "ConvActivationFusion", "GeluFusion", "LayerNormFusion", "SimplifiedLayerNormFusion", "AttentionFusion",
    "EmbedLayerNormFusion", "GatherToSplitFusion", "GatherToSliceFusion", "MatmulTransposeFusion",
    "BiasGeluFusion", "SkipLayerNormFusion", "FastGeluFusion", "QuickGeluFusion", "BiasSoftmaxFusion",
    "BiasDropoutFusion", "MatMulScaleFusion", "MatMulActivationFusion", "QDQFinalCleanupTransformer",
    "NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion", "RemoveDuplicateCastTransformer",
    "ShapeInputMerge", "GatherSliceToSplitFusion", "MatMulNBitsFusion", "GeluFusionL1", "GeluFusionL2",
    "LayerNormFusionL1", "LayerNormFusionL2", "WeightBiasQuantization", "GroupQueryAttentionFusion",
    "FuseFp16InitializerToFp32NodeTransformer", "WhereDummyDq", "SliceConcatToSpaceToDepthFusion",
    "BiasSkipLayerNormFusion", "MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion",
    "GroupQueryAttentionPreNormFusion",
)  # fmt: skip
# In the verbose log, one line for each transformer and pass over the graph.
MODIFIED = re.compile(r"GraphTransformer ([A-Za-z0-9_]{1,80}) modified: 1")
# What a message means, first match wins. `environment`: the release is older than the model's format.
MEANINGS: Tuple[Tuple[str, str], ...] = (
    ("environment", r"Unsupported model IR version|Unknown model file format version|IR version"),
    (
        "environment",
        (
            r"is under development and support for this is limited|only \*?guarantees\*? support for models"
            r" stamped"
        ),
    ),
    ("environment", r"No opset import for domain|Unsupported opset|opset version .{0,40} is not supported"),
    # An attribute that came with a later version of a standard operator; a locale that this machine does not
    # have.
    ("environment", r"Error Unrecognized attribute: \w+ for operator|Failed to construct locale with name"),
    ("environment", r"level \w+ is not in this release|optimizers cannot be disabled in this release"),
    (
        "environment",
        (
            r"onnxruntime has no optimizer |onnxruntime cannot compute on \w+:|session options? of this"
            r" onnxruntime|Failed to load library"
        ),
    ),
    ("out-of-memory", r"bad_alloc|[Ff]ailed to allocate memory|bad allocation|Cannot allocate memory"),
    (
        "unsupported",
        r"NOT_IMPLEMENTED|Could not find an implementation|NotImplemented|not implemented|not yet supported",
    ),
    # It puts casts around what has no kernel for float16, and knows no Cast at an opset from before those
    # that it promises (7).
    ("unsupported", r'"InsertedPrecisionFreeCast_[^"]{0,256}", Cast, "", -1\)'),
    # Of the Python binding: texts cannot be fed beside types that numpy lacks.
    ("unsupported", r"Creation of OrtValues is currently only supported from non-string"),
    # What a kernel says of itself once it runs.
    (
        "unsupported",
        (
            r"does not support \w{1,20} yet|implementation does not support|Dilation not supported for"
            r" AutoPadType"
        ),
    ),
    # ONNX allows up to the dilation, too; onnxruntime says that it does not.
    ("unsupported", r"output_padding \(\d{1,9}\) may be too large for stride"),
    ("unsupported", r"is not a registered function/op|No Op registered for|No schema registered for"),
    (
        "unsupported",
        (
            r"cannot be fed to onnxruntime|cannot be read from onnxruntime|\b(?:is|are) not (?:currently |yet"
            r" )?supported\b"
        ),
    ),
    (
        "unsupported",
        (
            r"Unable to handle object of type|Numpy_type not matched|unsupported conversion|not supported for"
            r" numpy"
        ),
    ),
    ("rejected", r"INVALID_PROTOBUF|InvalidProtobuf"),
)
# A session does both in one call: these words tell that it failed before any optimisation.
LOADING = re.compile(
    r"Load model from|Failed to load model|Protobuf parsing failed|graph/model\.cc|model_load_utils"
)


class Onnxruntime(Adapter):
    """The backend `onnxruntime`."""

    name = "onnxruntime"
    package = "onnxruntime"
    version_of_distribution = True
    extra = ""
    requirements = ("protobuf", "flatbuffers", "packaging", "coloredlogs", "sympy", "ml_dtypes")
    options: Mapping[str, Tuple[str, ...]] = {
        "level": tuple(LEVELS),
        "disabled_optimizers": (),
        # `graph`: the optimised graph is all that is given
        "trace": ("off", "on", "graph"),
        "device": tuple(PROVIDERS),
        "threads": ("1", "2", "4", "8", "16"),
        "mode": ("sequential", "parallel"),
        # Session configuration entries, KEY=VALUE joined with `+`
        "config": (),
        # Libraries of custom operators, joined with `+`
        "custom_ops": (),
    }
    libraries = "custom_ops"
    shows_graph: Mapping[str, str] = {"trace": "graph"}
    main_option = "level"
    variables = ("ORT_*", "ONNXRUNTIME_*")
    native_sources: Mapping[str, str] = {"onnxruntime_pybind11_state": "/onnxruntime_src/"}
    baseline: Mapping[str, str] = {"level": "disable_all", "disabled_optimizers": "", "trace": "off"}
    environment: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
    starts_processes = False
    maps_tensors = True
    lacks: Tuple[str, ...] = ("kernels for some operators and types: it says so, operator by operator",)

    def load(self) -> str:
        """Import onnxruntime."""
        import onnxruntime

        return str(onnxruntime.__version__)

    def prepare(self, request: "Request") -> "Run":
        """Open a session of the model; without other options it has one thread, on the CPU provider."""
        import onnxruntime as ort

        options = ort.SessionOptions()
        provider = set_session(ort, options, request.options)
        trace = request.options["trace"] == "on"
        # 0 is verbose, the only level that tells which transformers acted; 3 is errors.
        options.log_severity_level = 0 if trace else 3
        level = request.options["level"]
        if not hasattr(ort.GraphOptimizationLevel, LEVELS[level]):
            raise ValueError("level %s is not in this release of onnxruntime" % level)
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
        # The CPU last: what a device does not take runs there.
        extra: Dict[str, Any] = {"providers": list(dict.fromkeys([provider, PROVIDERS["cpu"]]))}
        disabled = [item for item in request.options["disabled_optimizers"].split("+") if item]
        if disabled:
            refuse_unknown(ort, disabled)
            extra["disabled_optimizers"] = disabled
        if trace:
            report_passes(end=False)
        if request.options["trace"] == "graph":
            options.optimized_model_filepath = os.path.abspath("optimised.onnx")
        map_tensors(ort, options, request)
        request.stage("compile")
        try:
            session = open_session(ort, request.model, options, extra)
        except Exception as error:
            if LOADING.search(str(error)):
                request.stage("import")
            raise
        finally:
            if trace:
                report_passes(end=True)
        # what a provider lacks on this machine is a warning to onnxruntime
        if provider not in session.get_providers():
            raise ValueError(
                "onnxruntime cannot compute on %s: it has the provider, and cannot start it here"
                % request.options["device"]
            )
        if request.options["trace"] == "graph":
            optimised = np.fromfile("optimised.onnx", np.uint8)
            # The next request of this worker must not read it.
            os.remove("optimised.onnx")
            return lambda values: {"model": optimised}
        # The session has its own
        request.model = b""
        # It reads weights that it did not repack from there again.
        for _, _, _, data in request.mapped:
            data.madvise(mmap.MADV_DONTNEED)
        outputs = session.get_outputs()
        inputs = {item.name: item.type for item in session.get_inputs()}
        names = [item.name for item in outputs]
        kinds = list(inputs.values()) + [item.type for item in outputs]
        # A type such as `tensor(bfloat16)`, which needs a carrier
        if any(kind.rpartition("(")[2].rstrip(")") in EXTENDED or kind.startswith(SPARSE) for kind in kinds):
            return lambda values: run_extended(ort, session, inputs, outputs, values)

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            # None is an absent optional, which only an input that is left can be fed with.
            feeds = {name: value for name, value in values.items() if value is not None or name in inputs}
            return dict(zip(names, session.run(names, feeds)))

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify by the status code and the message; a complaint about a shape or type is an error, since
        fusions cause such.
        """
        otherwise = "rejected" if stage == "import" else "error"
        return meaning_of(
            exception, message[:4000], MEANINGS, {"MemoryError": "out-of-memory"}, otherwise=otherwise
        )

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script."""
        disabled = [item for item in options["disabled_optimizers"].split("+") if item]
        head = "def run(model, inputs):\n    import onnxruntime as ort\n\n"
        return f"{carriers(dtypes)}{head}" + run_source(
            "model", "inputs", LEVELS[options["level"]], disabled, dtypes, options
        )

    def brief(
        self, options: Mapping[str, str], dtypes: Collection[str], program: Any, failed: str
    ) -> Tuple[List[str], List[str]]:
        """Return the statements of a short script: a session, and a run unless the failure is in
        `compile`.
        """
        if carriers(dtypes):
            return [], []
        disabled = [item for item in options["disabled_optimizers"].split("+") if item]
        session = brief_session("model", LEVELS[options["level"]], disabled, options)
        return ["import onnxruntime as ort"], session if failed == "compile" else [*session, *BRIEF_RUN]


# Of a model that a transformer made fewer inputs may be left.
BRIEF_RUN = (
    "given = {item.name: inputs[item.name] for item in session.get_inputs()}",
    "outputs = dict(zip([item.name for item in session.get_outputs()], session.run(None, given)))",
)


def brief_session(model: str, level: str, disabled: List[str], wanted: Mapping[str, str] = {}) -> List[str]:
    """Return the statements that make a session of the bytes in the variable `model`, without default
    settings.
    """
    extra = ", disabled_optimizers=%a" % disabled if disabled else ""
    providers = list(dict.fromkeys([PROVIDERS[wanted.get("device", "cpu")], PROVIDERS["cpu"]]))
    chosen = ["options.graph_optimization_level = ort.GraphOptimizationLevel.%s" % level] * (
        level != "ORT_ENABLE_ALL"
    )
    if wanted.get("threads", "1") != "1":
        chosen.append(
            "options.intra_op_num_threads = options.inter_op_num_threads = %d" % int(wanted["threads"])
        )
    if wanted.get("mode", "sequential") == "parallel":
        chosen.append("options.execution_mode = ort.ExecutionMode.ORT_PARALLEL")
    chosen += list_registrations(wanted)
    head = ["options = ort.SessionOptions()", *chosen] if chosen else []
    settings = ", options" if chosen else ""
    call = "ort.InferenceSession(%s%s, providers=%s%s)" % (model, settings, providers, extra)
    return [*head, "session = %s" % call]


def set_session(ort: Any, options: Any, wanted: Mapping[str, str]) -> str:
    """Set threads, mode, entries and execution provider; ValueError for one that this onnxruntime lacks."""
    device = wanted.get("device", "cpu")
    provider = PROVIDERS[device]
    if device != "cpu" and provider not in ort.get_available_providers():
        has = ", ".join(ort.get_available_providers())
        raise ValueError(
            "onnxruntime cannot compute on %s: this build lacks %s and has %s" % (device, provider, has)
        )
    options.intra_op_num_threads = options.inter_op_num_threads = int(wanted.get("threads", "1"))
    if wanted.get("mode", "sequential") == "parallel":
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    for key, value in config_entries(wanted):
        if not hasattr(options, "add_session_config_entry"):
            raise ValueError("the session options of this onnxruntime have no configuration entries")
        options.add_session_config_entry(key, value)
    for library in filter(None, wanted.get("custom_ops", "").split("+")):
        options.register_custom_ops_library(library)
    return provider


def config_entries(wanted: Mapping[str, str]) -> List[Tuple[str, str]]:
    """Return the configuration entries of the option `config`. Raises ValueError for an entry that is not
    KEY=VALUE.
    """
    pairs = [item.partition("=") for item in wanted.get("config", "").split("+") if item]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise ValueError(
                "a session option of this onnxruntime is written config=KEY=VALUE, not %r" % key[:80]
            )
    return [(key, value) for key, _, value in pairs]


def list_registrations(wanted: Mapping[str, str]) -> List[str]:
    """List the statements of an exported script that set configuration entries and register libraries of
    custom operators.
    """
    entries = ["options.add_session_config_entry(%a, %a)" % entry for entry in config_entries(wanted)]
    libraries = filter(None, wanted.get("custom_ops", "").split("+"))
    return entries + ["options.register_custom_ops_library(%a)" % library for library in libraries]


def run_source(
    model: str,
    inputs: str,
    level: str,
    disabled: List[str],
    dtypes: Collection[str],
    wanted: Mapping[str, str] = {},
) -> str:
    """Return the last lines of a function that runs the bytes in the variable `model`, for an exported
    script.
    """
    extra = ", disabled_optimizers=%a" % disabled if disabled else ""
    providers = list(dict.fromkeys([PROVIDERS[wanted.get("device", "cpu")], PROVIDERS["cpu"]]))
    threads = int(wanted.get("threads", "1"))
    lines = [
        "options = ort.SessionOptions()",
        "options.log_severity_level = 4",
        "options.intra_op_num_threads = options.inter_op_num_threads = %d" % threads,
        "options.graph_optimization_level = ort.GraphOptimizationLevel.%s" % level,
    ]
    if wanted.get("mode", "sequential") == "parallel":
        lines.append("options.execution_mode = ort.ExecutionMode.ORT_PARALLEL")
    lines += list_registrations(wanted)
    shown = str(providers).replace("'", '"')
    lines.append("session = ort.InferenceSession(%s, options, providers=%s%s)" % (model, shown, extra))
    if carriers(dtypes):
        lines.append("types = {item.name: item.type for item in session.get_inputs()}")
        lines.append("return run_extended(ort, session, types, session.get_outputs(), %s)" % inputs)
    else:
        lines.append("names = [item.name for item in session.get_outputs()]")
        lines.append("return dict(zip(names, session.run(names, %s)))" % inputs)
    return "".join("    %s\n" % line for line in lines)


def carriers(dtypes: Collection[str]) -> str:
    """Return the source that feeds and reads element types that numpy lacks, for an exported script; "" if it
    needs none of them.
    """
    if not {NUMPY_NAMES.get(name, name) for name in EXTENDED} & set(dtypes):
        return ""
    head = "import ctypes\nfrom typing import Any, Dict, List\n\nEXTENDED = %r\nNUMPY_NAMES = %r\n\n\n" % (
        EXTENDED,
        NUMPY_NAMES,
    )
    # The script carries the source of the functions that run here, so that both feed alike.
    parts = (run_extended, to_ortvalue, from_ortvalue, pack_bits, unpack_bits)
    return head + "".join("%s\n\n" % inspect.getsource(part) for part in parts)


def open_session(ort: Any, model: bytes, options: Any, extra: Dict[str, Any]) -> Any:
    """Open an InferenceSession; releases before 1.3 take no providers, those before 1.6 no disabled
    optimizers.
    """
    try:
        return ort.InferenceSession(model, options, **extra)
    except TypeError:
        # Running without them would give the answer of another target.
        if "disabled_optimizers" in extra:
            raise ValueError("optimizers cannot be disabled in this release of onnxruntime") from None
        return ort.InferenceSession(model, options)


def map_tensors(ort: Any, options: Any, request: "Request") -> None:
    """Have the session read large tensors where they are mapped, which the request holds on to; a release
    that cannot gets the model whole.
    """
    known = all(number in PLAIN for _, number, _, _ in request.mapped)
    if not request.mapped:
        return
    if not known or not hasattr(options, "add_external_initializers"):
        request.model = request.whole()
        return
    values = [
        ort.OrtValue.ortvalue_from_numpy(np.frombuffer(data, PLAIN[number]).reshape(shape))
        for _, number, shape, data in request.mapped
    ]
    options.add_external_initializers([name for name, _, _, _ in request.mapped], values)


def refuse_unknown(ort: Any, names: List[str]) -> None:
    """Raise ValueError for a name that is neither a known one nor a string in this release's library:
    onnxruntime would ignore it silently.
    """
    unknown = [name for name in names if name not in HOSTS + RULES + TRANSFORMERS]
    if not unknown:
        return
    from onnxruntime.capi import onnxruntime_pybind11_state as library

    with open(library.__file__, "rb") as file:
        words = file.read()
    for name in unknown:
        # Between NULs: as a whole C string, since a part of a longer name would match by chance.
        if b"\0" + name.encode() + b"\0" not in words:
            raise ValueError("onnxruntime has no optimizer %r" % name[:80])


def report_passes(end: bool) -> None:
    """Print, before a session, lines `opsieve pass ran NAME` for all that can be disabled, and `opsieve pass
    host NAME` for the hosts.

    At its `end`, which passes acted, as `opsieve pass acted NAME`, in place of the verbose log, which can be
    long. The log is of
    transformers: of a host that acted any rule may have. In a worker standard error is a file in memory;
    elsewhere, where it cannot be read, nothing is done.
    """
    lines = ["ran %s" % name for name in RULES + TRANSFORMERS] + ["host %s" % name for name in HOSTS]
    try:
        if end:
            log = os.pread(2, os.fstat(2).st_size, 0).decode("utf-8", "replace")
            acted = list(dict.fromkeys(MODIFIED.findall(log)))
            rules = RULES if set(HOSTS) & set(acted) else ()
            lines += ["acted %s" % name for name in (*rules, *acted) if name not in HOSTS]
            # A verbose log has megabytes, and would displace what the failure itself says.
            os.ftruncate(2, 0)
        os.write(2, "".join("opsieve pass %s\n" % line for line in lines).encode())
    except OSError:
        return


def run_extended(
    ort: Any, session: Any, inputs: Dict[str, str], outputs: List[Any], values: Dict[str, Any]
) -> Dict[str, Any]:
    """Run with OrtValues, which carry bfloat16, float8 and packed 4-bit and 2-bit elements as raw
    integers.
    """
    feeds = {}
    for name, kind in inputs.items():
        if name not in values:
            continue
        if kind.startswith(SPARSE):
            feeds[name] = to_sparse(ort, values[name])
            continue
        if not kind.startswith("tensor("):
            raise TypeError(
                "an input of type %s beside bfloat16 and the like cannot be fed to onnxruntime" % kind
            )
        feeds[name] = to_ortvalue(ort, kind[7:-1], values[name])
    tensors = [item for item in outputs if item.type.startswith("tensor(")]
    results = session.run_with_ort_values([item.name for item in tensors], feeds)
    found = {item.name: from_ortvalue(item.type, result) for item, result in zip(tensors, results)}
    others = [item.name for item in outputs if item.name not in found]
    # Sequences and optionals: an OrtValue does not hold them, `run` returns those of plain elements.
    if others:
        found.update(zip(others, session.run(others, feeds)))
    return found


def to_sparse(ort: Any, value: Any) -> Any:
    """Make an OrtValue of a sparse tensor, by coordinates, of an array's elements other than zero."""
    array = np.asarray(value)
    places = np.argwhere(array).astype(np.int64)
    cpu = ort.OrtDevice.make("cpu", 0)
    shape = np.array(array.shape, np.int64)
    made = ort.SparseTensor.sparse_coo_from_numpy(shape, array[tuple(places.T)], places.ravel(), cpu)
    return ort.OrtValue.ort_value_from_sparse_tensor(made)


def to_ortvalue(ort: Any, kind: str, value: Any) -> Any:
    """Make an OrtValue of element type `kind` (onnxruntime's spelling) from `value`."""
    array = np.asarray(value)
    if kind not in EXTENDED:
        return ort.OrtValue.ortvalue_from_numpy(array)
    number, carrier, per_byte = EXTENDED[kind]
    if not hasattr(ort.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        raise TypeError("%s cannot be fed to onnxruntime before release 1.20" % kind)
    if per_byte == 1:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(carrier), number)
    result = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), number, "cpu", 0)
    packed = pack_bits(array.view(np.uint8).ravel(), per_byte)
    # There is no call that takes packed elements.
    ctypes.memmove(result.data_ptr(), packed.tobytes(), packed.size)
    return result


def from_ortvalue(kind: str, value: Any) -> Any:
    """Return the value of an OrtValue, extended element types as ml_dtypes arrays."""
    name = kind[7:-1]
    if not kind.startswith("tensor(") or name not in EXTENDED:
        return value.numpy()
    import ml_dtypes

    _, carrier, per_byte = EXTENDED[name]
    dtype = np.dtype(getattr(ml_dtypes, NUMPY_NAMES.get(name, name)))
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    size = -(-count // per_byte) * np.dtype(carrier).itemsize
    # numpy() of an OrtValue refuses these types.
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), size), dtype=carrier)
    if per_byte > 1:
        raw = unpack_bits(raw, per_byte, count, signed=name.startswith("int"))
    return raw.view(dtype).reshape(shape)


def pack_bits(elements: Any, per_byte: int) -> Any:
    """Pack elements of one byte each, `per_byte` to a byte, the first in the lowest bits (onnx's layout)."""
    bits = 8 // per_byte
    padded = np.zeros(-(-elements.size // per_byte) * per_byte, np.uint8)
    padded[: elements.size] = elements & ((1 << bits) - 1)
    groups = padded.reshape(-1, per_byte) << (np.arange(per_byte, dtype=np.uint8) * bits)
    return np.bitwise_or.reduce(groups, axis=1).astype(np.uint8)


def unpack_bits(packed: Any, per_byte: int, count: int, signed: bool) -> Any:
    """Reverse `pack_bits`; the sign of signed elements is extended."""
    bits = 8 // per_byte
    spread = (packed[:, None] >> (np.arange(per_byte, dtype=np.uint8) * bits)) & ((1 << bits) - 1)
    elements = spread.ravel()[:count].astype(np.uint8)
    if signed:
        elements = np.where(elements >= 1 << (bits - 1), elements | (0x100 - (1 << bits)), elements).astype(
            np.uint8
        )
    return elements


BACKEND = Onnxruntime()
