"""A user's oracles as a helper backend: functions of the entry point group `opsieve.oracles`, run in a worker
(docs/how-to/write-an-oracle.md).

It is fed the values of a run under `in/NAME` and `out/NAME`, and its one output, `objection`, is the sentence
that the function returns, as bytes; none where it returns None or "".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opsieve.backends.compilers.worker_common import Adapter

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

GROUP = "opsieve.oracles"


class UserOracle(Adapter):
    """The backend `oracle`, whose option names the function."""

    name = "oracle"
    helper = True
    options: Mapping[str, tuple[str, ...]] = {"name": ()}
    irs = ("onnx", "relax", "tir")
    # A user's function may hang; its run is limited like any other.
    seconds = 10.0

    def load(self) -> str:
        """Import numpy, so that forked workers find it loaded."""
        import numpy

        return str(numpy.__version__)

    def prepare(self, request: Request) -> Run:
        """Load the function that the option names."""
        from importlib.metadata import entry_points

        import numpy as np

        name = request.options["name"]
        entry = next(iter(entry_points(group=GROUP, name=name)), None)
        if entry is None:
            raise LookupError("the oracle %s is not installed" % name)
        find_objection = entry.load()

        def run(values: dict[str, Any]) -> dict[str, Any]:
            given: dict[str, dict[str, Any]] = {"in": {}, "out": {}}
            for key, value in values.items():
                kind, _, label = key.partition("/")
                given[kind][label] = value
            said = find_objection(model=request.model, inputs=given["in"], outputs=given["out"])
            # Cut, since the sentence stands in reports and in the store.
            return {"objection": np.frombuffer(str(said or "").encode("utf-8", "replace")[:4000], np.uint8)}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify an exception: the oracle was not heard."""
        return "environment"


BACKEND = UserOracle()
