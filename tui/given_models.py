"""Generated models for the tests of a compiler of one's own: a decorator, and a strategy for Hypothesis.

opsieve's reducer makes a failing model small. It knows models, so its results are smaller than those of a
shrinker that only knows the seed.
"""

import functools
import inspect
import os
import secrets
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from opsieve.backends.judge.oracles import FLOAT64
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, NoFailure
from opsieve.gen.generation import random_graph, request as gen_request
from opsieve.gen.model.printable import count_noun
from opsieve.gen.strategies.registry import generate, load_strategy
from opsieve.gen.values.values import RANGED, named_values
from opsieve.triage.campaign.plan import make_seed
from opsieve.tui.api import reduce

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_GIVEN = ("model", "inputs", "expected", "case")


def given_models(
    *,
    nodes: int | str = "5-30",
    operators: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    strategy: str = "mix",
    values: str = RANGED,
    examples: int = 100,
    seed: int | None = 0,
    unsupported: type[Exception] | tuple[type[Exception], ...] = (),
    output: str | os.PathLike[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with generated models, and reduce the first model for which it raises.

    The test takes any of ``model`` (an ``onnx.ModelProto``), ``inputs`` (arrays by name), ``expected``
    (outputs by name of the reference evaluator in float64) and ``case`` (an ``opsieve`` Case). Its other
    parameters stay those of pytest. A smaller model counts if the test raises the same exception at the same
    line.

    Args:
        nodes: Number of nodes, such as ``10`` or ``"5-60"``.
        operators: Patterns of operators to use (``"Conv*"``) or to exclude (``"-Loop"``); all if empty.
        dtypes: Element types to use; all if empty.
        strategy: Name of the generation strategy.
        values: How input values are chosen.
        examples: Number of models.
        seed: Seed of the models; a random one if None.
        unsupported: Exceptions by which the compiler refuses a model that it does not support; such models
            count neither for nor against it.
        output: Folder of the reduced model; a new temporary one if None.

    Returns:
        The decorator.

    Raises:
        BadInput: If an option cannot be used, or the test takes none of the values.
    """
    make = _make_generator(nodes, operators, dtypes, strategy, values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        wanted = [name for name in _GIVEN if name in signature.parameters]
        if not wanted:
            raise BadInput(f"a test of given_models takes one of {', '.join(_GIVEN)}")

        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            start = secrets.randbits(32) if seed is None else seed
            with Workers() as workers:
                session = _Session(test, args, kwargs, wanted, ObservationCache(workers))
                refused = 0
                for number in range(examples):
                    case, failure = make(make_seed(start, number)), None
                    try:
                        refused += not session.call_test(case)
                    except unsupported:
                        refused += 1
                    except _list_failures() as error:
                        failure = error
                    # Outside of the handler, so that only the error of the small model is shown
                    if failure is not None:
                        session.raise_reduced(case, failure, output, f"model {number} of seed {start}")
                # A test that never ran must not pass.
                if refused == examples:
                    raise AssertionError(
                        f"the test ran on none of {count_noun(examples, 'model')}:"
                        " the compiler supports none, or the reference computes none"
                    )

        kept = [each for name, each in signature.parameters.items() if name not in wanted]
        # pytest would look for fixtures of these names.
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate


def models(
    *,
    nodes: int | str = "5-30",
    operators: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    strategy: str = "mix",
    values: str = RANGED,
) -> "SearchStrategy[Case]":
    """Return a Hypothesis strategy that draws models as cases.

    Hypothesis only sees a seed, so its shrinking finds no smaller model: switch it off, and call `reduce`
    with the test as its ``check``.

    Args:
        nodes: Number of nodes, such as ``10`` or ``"5-60"``.
        operators: Patterns of operators to use (``"Conv*"``) or to exclude (``"-Loop"``); all if empty.
        dtypes: Element types to use; all if empty.
        strategy: Name of the generation strategy.
        values: How input values are chosen.

    Returns:
        The strategy; each case has ``program.proto`` and ``inputs``.

    Raises:
        BadInput: If an option cannot be used.
    """
    from hypothesis import strategies

    return strategies.integers(0, 2**62).map(_make_generator(nodes, operators, dtypes, strategy, values))


def _make_generator(
    nodes: int | str, operators: Sequence[str], dtypes: Sequence[str], strategy: str, values: str
) -> Callable[[int], Case]:
    """Return the function that makes the case of a seed."""
    low, high = gen_request.parse_nodes(str(nodes))
    request = random_graph.GenRequest(
        nodes=low,
        between=(low, high) if low != high else None,
        only=gen_request.select_operators(gen_request.split_items(operators)),
        dtypes=gen_request.select_dtypes(gen_request.split_items(dtypes)),
        values=named_values(values),
    )
    # Now, so that an unknown name fails where the decorator stands.
    load_strategy(strategy)
    return lambda seed: generate(strategy, seed, request)


def _list_failures() -> tuple[type[BaseException], ...]:
    """Return the exceptions that mean a failure: pytest's own is not an Exception."""
    import pytest

    return Exception, pytest.fail.Exception


class _Session:
    """One call of a test with all of its models."""

    def __init__(
        self,
        test: Callable[..., None],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        wanted: Sequence[str],
        lab: ObservationCache,
    ):
        self._test, self._args, self._kwargs, self._wanted, self._lab = test, args, kwargs, wanted, lab

    def call_test(self, case: Case) -> bool:
        """Call the test; return False if the reference gives no expected outputs."""
        __tracebackhide__ = True
        given: dict[str, Any] = {"case": case, "inputs": dict(case.inputs)}
        if "model" in self._wanted:
            given["model"] = case.program.proto  # type: ignore[attr-defined]
        if "expected" in self._wanted:
            given["expected"] = self._lab.observe(FLOAT64, case.program, case.inputs).outputs
            if given["expected"] is None:
                return False
        self._test(*self._args, **self._kwargs, **{name: given[name] for name in self._wanted})
        return True

    def raise_reduced(
        self, case: Case, error: BaseException, output: str | os.PathLike[str] | None, which: str
    ) -> None:
        """Reduce a failing case, and raise the exception of the test for the smallest one."""
        __tracebackhide__ = True
        origin = _find_origin(error)

        def is_failing(smaller: Case) -> bool:
            try:
                self.call_test(smaller)
            except _list_failures() as raised:
                # Another exception, or one from another line, is another bug.
                return _find_origin(raised) == origin
            return False

        try:
            reduced = reduce(case, check=is_failing, output=output)
        except NoFailure:
            reduced = None
        if reduced is None or reduced.reduction is None:
            error.add_note(f"opsieve: {which}; it does not always fail, so it was not reduced")
            raise error
        facts, best = reduced.facts, reduced.reduction.best
        note = (
            f"opsieve: {which}, reduced from {facts['nodes_before']} to"
            f" {count_noun(facts['nodes_after'], 'node')}:"
            f" {facts['output']}\n{reduced.text}"
        )
        try:
            # Once more, so that pytest shows the values of the small model.
            self.call_test(Case(best.program, best.inputs))
        except _list_failures() as raised:
            raised.add_note(note)
            raise
        error.add_note(note)
        raise error


def _find_origin(error: BaseException) -> tuple[type[BaseException], str, int | None]:
    """Return the type of an exception and the line that raised it."""
    # The innermost frame: where it was raised, not where the test called.
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return type(error), frame.filename, frame.lineno
