"""Search values for a model's leaves that keep every intermediate result finite, by gradients: the worker's
side.

NNSmith's search (ASPLOS 2023, section 3.3, algorithm 3): run the model operator by operator; at the first NaN
or infinity, take the first positive loss of that operator, and let Adam move the leaves against its gradient;
restart Adam when another operator or loss takes its turn; draw new values when the leaves stop moving. The
losses are the `safe` domains and the `relation`s of the declarations (gen/operators), which the generator
samples by, too. Operators whose derivative is zero somewhere have a proxy: their value with the derivative of
a nearby function (paper, "proxy derivative").

The limit is on iterations, not on time, so that equal seeds give equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsieve.backends.compilers.worker_common import Adapter

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

_RATE = 0.1  # of Adam, at first
_FASTER = 1.2  # each time that the same loss is in turn again and no larger
_FASTEST = 4.0
_PATIENCE = 24  # iterations with one loss, after which new values are drawn
_LOST = 24  # restarts on end because nothing moved what offends at one place: no draw reached it, none will
_APART = 0.05  # from what must not be zero
_STARTS = ((0.2, 2.0), (-2.0, 2.0), (1.0, 9.0), (-1.0, 1.0), (0.1, 0.9), (-8.0, 8.0), (-0.5, 0.5), (1.1, 3.0))


class Offence(Exception):
    """The first NaN or infinity of a run: the operator, its index among those run, and what went in."""

    def __init__(self, name: str, place: int, values: Sequence[Any]) -> None:
        super().__init__(name)
        self.name, self.place, self.values = name, place, values


class ValueSearch(Adapter):
    """The backend `value-search`: its outputs are new values of inputs and weights by name, not results of
    the model.

    An empty set of outputs means that the search failed. An input without a name is the seed, because an
    option would need a worker of its own. `method` decides how to react to a domain violation; `off` for
    `proxy` keeps the true derivatives.
    """

    name = "value-search"
    extra = "torch"
    helper = True
    options: Mapping[str, tuple[str, ...]] = {
        "method": ("gradient", "sampling"),
        "proxy": ("on", "off"),
        "weights": ("off", "on"),
        "iterations": (),
    }
    main_option = "method"
    baseline: Mapping[str, str] = {}
    environment: Mapping[str, str] = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    lacks: tuple[str, ...] = ("outputs: it looks for values to feed", "what torch lacks")

    def load(self) -> str:
        """Import torch, the lowering and the declarations; one thread."""
        import torch

        import opsieve.backends.compilers.torch.table
        import opsieve.gen.analysis.input_ranges  # noqa: F401

        torch.set_num_threads(1)
        return str(torch.__version__)

    def prepare(self, request: Request) -> Run:
        """Lower the model; the function returned looks for values, beginning with those that it is given."""
        import onnx

        options = request.options
        model = onnx.load_model_from_string(request.model)
        search = InputSearch(
            model,
            {name: value for name, value in request.inputs.items() if name},
            int(request.inputs.get("", 0)),
            options["weights"] == "on",
            options["proxy"] == "on",
            options["method"] == "sampling",
        )

        def run(values: dict[str, Any]) -> dict[str, Any]:
            found, count = search.run(
                {name: value for name, value in values.items() if name}, int(options["iterations"] or 200)
            )
            request.notes.append(f"iterations: {count}")
            return found

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify gaps of the lowering as unsupported, and a missing torch as `environment`."""
        kind = exception.rpartition(".")[2]
        if kind in ("ImportError", "ModuleNotFoundError"):
            return "environment"
        return "unsupported" if kind in ("Unsupported", "NotImplementedError", "RuntimeError") else "error"


class InputSearch:
    """One model, lowered, and the leaves that may move."""

    def __init__(
        self, model: Any, inputs: Mapping[str, Any], seed: int, weights: bool, proxy: bool, sampling: bool
    ) -> None:
        from opsieve.backends.compilers.torch import table as torch_table
        from opsieve.backends.compilers.torch.values import DTYPES
        from opsieve.gen.analysis.typed_graph import movable, read_graph
        from opsieve.gen.declarations.catalogue import operators
        from opsieve.gen.declarations.rng import Rng

        self.table = torch_table
        self.operators = operators()
        self.sampling = sampling
        self.draw = Rng(f"value search {seed}")
        graph = read_graph(model, inputs)
        self.leaves = [leaf for leaf in movable(graph, weights) if leaf.dtype in DTYPES]
        self.leaves = [leaf for leaf in self.leaves if leaf.dtype.startswith(("float", "bfloat"))]
        opsets = {item.domain: item.version for item in model.opset_import}
        self.kinds = {tensor.name: tensor for tensor in graph.tensors()}
        self.block = _lowering(torch_table, self.kinds)(model).graph(model.graph, opsets)
        self.absent = {item.name: None for item in model.graph.input}
        self.place = 0
        for step in _every(self.block):
            self.watch(step, proxy)

    def watch(self, step: Any, proxy: bool) -> None:
        """Have a step raise Offence at a result that is not finite; give it its proxy."""
        flow, name = step.flow, step.node.op
        rule = OWN.get(name, step.rule)
        stand_in = getattr(step, "stand_in", None)
        slope = PROXIES.get(name) if proxy else None

        def run_watched(node: Any, *values: Any) -> Any:
            self.place += 1
            try:
                made = rule(node, *values)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                if stand_in is None:
                    raise
                try:
                    made = stand_in(node, *values)
                except self.table.Unsupported:
                    raise error from None
            if _has_non_finite(made):
                raise Offence(name, self.place, values)
            if slope is not None and _moves(values[0]):
                made = made + slope * (values[0] - values[0].detach())
            return made

        def flowing(step: Any, values: list[Any], env: Any, tape: Any) -> Any:
            self.place += 1
            place = self.place
            made = flow(step, values, env, tape)
            if _has_non_finite(made):
                raise Offence(name, place, values)
            return made

        step.rule = run_watched
        if flow is not None:
            step.flow = flowing

    def run(self, given: Mapping[str, Any], iterations: int) -> tuple[dict[str, Any], int]:
        """Return the leaves' values by name and the number of iterations; an empty dict if the limit was
        reached.
        """
        import torch

        values = {name: self.table.to_tensor(value) for name, value in given.items()}
        for name, buffer in self.block.constants.items():
            values.setdefault(name, getattr(self.block, buffer))
        wide = {
            leaf.name: torch.float64 if leaf.dtype == "float64" else torch.float32 for leaf in self.leaves
        }
        masters = {
            leaf.name: values[leaf.name].detach().to(wide[leaf.name]).clone().requires_grad_()
            for leaf in self.leaves
            if isinstance(values.get(leaf.name), torch.Tensor)
        }
        turn, adam, since, rate, last = None, None, 0, _RATE, 0.0
        unmoved = (0, 0)  # a place, and how often nothing moved it
        for count in range(iterations):
            self.place = 0
            try:
                self.evaluate(values, masters)
                return {name: self.narrow(name, master, values) for name, master in masters.items()}, count
            except Offence as offence:
                if self.sampling or not masters:
                    self.restart(masters)
                    continue
                kind, loss = self.loss(offence)
                since = since + 1 if (offence.place, kind) == turn else 0
                now = float(loss.detach()) if loss is not None else 0.0
                rate = (min(rate * _FASTER, _FASTEST) if now <= last else rate / 2) if since else _RATE
                last = now
                if not since:
                    turn, adam = (offence.place, kind), torch.optim.Adam(list(masters.values()), lr=rate)
                moved = loss is not None and self.move(loss, masters, adam, rate)
                if moved:
                    unmoved = (0, 0)
                else:
                    unmoved = (offence.place, unmoved[1] + 1 if unmoved[0] == offence.place else 1)
                    if unmoved[1] > _LOST:
                        return {}, count
                if since > _PATIENCE or not moved:
                    self.restart(masters)
                    turn = None
        return {}, iterations

    def evaluate(self, values: Mapping[str, Any], masters: Mapping[str, Any]) -> None:
        """One run; Offence at the first result that is not finite."""
        env = dict(self.absent)
        env.update(values)
        env.update((name, master.to(values[name].dtype)) for name, master in masters.items())
        tape = self.table.Tape()
        for step in self.block.steps:
            made = step.run(env, tape)
            made = made if isinstance(made, tuple) else (made,)
            env.update((name, value) for name, value in zip(step.outputs, made, strict=False) if name)

    def loss(self, offence: Offence) -> tuple[int, Any]:
        """The first positive loss of an operator, with its number: domains by input, relations, and the sizes
        of all its inputs.
        """
        import torch

        declared = self.operators.get(offence.name)
        values: Sequence[Any] = offence.values
        for position, domain in enumerate(declared.safe if declared else ()):
            x: Any = values[position] if position < len(values) else None
            if not _moves(x):
                continue
            loss = torch.zeros((), dtype=x.dtype)
            if domain.low > -1e30:
                loss = loss + torch.relu(domain.low - x).sum()
            if domain.high < 1e30:
                loss = loss + torch.relu(x - domain.high).sum()
            if domain.nonzero:
                side = torch.where(x >= 0, 1.0, -1.0).to(x.dtype)
                loss = loss + torch.relu(_APART - side * x).sum()
            if float(loss.detach()) > 0:
                return position, loss
        if declared and declared.relation and all(isinstance(x, torch.Tensor) for x in values):
            for number, asked in enumerate(declared.relation(*values)):
                loss = torch.relu(-asked)
                loss = torch.where(torch.isfinite(loss), loss, torch.zeros_like(loss)).sum()
                if _moves(loss) and float(loss.detach()) > 0:
                    return 100 + number, loss
        sizes = [torch.log1p(x.abs()).sum() for x in values if _moves(x)]
        return 200, sum(sizes) if sizes else None

    def move(self, loss: Any, masters: Mapping[str, Any], adam: Any, rate: float) -> bool:
        """Take one step of Adam; returns False if every leaf stays. A leaf that became NaN is drawn anew."""
        import torch

        adam.zero_grad()
        try:
            loss.backward()
        except RuntimeError:
            # nothing on the way to a leaf has a derivative, or a rule changes its operand in place
            return False
        moving = False
        for master in masters.values():
            if master.grad is not None:
                torch.nan_to_num_(master.grad, 0.0, 1e6, -1e6)
                moving = moving or bool(master.grad.any())
        if not moving:
            return False
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        lost = {name: master for name, master in masters.items() if not bool(torch.isfinite(master).all())}
        self.restart(lost)
        return True

    def restart(self, masters: Mapping[str, Any]) -> None:
        """New values for leaves."""
        import torch

        from opsieve.gen.graph.writing import fill_array

        for master in masters.values():
            low, high = self.draw.choice(_STARTS)
            fresh = fill_array("float64", tuple(master.shape), low, high, self.draw.random())
            with torch.no_grad():
                master.copy_(torch.from_numpy(fresh))

    def narrow(self, name: str, master: Any, values: Mapping[str, Any]) -> Any:
        """A leaf's value in its own type."""
        return self.table.to_value(master.detach().to(values[name].dtype))


def _lowering(table: Any, kinds: Mapping[str, Any]) -> Any:
    """The table's lowering, in which a stand-in without derivatives serves where the table has no rule or its
    rule fails.
    """
    import onnx

    class SearchLowering(table.Lowering):  # type: ignore[misc]
        def choose(self, step: Any, proto: Any, domain: str, opsets: Mapping[str, int]) -> None:
            alone = onnx.NodeProto()
            alone.CopyFrom(proto)
            step.stand_in = stand_in(table, alone, dict(opsets), kinds)
            try:
                super().choose(step, proto, domain, opsets)
            except table.Unsupported:
                if step.blocks:
                    raise
                step.rule = step.stand_in

    return SearchLowering


def stand_in(table: Any, proto: Any, opsets: dict[str, int], kinds: Mapping[str, Any]) -> Callable[..., Any]:
    """Make a rule for a node from ONNX's own evaluator; if that fails too, it gives zeros of the declared
    type, so that the search can continue.

    The caller checks the values on a compiler, so a guessed result is never trusted.
    """

    def rule(node: Any, *values: Any) -> Any:
        import numpy as np
        from onnx.reference import ReferenceEvaluator

        fed = {name: table.to_value(value) for name, value in zip(proto.input, values, strict=False) if name}
        try:
            with np.errstate(all="ignore"):
                made = ReferenceEvaluator(proto, opsets=opsets).run(None, fed)
            return tuple(table.to_tensor(value) for value in made)
        except Exception as error:  # the evaluator raises whatever numpy or a missing branch of it does
            if any(
                name and (name not in kinds or kinds[name].dtype not in table.VALUES.DTYPES)
                for name in proto.output
            ):
                raise table.Unsupported(f"{proto.op_type}: {error}") from error
            return tuple(_zeros(table, kinds[name]) if name else None for name in proto.output)

    return rule


def _zeros(table: Any, tensor: Any) -> Any:
    import torch

    shape = [side if isinstance(side, int) else 1 for side in tensor.shape]
    return torch.zeros(shape, dtype=table.VALUES.DTYPES[tensor.dtype])


def _batch_normalization(node: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *_: Any) -> Any:
    """In inference; torch's own has no derivative by mean and variance."""
    shape = [1, -1] + [1] * (x.dim() - 2)
    scale, bias, mean, variance = (t.to(x.dtype).reshape(shape) for t in (scale, bias, mean, variance))
    return (x - mean) / (variance + node("epsilon", 1e-5)) ** 0.5 * scale + bias


def _every(block: Any) -> list[Any]:
    """The steps of a block and of the bodies in it."""
    found = []
    for step in block.steps:
        found.append(step)
        for body in step.blocks.values():
            found += _every(body)
    return found


def _has_non_finite(made: Any) -> bool:
    import torch

    if isinstance(made, (tuple, list)):
        return any(map(_has_non_finite, made))
    if not isinstance(made, torch.Tensor) or not made.is_floating_point() or made.element_size() < 2:
        return False
    return not bool(torch.isfinite(made.detach()).all())


def _moves(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.requires_grad


# Element-wise operators whose derivative is zero in places, and the slope that is added to it: of steps that
# of the line through them.
PROXIES: Mapping[str, float] = {
    **dict.fromkeys(("Floor", "Ceil", "Round"), 1.0),
    **dict.fromkeys(("Relu", "ThresholdedRelu", "HardSwish", "HardSigmoid", "Clip", "Sign", "Shrink"), 0.02),
}
OWN: Mapping[str, Callable[..., Any]] = {"BatchNormalization": _batch_normalization}

BACKEND = ValueSearch()
