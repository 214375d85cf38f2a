"""onnx's own checker, with full shape inference, as a target: it accepts a model or rejects it with a reason.

It is C++ that a hostile model can bring down, so it is asked in a worker like every compiler.
"""

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run


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
        """Check the model; onnx.checker.ValidationError or shape inference's InferenceError tells what is wrong."""
        import onnx.checker

        onnx.checker.check_model(request.model, full_check=True)

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            return {}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """A model newer than this onnx is no invalid model."""
        if "IR version" in message or "is higher than the checker's" in message or "opset" in message.lower()[:200]:
            return "environment"
        return "rejected"


BACKEND = Checker()
