"""Edits of a PyTorch program that other IRs do not have: of the plain arguments of calls, and of what is
returned.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from opsieve.gen.irs.torch.edits import TorchSubject, find_result, settle_graph
from opsieve.gen.irs.torch.graph import Argument, Ref, TorchCall


def yield_value(subject: TorchSubject, name: str) -> TorchSubject | None:
    """Return a value alone, without the calls behind it."""
    graph = subject.graph
    place = find_result(graph, name)
    if place is None:
        return None
    return settle_graph(subject, replace(graph, calls=graph.calls[: place + 1], outputs=(name,)))


def simpler_arguments(item: Argument) -> Iterator[Argument]:
    """Yield simpler arguments in the place of one, `None` last."""
    if isinstance(item, Ref) or item is None:
        return
    if isinstance(item, bool):
        yield from (False,) if item else ()
    elif isinstance(item, int | float):
        yield from (type(item)(each) for each in (0, 1, 2) if argument_weight(each) < argument_weight(item))
    elif isinstance(item, tuple) and all(type(each) is int for each in item):
        for place, each in enumerate(item):
            yield from ((*item[:place], new, *item[place + 1 :]) for new in simpler_arguments(each))
    yield None


def drop_kwarg(subject: TorchSubject, key: str, name: str) -> TorchSubject | None:
    """Leave a keyword argument out."""

    def change(call: TorchCall) -> TorchCall:
        return replace(call, kwargs=tuple(item for item in call.kwargs if item[0] != name))

    return _change_call(subject, key, change)


def set_argument(
    subject: TorchSubject, key: str, place: int, old: Argument, new: Argument
) -> TorchSubject | None:
    """Give a call another argument, where it still has the old one."""

    def change(call: TorchCall) -> TorchCall:
        if place >= len(call.args) or call.args[place] != old:
            return call
        # What follows the last argument is left out.
        last = place + 1 == len(call.args) and new is None
        return replace(call, args=(*call.args[:place], *(() if last else (new,)), *call.args[place + 1 :]))

    return _change_call(subject, key, change)


def _change_call(
    subject: TorchSubject, key: str, change: Callable[[TorchCall], TorchCall]
) -> TorchSubject | None:
    graph = subject.graph
    calls = tuple(change(call) if call.key == key else call for call in graph.calls)
    if calls == graph.calls:
        return None
    types = {name: graph.types[name] for name in graph.inputs}
    return settle_graph(subject, replace(graph, calls=calls, types=types))


def argument_weight(item: Argument) -> int:
    """Return how hard an argument is to read."""
    if isinstance(item, tuple):
        return 1 + sum(map(argument_weight, item))
    if isinstance(item, bool) or item is None:
        return int(bool(item))
    if isinstance(item, int | float) and item in (0, 1, 2):
        return int(item) + 1
    return 0 if isinstance(item, Ref) else 4 + len(str(item))
