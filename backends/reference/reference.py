"""The ONNX reference evaluator, native or in float64: a slow and plain definition of the operators.

`reference` computes every tensor in its own type; `reference:float64` computes the promoted model
(opsieve.backends.compilers.float64_model) and leaves its outputs in float64. Both record the places where
ONNX leaves the result open (opsieve.backends.reference.hazards).
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsieve.backends.compilers.worker_common import Adapter

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

# Begins the note that the native evaluator leaves on a model it ran all the same
REFUSED = "onnx.checker refuses the model: "

# A large graph can divide by zero in every node; some hazards are enough to explain an output.
_MAX_HAZARDS = 64
_UNSUPPORTED = (
    "Unknown",
    "RuntimeImplementationError",
    "NotImplementedError",
    "Unpromotable",
    "RuntimeContextError",
)
# Evaluated in float32 even in the float64 run: its scale is a float32 by definition, and rounding to a grid
# that is a little off moves half of the ties.
_OWN_TYPE = frozenset(["DynamicQuantizeLinear"])


class ReferenceBackend(Adapter):
    """The evaluator of the `onnx` package; its options are `precision=native|float64`, and `tell=onnx`, which
    returns an ONNX model of the run of a program of another IR.
    """

    name = "reference"
    package = "onnx"
    helper = True
    options: Mapping[str, tuple[str, ...]] = {"precision": ("native", "float64"), "tell": ("values", "onnx")}
    main_option = "precision"
    baseline: Mapping[str, str] = {}
    environment: Mapping[str, str] = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    starts_processes = False
    maps_tensors = True
    lacks: tuple[str, ...] = ("operators outside the ONNX standard", "speed")

    @property
    def irs(self) -> tuple[str, ...]:
        """Every IR that is installed: the record of each says whether it has an evaluator."""
        from opsieve.gen.irs.registry import ir_names

        return ir_names()

    def load(self) -> str:
        """Import the evaluator, and evaluate one Relu so that forked workers find lazy parts and the
        operators' declarations loaded.
        """
        import numpy as np
        import onnx.reference.ops._op_list
        from onnx import helper

        from opsieve.backends.protocol import Request

        x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "warm", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        request = Request(model.SerializeToString(), {"precision": "native"}, {}, lambda stage: None)
        # The test that meets it again reports it.
        with contextlib.suppress(Exception):
            self.prepare(request)({"x": np.ones(1, np.float32)})
        return str(onnx.__version__)

    def prepare(self, request: "Request") -> "Run":
        """Build the evaluator; values are fed and returned by name, an absent optional as None."""
        from opsieve.gen.irs.registry import ONNX, ir_named, load_named

        if request.ir != ONNX:
            evaluator = ir_named(request.ir).evaluator
            if not evaluator:
                raise NotImplementedError(f"the IR {request.ir} has no evaluator")
            prepared: Run = load_named(evaluator)(request)
            return prepared
        import onnx

        from opsieve.backends.compilers.float64_model import promote, promote_value
        from opsieve.backends.reference import old_forms, reference_ops
        from opsieve.backends.reference.contrib.operators import OPERATORS as CONTRIB
        from opsieve.gen.model.detached import as_inputs

        request.stage("import")
        weights = _map_tensors(request)
        model = onnx.load_model_from_string(request.model)
        # Large tensors are fed as inputs, so that they need not be copied into a protobuf message.
        if weights:
            model = as_inputs(model, weights)
        wide = request.options.get("precision") == "float64"
        if not wide:
            _check(model, request)
        request.stage("compile")
        opset = old_forms.opset_of(model)
        # onnx's evaluator refuses an attribute that it does not know.
        if opset < old_forms.BARE:
            model = old_forms.without_history(model)
        watch = _Watch(model, wide)
        evaluator = _evaluator(watch)(
            promote(model, bits=True) if wide else model,
            new_ops=[*old_forms.operators(opset), *reference_ops.OPERATORS, *CONTRIB],
        )
        known = set(evaluator.input_names)
        names = list(evaluator.output_names)

        def run(inputs: dict[str, Any]) -> dict[str, Any]:
            import numpy as np

            given = {**inputs, **weights}
            fed = {
                name: promote_value(value) if wide else value
                for name, value in given.items()
                if name in known
            }
            # An optional graph input that was left out is an absent optional.
            fed.update({name: None for name in watch.optional_inputs if name not in fed})
            # The prepared run is called several times.
            watch.found.clear()
            # Warnings of numpy's about overflow and NaN tell nothing here: the values are looked at.
            with np.errstate(all="ignore"):
                try:
                    values = dict(zip(names, evaluator.run(None, fed), strict=True))
                except Exception:
                    # Also of a failed run: a place that ONNX leaves open may be why it failed.
                    request.hazards[:] = watch.hazards(names)
                    raise
                depending = names
                # A second run costs as much as the first, so that it is made only where something is open.
                if watch.left_open():
                    depending = watch.depending(values, lambda: evaluator.run(None, fed))
                request.hazards[:] = watch.hazards(depending)
            return values

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify missing operators as `unsupported`, values that a page forbids as `rejected`, and
        everything else as its own error.
        """
        kind = exception.rpartition(".")[2]
        # A TIR function without a defined result, or values that a page forbids.
        if kind in ("Undefined", "Forbidden"):
            return "rejected"
        if kind in _UNSUPPORTED or (kind in ("ImportError", "ModuleNotFoundError") and stage != "import"):
            return "unsupported"
        if kind == "MemoryError" or kind == "_ArrayMemoryError":
            return "out-of-memory"
        # numpy refuses an index that the operator's page does not allow either.
        if kind == "IndexError" and "out of bounds" in message:
            return "rejected"
        return "error"

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script; "" for float64, which onnx cannot do
        by itself.
        """
        return _SCRIPT if options["precision"] == "native" else ""


def _map_tensors(request: "Request") -> dict[str, Any]:
    """Map large tensors by name; an empty dict if one of them is packed: the request then holds the whole
    model.
    """
    import numpy as np
    from onnx import helper

    from opsieve.gen.model.tensors import DTYPES, data_size

    # Types of less than a byte are packed, so that numpy cannot map them.
    if any(data_size(DTYPES[number], 4) < 4 for _, number, _, _ in request.mapped):
        request.model = request.whole()
        return {}
    return {
        name: np.frombuffer(data, helper.tensor_dtype_to_np_dtype(number)).reshape(shape)
        for name, number, shape, data in request.mapped
    }


_SCRIPT = """\
def run(model, inputs):
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.load_model_from_string(model))
    return dict(zip(evaluator.output_names, evaluator.run(None, inputs)))
"""


class _Watch:
    """The hazards that one evaluation met, by the top-level node in which they happened."""

    def __init__(self, model: Any, wide: bool) -> None:
        given = {tensor.name for tensor in model.graph.initializer}
        self.graph = model.graph
        self.wide = wide
        self.found: dict[tuple[str, int], tuple[str, str]] = {}
        self.disturbing = False
        # Depth of nodes; the first is the place of the top-level one
        self.running: list[int] = []
        self.optional_inputs = [
            value.name
            for value in model.graph.input
            if value.type.WhichOneof("value") == "optional_type" and value.name not in given
        ]

    def on_hazard(self, node: Any, rule: str) -> None:
        if len(self.found) < _MAX_HAZARDS:
            label = node.onnx_node.name or next(iter(node.onnx_node.output), "")
            # Once for each rule and node: a loop meets the same one in each turn.
            self.found.setdefault((rule, self.running[0]), (label, node.onnx_node.op_type))

    def left_open(self) -> bool:
        from opsieve.backends.reference.hazards import leaves_open

        return any(leaves_open(rule) for rule, _ in self.found)

    def depending(self, values: dict[str, Any], again: Callable[[], Any]) -> list[str]:
        """Return the outputs that change when every open element gets another value: the others
        were guarded.
        """
        from opsieve.backends.compare import identical

        self.disturbing = True
        try:
            changed = again()
        except Exception:  # noqa: BLE001
            # Another value was not fit for what comes after: all may depend on it
            return list(values)
        finally:
            self.disturbing = False
        return [
            name
            for (name, value), other in zip(values.items(), changed, strict=True)
            if not identical(value, other)
        ]

    def hazards(self, depending: Sequence[str]) -> list[dict[str, Any]]:
        """Return the hazards met as JSON objects. An open result only affects its dependent outputs, possibly
        an empty list, although a compiler may still raise.
        """
        from opsieve.backends.reference.hazards import leaves_open, nodes_reaching

        if not self.found:
            return []
        reach = nodes_reaching(self.graph)
        met: list[dict[str, Any]] = []
        for (rule, place), (label, operator) in self.found.items():
            open_ = leaves_open(rule)
            outputs = reach[place] & set(depending) if open_ else reach[place]
            if outputs or open_:
                met.append({"rule": rule, "node": label, "operator": operator, "outputs": sorted(outputs)})
        return met


class _Watched:
    """One node of the evaluator; looks at what goes in and comes out."""

    def __init__(self, node: Any, watch: _Watch, place: int) -> None:
        self._node, self._watch, self._place = node, watch, place
        self._standard = node.onnx_node.domain in ("", "ai.onnx")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def run(self, *inputs: Any, **context: Any) -> tuple[Any, ...]:
        from opsieve.backends.compilers.float64_model import narrow_value, promote_value, refuse_bits
        from opsieve.backends.reference.forbidden import Forbidden, forbidden
        from opsieve.backends.reference.hazards import disturb_value, leaves_open, open_results

        node, watch = self._node, self._watch
        # A body runs inside of its node, whose place is the first of the list.
        watch.running.append(self._place)
        try:
            fed = inputs
            if watch.wide and node.op_type in _OWN_TYPE:
                fed = tuple(narrow_value(value) for value in inputs)
            # The bits of a float64 are others than those of the model's type.
            if watch.wide and node.op_type == "BitCast":
                refuse_bits(inputs[0])
            broken = forbidden(node.op_type, node, inputs) if self._standard else ""
            if broken:
                raise Forbidden(broken)
            outputs = node.run(*fed, **context)
            if watch.wide:
                # Several implementations, and the function bodies of operators, make float32 whatever they
                # are given.
                outputs = tuple(promote_value(value) for value in outputs)
            if self._standard:
                for rule, mask in open_results(node.op_type, node, inputs, outputs):
                    if not watch.disturbing:
                        watch.on_hazard(node, rule)
                    elif leaves_open(rule):
                        rest = (
                            outputs[1:]
                            if mask is not None
                            else [disturb_value(value, None) for value in outputs[1:]]
                        )
                        outputs = (disturb_value(outputs[0], mask), *rest)
        finally:
            watch.running.pop()
        return tuple(outputs)


def _evaluator(watch: _Watch) -> Any:
    from onnx.reference import ReferenceEvaluator

    class Evaluator(ReferenceEvaluator):
        """Also evaluates bodies and local functions, so that their hazards are recorded."""

        def _init(self) -> None:
            super()._init()
            self.rt_nodes_ = [_Watched(node, watch, place) for place, node in enumerate(self.rt_nodes_)]

    return Evaluator


def _check(model: Any, request: "Request") -> None:
    # The evaluator runs most invalid models without a word; who asks whether a program is valid reads this
    # note.
    import onnx

    from opsieve.backends.reference.forbidden import ILL_TYPED, ill_typed
    from opsieve.gen.irs.onnx.model_file import check

    # inference raises several unrelated classes, and the checker says why
    with contextlib.suppress(Exception):
        # The checker wants a shape of every output, which many an exporter leaves out.
        model = onnx.shape_inference.infer_shapes(model)
        fault = ill_typed(model)
        if fault:
            request.notes.append(ILL_TYPED + fault)
    # A note and no error: the evaluator is also asked about models that are invalid on purpose.
    complaint = check(model.SerializeToString())
    if complaint:
        request.notes.append(REFUSED + complaint)


BACKEND = ReferenceBackend()
