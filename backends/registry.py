"""The backends that are there, found by entry point, and targets checked against them."""

import importlib
import importlib.metadata
import inspect
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from opsieve.backends.protocol import Backend
from opsieve.backends.target import BadTarget, Target

GROUP = "opsieve.backends"


@dataclass(frozen=True)
class Plugin:
    """A backend with the file and the attribute by which a worker loads it."""

    backend: Backend
    file: Path
    attribute: str


@cache
def names() -> tuple[str, ...]:
    """The names of every backend, in alphabetical order; none of them is loaded."""
    return tuple(sorted(entry.name for entry in importlib.metadata.entry_points(group=GROUP)))


@cache
def plugin(name: str) -> Plugin:
    """The backend called `name`; BadTarget when there is none or its file cannot be loaded."""
    entries = importlib.metadata.entry_points(group=GROUP, name=name)
    if not entries:
        raise BadTarget(f"there is no backend {name!r}; there are {', '.join(names())}")
    entry = next(iter(entries))
    try:
        module = importlib.import_module(entry.module)
        backend: Backend = getattr(module, entry.attr)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise BadTarget(
            f"the backend {name} cannot be loaded ({error}): reinstall the package that brings it"
        ) from error
    return Plugin(backend, Path(inspect.getfile(module)).resolve(), entry.attr)


def resolve(text: str | Target) -> Target:
    """The target with its bare word named and every option that differs from the default checked; BadTarget otherwise.

    Equal compilers give equal targets: `onnxruntime:all` and `onnxruntime:level=all` are the same as `onnxruntime`.
    """
    target = Target.parse(text) if isinstance(text, str) else text
    backend = plugin(target.backend).backend
    if target.release and not backend.package:
        raise BadTarget(f"{backend.name} has no releases: write {backend.name} without =={target.release}")
    chosen = {}
    for name, value in target.options:
        name = name or backend.main_option
        if name not in backend.options:
            raise BadTarget(
                f"{backend.name} has no option {(name or value)!r}; it has {', '.join(backend.options) or 'none'}"
            )
        legal = backend.options[name]
        if legal and value not in legal:
            raise BadTarget(f"{name} of {backend.name} cannot be {value!r}; it can be {', '.join(legal)}")
        if value != (legal[0] if legal else ""):
            chosen[name] = value
    return Target(target.backend, target.release, tuple(sorted(chosen.items())))


def all_options(target: Target) -> dict[str, str]:
    """A value for every option of the target's backend."""
    defaults = {name: legal[0] if legal else "" for name, legal in plugin(target.backend).backend.options.items()}
    return {**defaults, **dict(target.options)}


def baseline(target: Target) -> Target | None:
    """The unoptimised build of the same compiler, None when it has none or the target is it."""
    options = plugin(target.backend).backend.baseline
    base = resolve(target.with_options(**options)) if options else target
    return None if base == resolve(target) else base


def runtime(target: Target) -> Target | None:
    """The compiler that runs what the target makes of a program, None where the target runs it itself (`protocol.RunsElsewhere`)."""
    if target.backend not in names():
        return None
    text = getattr(plugin(target.backend).backend, "runs_on", "")
    return resolve(text) if text else None


def forms(target: Target) -> tuple[str, ...]:
    """The forms of program that the target takes (`protocol.TakesForms`)."""
    return getattr(plugin(target.backend).backend, "forms", ("onnx",))


def compilers() -> tuple[str, ...]:
    """The names of every backend whose bugs are looked for: not those that help to find them (`protocol.Helper`)."""
    return tuple(name for name in names() if not getattr(plugin(name).backend, "helper", False))


def family(target: Target) -> str:
    """The name under which backends stand that share an optimiser or its kernels (`protocol.Related`); most are their own."""
    if target.backend not in names():
        return target.backend
    return str(getattr(plugin(target.backend).backend, "family", target.backend))


def display(target: Target) -> str:
    """The target as a person writes it: its main option's value without the name."""
    if target.backend not in names():
        return str(target)
    main = plugin(target.backend).backend.main_option
    return str(
        Target(target.backend, target.release, tuple(sorted(("" if n == main else n, v) for n, v in target.options)))
    )
