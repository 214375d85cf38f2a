"""A Relax module as a request of the reference."""

from typing import TYPE_CHECKING, Any

from opsieve.backends.reference.relax.evaluator import ModuleEvaluator
from opsieve.gen.irs.relax.reading import from_json

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

_MAX_HAZARDS = 64


def prepare(request: "Request") -> "Run":
    """A Relax module; its passes are left out, since they change no result."""

    request.stage("import")
    evaluator = ModuleEvaluator(
        from_json(request.model.decode("utf-8")), request.options.get("precision") == "float64"
    )
    request.stage("compile")

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        outputs = {f"output_{place}": value for place, value in enumerate(evaluator.run(inputs))}
        request.hazards[:] = [
            {"rule": rule, "node": name, "operator": name, "outputs": list(outputs)}
            for rule, name in list(evaluator.hazards.found)[:_MAX_HAZARDS]
        ]
        return outputs

    return run
