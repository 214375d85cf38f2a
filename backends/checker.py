"""onnx's own checker, with full shape inference, as a target: it accepts a model or rejects it with a reason.

It is C++ that a hostile model can bring down, so it is asked in a worker like every compiler.
"""

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

NO_SHAPE = "Field 'shape' of 'type' is required but missing"


def states_shape(kind: Any) -> bool:
    """Whether a TypeProto tells a shape, where it has to: a tensor's, or that of a sequence's or an optional's element."""
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return states_shape(getattr(kind, which).elem_type)
    return which not in ("tensor_type", "sparse_tensor_type") or getattr(kind, which).HasField("shape")


class Checker:
    """The backend `checker`. It computes nothing: its outputs are empty."""

    name = "checker"
    package = "onnx"
    extra = ""
    options: Mapping[str, Tuple[str, ...]] = {}
    main_option = ""
    baseline: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    lacks: Tuple[str, ...] = ("does not compute", "knows no operator outside the ONNX standard")

    def base(self, python: Tuple[int, int]) -> Tuple[str, ...]:
        """What every release of onnx needs."""
        return (
            "numpy==1.24.4" if python < (3, 9) else "numpy==1.26.4" if python < (3, 13) else "numpy>=2.1",
            "protobuf",
            "typing_extensions",
            "ml_dtypes",
        )

    def companions(self, release: str) -> Tuple[str, ...]:
        """A release needs nothing of its own beside it."""
        return ()

    def load(self) -> str:
        """Import onnx."""
        import onnx.checker

        return str(onnx.__version__)

    def prepare(self, request: "Request") -> "Run":
        """Check the model; onnx.checker.ValidationError or shape inference's InferenceError tells what is wrong.

        Outputs that state no shape are common in real models and accepted by compilers: theirs are inferred first.
        """
        import onnx.checker
        import onnx.shape_inference

        try:
            onnx.checker.check_model(request.model, full_check=True)
        except onnx.checker.ValidationError as error:
            if NO_SHAPE not in str(error):
                raise
            model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(request.model), True, True, True)
            known = [value for value in model.graph.output if states_shape(value.type)]
            request.notes.append("outputs without a shape were checked with the inferred one")
            del model.graph.output[:]
            model.graph.output.extend(known)
            onnx.checker.check_model(model, full_check=True)

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            return {}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """A model newer than this onnx is no invalid model."""
        if "IR version" in message or "is higher than the checker's" in message or "opset" in message.lower()[:200]:
            return "environment"
        return "rejected"


BACKEND = Checker()
