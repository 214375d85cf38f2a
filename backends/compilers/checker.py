"""onnx's own checker, with full shape inference, as a target: it accepts a model or rejects it with a reason.

With `tell=types` it only infers: its one output, `model`, is the model with the inferred types. With
`tell=derived` it infers the outputs' types from the fed inputs and ignores the types that the model declares:
each output is a serialised TypeProto. With `tell=text` it prints: `text` is onnx's printing, `exact` whether
onnx's parser reproduces the model from it.

A hostile model can crash it, since it is C++, so it runs in a worker like every compiler.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opsieve.backends.compilers.worker_common import Adapter

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run


class InvalidModel(ValueError):
    """Raised with the checker's complaint."""


class Checker(Adapter):
    """The backend `checker`. It computes nothing: its outputs are empty unless `tell` asks for something else
    than a verdict.
    """

    name = "checker"
    helper = True
    computes = False
    seconds = 10.0
    # Both import onnx alone, and a second zygote would cost its memory and a start.
    shares_zygote_of = "reference"
    options: Mapping[str, tuple[str, ...]] = {"tell": ("verdict", "types", "derived", "text")}
    main_option = ""
    baseline: Mapping[str, str] = {}
    # It computes nothing, so that threads cannot change its answer.
    environment: Mapping[str, str] = {}
    starts_processes = False
    lacks: tuple[str, ...] = ("computing: it only accepts or rejects; operators outside the ONNX standard",)

    def load(self) -> str:
        """Import onnx and its checker."""
        import onnx.checker

        import opsieve.gen.irs.onnx.model_file  # noqa: F401

        return str(onnx.__version__)

    def prepare(self, request: "Request") -> "Run":
        """Check the model. Raises InvalidModel with the defect."""
        import numpy as np
        import onnx

        from opsieve.gen.irs.onnx.model_file import check, infer_types

        # Outputs of a worker are tensors, so that a model or a text travels as bytes.
        if request.options["tell"] == "types":
            types = np.frombuffer(infer_types(request.model), np.uint8)
            return lambda values: {"model": types}
        if request.options["tell"] == "derived":
            from opsieve.gen.model.derivation import derive_types

            def derive(values: dict[str, Any]) -> dict[str, Any]:
                infos = derive_types(onnx.load_model_from_string(request.model), values)
                return {info.name: np.frombuffer(info.type.SerializeToString(), np.uint8) for info in infos}

            return derive
        if request.options["tell"] == "text":
            from opsieve.gen.model.text import print_model

            said = print_model(request.model)
            text = np.frombuffer(said.text.encode("utf-8", "replace"), np.uint8)
            return lambda values: {"text": text, "exact": np.array(said.exact)}
        # A complaint is returned as text by a common function, which the main process uses for its own
        # models.
        complaint = check(request.model)
        if complaint:
            raise InvalidModel(complaint)

        def run(values: dict[str, Any]) -> dict[str, Any]:
            return {}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify an exception: a model newer than this onnx counts as `environment`, everything else as
        `rejected`.
        """
        # A model from a newer onnx may be valid: this onnx cannot tell.
        return "environment" if "higher than the checker's" in message else "rejected"


BACKEND = Checker()
