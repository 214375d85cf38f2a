"""The backends that are there, found by entry point, and targets resolved against them.

Text becomes a `ResolvedTarget` once, where it enters (an option, a case, a store); everything behind that
takes the object.
"""

import importlib.metadata
import inspect
import os
import sys
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path

from opsieve.backends.protocol import Backend, BackendFacts, facts_of
from opsieve.backends.target import BadTarget, Target, absolute_command
from opsieve.gen.errors import BadInput, load_plugin, suggest_name

GROUP = "opsieve.backends"
# Options that every backend has: they are no matter of the compiler's.
REWRITE, ORACLE = "rewrite", "oracle"


# How a worker finds a backend: the name of its module, the `__init__.py` of the outermost package around it
# (the module's own file where there is no package), and the attribute of the module.
Location = tuple[str, str, str]


@dataclass(frozen=True)
class Plugin:
    """A backend, and how a worker finds it."""

    backend: Backend
    location: Location
    facts: BackendFacts


@cache
def _entries() -> dict[str, dict[str, importlib.metadata.EntryPoint]]:
    """Return entry points by name and by value, cached: the look-up reads a file of every distribution."""
    found: dict[str, dict[str, importlib.metadata.EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        # By value: one distribution that is found twice on sys.path brings no second backend.
        found.setdefault(entry.name, {})[entry.value] = entry
    return found


def names() -> tuple[str, ...]:
    """List the names of all backends, in alphabetical order, without loading them."""
    return tuple(sorted(_entries()))


@cache
def plugin(name: str) -> Plugin:
    """Return the backend called `name`; raises BadTarget if there is none, if there are two, or if its file
    cannot be loaded.
    """
    entries = list(_entries().get(name, {}).values())
    if len(entries) > 1:
        brought = " and ".join(entry.dist.name if entry.dist else entry.value for entry in entries)
        raise BadTarget(
            f"two backends are called {name}, one of each of {brought}: uninstall one, or rename its entry"
            " point"
        )
    entry = next(iter(entries), None)
    if entry is None:
        hint = suggest_name(name, names()) or f"; there are {', '.join(names())}"
        raise BadTarget(f"there is no backend {name!r}{hint}")
    backend: Backend = load_plugin(entry, "backend", BadTarget)
    module = sys.modules[entry.module]
    root = sys.modules[entry.module.partition(".")[0]]
    # A namespace package has no file.
    file = inspect.getfile(root if getattr(root, "__file__", None) else module)
    return Plugin(backend, (entry.module, str(Path(file).resolve()), entry.attr), facts_of(backend))


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """A target whose backend is installed and has its options, with the facts known without a worker.

    Made by `resolve`. `target` is in normal form (every option named, defaults left out), so equal compilers
    are equal.
    """

    target: Target
    plugin: Plugin = field(compare=False, repr=False)

    @property
    def backend(self) -> Backend:
        """Its backend."""
        return self.plugin.backend

    @property
    def facts(self) -> BackendFacts:
        """The facts that its backend states about itself."""
        return self.plugin.facts

    @property
    def name(self) -> str:
        """The name of its backend."""
        return self.target.backend

    @property
    def release(self) -> str:
        """The release, "" for the installed package and for a build."""
        return self.target.release

    @property
    def build(self) -> str:
        """The absolute path of a build, or the words of a command; "" for neither."""
        return self.target.build

    @property
    def options(self) -> dict[str, str]:
        """A value for every option of the backend."""
        defaults = {name: legal[0] if legal else "" for name, legal in self.facts.options.items()}
        if self.facts.runs_command:
            defaults["command"] = self.build
        return {
            **defaults,
            **{name: value for name, value in self.target.options if name in self.facts.options},
        }

    @property
    def rewrite(self) -> str:
        """How programs are rewritten before the compiler gets them (gen/rewrites), "" for not at all."""
        return self.target.option(REWRITE)

    @property
    def oracles(self) -> tuple[str, ...]:
        """The user's oracles that are asked about outputs (docs/how-to/write-an-oracle.md)."""
        return tuple(filter(None, self.target.option(ORACLE).split("+")))

    @property
    def unrewritten(self) -> "ResolvedTarget":
        """The same compiler, given programs as they are."""
        return self.without(REWRITE)

    def asking(self, oracles: tuple[str, ...]) -> "ResolvedTarget":
        """Return the same compiler, about whose outputs these oracles of the user's are asked."""
        return self.with_options(**{ORACLE: "+".join(oracles)}) if oracles else self

    def without(self, option: str) -> "ResolvedTarget":
        """Return the same compiler without an option that every backend has."""
        options = tuple((name, value) for name, value in self.target.options if name != option)
        return replace(self, target=replace(self.target, options=options))

    @property
    def baseline(self) -> "ResolvedTarget | None":
        """The unoptimised build of the same compiler and release; `None` if it has none or the target is
        it.
        """
        return _baseline(self)

    @property
    def runtime(self) -> "ResolvedTarget | None":
        """The compiler that runs the target's result; `None` if the target runs it itself
        (`BackendFacts.runs_on`).
        """
        return resolve(self.facts.runs_on) if self.facts.runs_on else None

    @property
    def stand_in(self) -> "ResolvedTarget | None":
        """The target with the same outputs, if this one passes programs through unchanged
        (`BackendFacts.unchanged`); `None` for others.

        The runtime that a release uses may differ.
        """
        return _stand_in(self)

    @property
    def showing_graph(self) -> "ResolvedTarget | None":
        """The same build, set to return its optimised graph instead of computing
        (`BackendFacts.shows_graph`); `None` if it cannot.
        """
        shows = self.facts.shows_graph
        return self.with_options(**shows) if shows else None

    @property
    def irs(self) -> tuple[str, ...]:
        """The IRs whose programs the target takes (`BackendFacts.irs`)."""
        return self.facts.irs

    @property
    def family(self) -> str:
        """The name under which backends stand that share an optimiser or its kernels (`BackendFacts.family`);
        most are their own.
        """
        return self.facts.family or self.name

    @property
    def libraries(self) -> tuple[str, ...]:
        """The absolute paths of the user's libraries that its workers load (`BackendFacts.libraries`)."""
        option = self.facts.libraries
        return tuple(filter(None, self.target.option(option).split("+"))) if option else ()

    @property
    def zygote(self) -> tuple[str, str]:
        """The zygote that serves the target: its backend, or the one that shares its zygote
        (`BackendFacts.shares_zygote_of`), and the release or `@` and the build, with the files that only its
        sandbox shows.
        """
        version = f"@{self.build}" if self.build else self.release
        version = "+".join([version, *self.libraries])
        return (self.facts.shares_zygote_of or self.name, version)

    @property
    def display(self) -> str:
        """The target as a person writes it: its main option's value without the name."""
        return _display(self)

    def with_options(self, **changes: str) -> "ResolvedTarget":
        """Return the same compiler with other values of some options; raises BadTarget for an option or a
        value that it does not have.
        """
        return replace(self, target=_normal(self.target.with_options(**changes), self.facts))

    def with_release(self, release: str) -> "ResolvedTarget":
        """Return the same compiler and options in another release."""
        return replace(self, target=replace(self.target, release=release, build=""))

    def __str__(self) -> str:
        return str(self.target)


# Cached, because each test asks several times.
@lru_cache(maxsize=1024)
def _baseline(target: ResolvedTarget) -> ResolvedTarget | None:
    base = target.with_options(**target.facts.baseline)
    return None if base == target else base


@lru_cache(maxsize=1024)
def _stand_in(target: ResolvedTarget) -> ResolvedTarget | None:
    unchanged = target.facts.unchanged
    hands_on = unchanged and unchanged.items() <= target.options.items()
    return (
        target.runtime
        if hands_on and not (target.release or target.build or target.rewrite or target.oracles)
        else None
    )


@lru_cache(maxsize=1024)
def _display(target: ResolvedTarget) -> str:
    main = target.facts.main_option
    pairs = sorted(("" if name == main else name, value) for name, value in target.target.options)
    return str(replace(target.target, options=tuple(pairs)))


def resolve(text: str | Target) -> ResolvedTarget:
    """Return the target with its bare word named and every option that differs from the default checked;
    raises BadTarget otherwise.

    Equal compilers give equal targets: `onnxruntime:all` and `onnxruntime:level=all` are the same as
    `onnxruntime`. The path of a build becomes absolute; whether there is one is not looked at
    (`releases.builds`).
    """
    target = Target.parse(text) if isinstance(text, str) else text
    found = plugin(target.backend)
    if target.release and not found.facts.package:
        raise BadTarget(
            f"{found.facts.name} has no releases: write {found.facts.name} without =={target.release}"
        )
    if found.facts.runs_command:
        target = replace(target, build=absolute_command(target.build))
    elif target.build:
        if not found.facts.package:
            raise BadTarget(
                f"{found.facts.name} has no builds: write {found.facts.name} without @{target.build[:80]}"
            )
        # A target is stored with its cases, and read from other folders.
        target = replace(target, build=os.path.abspath(os.path.expanduser(target.build)))
    return ResolvedTarget(_normal(target, found.facts), found)


def _normal(target: Target, facts: BackendFacts) -> Target:
    """Return the target with every option named, without options at their default."""
    chosen = {}
    for name, value in target.options:
        name = name or _set_by(value, facts)
        # Of every backend, though none of them declares it.
        if name in (REWRITE, ORACLE):
            if name == REWRITE:
                # brings onnx in, which most targets do without
                from opsieve.gen.rewrites.relation import (
                    check_relation,
                )

                try:
                    check_relation(value)
                except BadInput as error:
                    raise BadTarget(str(error)) from None
            chosen[name] = value
            continue
        if name not in facts.options:
            raise BadTarget(
                f"{facts.name} has no option {(name or value)!r}; it has"
                f" {', '.join(facts.options) or 'none'}{suggest_name(name, facts.options)}"
            )
        legal = facts.options[name]
        if legal and value not in legal:
            raise BadTarget(
                f"{name} of {facts.name} cannot be {value!r}; it can be"
                f" {', '.join(legal)}{suggest_name(value, legal)}"
            )
        # Absolute: a worker has another working directory.
        if value and name == facts.libraries:
            value = "+".join(
                os.path.abspath(os.path.expanduser(path)) for path in filter(None, value.split("+"))
            )
        if value != (legal[0] if legal else ""):
            chosen[name] = value
    return replace(target, options=tuple(sorted(chosen.items())))


def _set_by(word: str, facts: BackendFacts) -> str:
    """Return the option that a bare word sets: the main one, unless only another one has that value
    (`onnxruntime:cuda`).
    """
    main = facts.options.get(facts.main_option, ())
    others = [name for name, legal in facts.options.items() if word in legal]
    # Only if one option alone has it, else the word is ambiguous.
    return others[0] if main and word not in main and len(others) == 1 else facts.main_option


def compilers() -> tuple[str, ...]:
    """List every backend that can be asked by its name and whose bugs are looked for: not those that help to
    find them (`BackendFacts.helper`).
    """
    found = ((name, plugin(name).facts) for name in names())
    return tuple(name for name, facts in found if not (facts.helper or facts.runs_command))
