"""tract: an inference engine in Rust, through its Python binding.

https://github.com/sonos/tract describes it. A model is read, analysed (every shape and type must be
inferred), decluttered and optimised for the processor; the binding cannot skip any of these steps, so an
unoptimised build to compare with does not exist.
"""

import os
import tempfile
from typing import TYPE_CHECKING, Any, Collection, Dict, List, Mapping, Tuple

import numpy as np

from opsieve.backends.compilers.worker_common import (
    Adapter,
    numpy_name,
    read_onnx,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# Element types that its tensors carry between Rust and numpy, with the names that its facts have for them.
FACTS = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
}

# What a message means, first match wins. What tract does not explain (a failed unification, a type mismatch)
# is left an error.
MEANINGS: Tuple[Tuple[str, str], ...] = (
    # The binding of releases before 0.23
    ("environment", r"^'Onnx' object has no attribute 'load'$"),
    (
        "out-of-memory",
        r"bad_alloc|[Cc]annot allocate memory|[Ff]ailed to allocate|memory allocation of \d+ bytes failed",
    ),
    (
        "unsupported",
        (
            r"Unimplemented\(|UnimplementedOp|[Uu]nimplemented|[Uu]nsupported|not (?:yet"
            r" )?(?:implemented|supported)"
        ),
    ),
    # What has to be known before the model runs: constants where ONNX takes values, shapes that depend on
    # values.
    (
        "unsupported",
        (
            r"(?:[Ee]xpect(?:ed|s)?|[Nn]eed|must be|are not) [^\n]{0,60}\bconst(?:ants?)?\b|must be a known"
            r" scalar"
        ),
    ),
    (
        "unsupported",
        r"shape input is variable|can not be typed|to be determined, got|typable only if|: None, sizes: None",
    ),
    (
        "unsupported",
        r"does not support|cannot cross the border of a model|\b[Oo]nly \S{1,60} (?:is|are) supported",
    ),
)

SCRIPT = """\
def run(model, inputs):
    import tempfile

    import tract

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        with open(path, "wb") as file:
            file.write(model)
        read = tract.onnx().load(path)
    names = [read.input_name(place) for place in range(read.input_count())]
    for place, name in enumerate(names):
        sides = [str(side) for side in np.shape(inputs[name])]
        read.set_input_fact(place, ",".join(sides + [%r[inputs[name].dtype.name]]))
    results = read.into_model().into_runnable().run([tract.Tensor.from_numpy(inputs[name]) for name in names])

    def value(result):
        try:
            result.datum_type()
        except tract.TractError:  # a size that tract computed is a symbol to it
            result = result.convert_to(tract.DatumType.I64)
        return result.to_numpy()

    outputs = [item.name for item in onnx.load_model_from_string(model).graph.output]
    return {name: value(result) for name, result in zip(outputs, results)}
"""


class TractCpu(Adapter):
    """The backend `tract`."""

    name = "tract"
    package = "tract"
    extra = "tract"
    # onnx reads the model's declarations.
    requirements = ("onnx", "ml_dtypes")
    meanings = MEANINGS
    options: Mapping[str, Tuple[str, ...]] = {}
    main_option = ""
    baseline: Mapping[str, str] = {}
    environment: Mapping[str, str] = {
        "RUST_BACKTRACE": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    starts_processes = False
    milliseconds: Mapping[str, float] = {"onnx": 43.0}
    lacks: Tuple[str, ...] = (
        "strings, sequences, optionals; bfloat16, float8 and 4-bit values that are fed or read",
        "models whose shapes are not known before they run",
    )

    def load(self) -> str:
        """Import tract."""
        import onnx  # noqa: F401
        import tract

        return str(tract.version())

    def prepare(self, request: "Request") -> "Run":
        """Read, analyse and optimise the model for the types and shapes of the values that will be fed."""
        import tract

        model = read_onnx(request, "tract", numpy_name, lambda name: name in FACTS)
        inferred = read(tract, model.SerializeToString())
        names = [inferred.input_name(place) for place in range(inferred.input_count())]
        missing = [name for name in names if name not in request.inputs]
        if missing:
            raise RuntimeError("tract asks for %r, which is no input of the model" % missing[0][:80])
        for place, name in enumerate(names):
            value = np.asarray(request.inputs[name])
            inferred.set_input_fact(
                place, ",".join([str(side) for side in value.shape] + [FACTS[value.dtype.name]])
            )
        outputs = [item.name for item in model.graph.output]

        request.stage("compile")
        runnable = inferred.into_model().into_runnable()

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            results = runnable.run([tract.Tensor.from_numpy(np.asarray(values[name])) for name in names])
            return {name: to_value(tract, result) for name, result in zip(outputs, results)}

        return run

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script."""
        return SCRIPT % FACTS

    def brief(
        self, options: Mapping[str, str], dtypes: Collection[str], program: Any, failed: str
    ) -> Tuple[List[str], List[str]]:
        """Return the statements of a short script; two empty lists for sizes that only the values tell."""
        fed = program.inputs()
        if not all(
            isinstance(side, int)
            for item in fed.values()
            for side in (item.shape if item.shape is not None else "?")
        ):
            return [], []
        lines = [
            'Path("model.onnx").write_bytes(model)',
            'runnable = tract.onnx().load("model.onnx").into_model().into_runnable()',
        ]
        if failed == "run":
            # A size that tract computed is a symbol to it.
            arrays = [
                "%a: results[%d]%s.to_numpy()"
                % (name, place, ".convert_to(tract.DatumType.I64)" * (item.dtype == "int64"))
                for place, (name, item) in enumerate(program.outputs().items())
            ]
            lines += [
                "fed = [tract.Tensor.from_numpy(inputs[name]) for name in %a]" % list(fed),
                "results = runnable.run(fed)",
                "outputs = {%s}" % ", ".join(arrays),
            ]
        return ["from pathlib import Path", "import tract"], lines


def read(tract: Any, model: bytes) -> Any:
    """Load the model into tract from a temporary file, the only source that its binding accepts."""
    handle, path = tempfile.mkstemp(suffix=".onnx")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(model)
        return tract.onnx().load(path)
    finally:
        os.unlink(path)


def to_value(tract: Any, result: Any) -> Any:
    """Return a numpy array of a result. Sizes that tract computed are symbols to it: they are
    read as int64.
    """
    try:
        result.datum_type()
    except tract.TractError:
        # Not one of the types that its binding knows
        result = result.convert_to(tract.DatumType.I64)
    return result.to_numpy()


BACKEND = TractCpu()
