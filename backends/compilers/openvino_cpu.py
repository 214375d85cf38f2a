"""OpenVINO on the CPU, through its ONNX front end.

https://docs.openvino.ai/ describes the CPU device. It has no build without optimisations; what can be turned
off by itself are the snippets (element-wise subgraphs made into machine code) and the low-precision
transformations. Sums are in float32: left alone, the device takes bfloat16 where the processor has it. By
design it computes int64 as int32 and float64 as float32, so that what needs the wider type is refused here
and not called a wrong result.
"""

from typing import TYPE_CHECKING, Any, Collection, Dict, List, Mapping, Tuple

import numpy as np

from opsieve.backends.compilers.worker_common import (
    Adapter,
    onnx_name,
    read_onnx,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# Element types that numpy's own dtypes cannot tell: OpenVINO's name and the carrier of its bytes.
CARRIED = {
    "bfloat16": ("bf16", np.uint16),
    "float8_e4m3fn": ("f8e4m3", np.uint8),
    "float8_e5m2": ("f8e5m2", np.uint8),
}
# Packed elements and the other float8 have no way in; complex numbers no type at all.
BARRED = frozenset(
    [
        "int4",
        "uint4",
        "int2",
        "uint2",
        "float4e2m1",
        "float8e4m3fnuz",
        "float8e5m2fnuz",
        "float8e8m0",
        "complex64",
    ]
    + ["complex128"]
)
INT32 = np.iinfo(np.int32)

# What a message means, first match wins.
MEANINGS: Tuple[Tuple[str, str], ...] = (
    ("environment", r"unsupported (?:IR|ir) version|IR version \d+"),
    ("out-of-memory", r"bad_alloc|[Cc]annot allocate memory|[Ff]ailed to allocate|Unable to allocate"),
    (
        "unsupported",
        r"does not support the following ONNX operations|No conversion rule found|OpConversionFailure",
    ),
    (
        "unsupported",
        r"[Uu]nsupported|[Nn]ot (?:yet |currently )?(?:supported|implemented)|does(?:n't| not) support",
    ),
    (
        "unsupported",
        (
            r"is computed with (?:31|24) bits|cannot cross the border of a model|\b[Oo]nly \S{1,60}"
            r" (?:is|are) supported"
        ),
    ),
)

SCRIPT = """\
def run(model, inputs):
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", %r)
    results = compiled([inputs[port.get_node().get_friendly_name()] for port in compiled.inputs])
    names = [item.name for item in onnx.load_model_from_string(model).graph.output]
    return {name: np.array(results[place]) for place, name in enumerate(names)}
"""


class OpenvinoCpu(Adapter):
    """The backend `openvino`."""

    name = "openvino"
    package = "openvino"
    extra = "openvino"
    # onnx reads the model's declarations; OpenVINO's own package imports telemetry.
    requirements = ("onnx", "ml_dtypes", "openvino-telemetry", "packaging")
    meanings = MEANINGS
    options: Mapping[str, Tuple[str, ...]] = {"snippets": ("on", "off"), "low_precision": ("on", "off")}
    main_option = "snippets"
    variables = ("OV_*", "OPENVINO_*")
    baseline: Mapping[str, str] = {}
    environment: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    starts_processes = False
    milliseconds: Mapping[str, float] = {"onnx": 80.0}
    lacks: Tuple[str, ...] = (
        "sequences and optionals; 2-bit and 4-bit values that are fed or read",
        "integers of more than 31 bits and float64, which it computes as int32 and float32",
    )

    def load(self) -> str:
        """Import openvino; a Core, which may start threads, is made by each worker."""
        import onnx  # noqa: F401
        import openvino

        # The version ends with the build's number and commit, which are no part of a release number.
        return str(openvino.__version__).split("-")[0]

    def prepare(self, request: "Request") -> "Run":
        """Read and compile the model; shapes that it leaves open stay open."""
        import openvino

        model = read_onnx(request, "openvino", onnx_name, lambda name: name not in BARRED)
        refuse_narrowed(model.graph, request.inputs)
        core = openvino.Core()
        read = core.read_model(model.SerializeToString())
        given = {tensor.name for tensor in model.graph.initializer}
        names = [item.name for item in model.graph.input if item.name not in given]
        outputs = [item.name for item in model.graph.output]

        request.stage("compile")
        compiled = core.compile_model(read, "CPU", settings(request.options))
        places = ports(compiled.inputs, model.graph, names)
        # Outputs are read by place, which must not shift silently.
        if len(compiled.outputs) != len(outputs):
            raise RuntimeError(
                "the compiled model has %d outputs, not %d" % (len(compiled.outputs), len(outputs))
            )

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            # A new request for each run, so that no tensor of an earlier one is left in it.
            asked = compiled.create_infer_request()
            for name, place in places.items():
                asked.set_input_tensor(place, to_tensor(openvino, values[name]))
            asked.infer()
            return {name: to_value(openvino, asked.get_output_tensor(at)) for at, name in enumerate(outputs)}

        return run

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script; "" for types that are carried as others."""
        return "" if {"string", "object", *CARRIED} & set(dtypes) else SCRIPT % settings(options)


def settings(options: Mapping[str, str]) -> Dict[str, Any]:
    """Return the settings: one thread, float32, and the two switches by the names that the CPU device keeps
    for its own tests.
    """
    chosen: Dict[str, Any] = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    if options["snippets"] == "off":
        chosen["SNIPPETS_MODE"] = "DISABLE"
    if options["low_precision"] == "off":
        chosen["LP_TRANSFORMS_MODE"] = "NO"
    return chosen


def ports(inputs: List[Any], graph: Any, names: List[str]) -> Dict[str, int]:
    """Map the remaining inputs to ports: unused inputs are gone, and one that Dropout passes through has the
    result's name.
    """
    came_from = {output: node.input[0] for node in graph.node for output in node.output[:1] if node.input}
    found = {}
    for place, port in enumerate(inputs):
        own = name = port.get_node().get_friendly_name()
        # As many steps as there are nodes, so that a cycle in a broken graph ends.
        for _ in graph.node:
            if name in names:
                break
            name = came_from.get(name, "")
        if name not in names or name in found:
            raise RuntimeError(
                "the compiled model wants an input %r, which the model does not have" % own[:80]
            )
        found[name] = place
    return found


def refuse_narrowed(graph: Any, inputs: Mapping[str, Any]) -> None:
    """Raise NotImplementedError for values that OpenVINO narrows by design."""
    from onnx import TensorProto

    for item in graph.output:
        if item.type.tensor_type.elem_type == TensorProto.DOUBLE:
            raise NotImplementedError("a result of float64 is computed with 24 bits in openvino")
    for value in inputs.values():
        array = np.asarray(value)
        if (
            array.dtype.kind in "iu"
            and array.size
            and not INT32.min <= int(array.min()) <= int(array.max()) <= INT32.max
        ):
            raise NotImplementedError("a larger integer is computed with 31 bits in openvino")


def to_tensor(openvino: Any, value: Any) -> Any:
    """Make an OpenVINO tensor that shares or copies the value's bytes."""
    array = np.asarray(value, order="C")
    if array.dtype.kind in "OUS":
        return openvino.Tensor(array.astype(str))
    carried = CARRIED.get(array.dtype.name)
    if carried is None:
        return openvino.Tensor(array)
    tensor = openvino.Tensor(getattr(openvino.Type, carried[0]), list(array.shape))
    np.asarray(tensor.data).view(carried[1])[...] = array.view(carried[1])
    return tensor


def to_value(openvino: Any, tensor: Any) -> Any:
    """Convert a tensor to a numpy array of OpenVINO's type."""
    kind = tensor.element_type.to_string()
    if kind == "string":
        return np.array(tensor.str_data, dtype=object)
    for name, (own, carrier) in CARRIED.items():
        if kind == own:
            import ml_dtypes

            return np.array(tensor.data).view(carrier).view(np.dtype(getattr(ml_dtypes, name)))
    return np.array(tensor.data)


BACKEND = OpenvinoCpu()
