"""Oracles by name: those for every program, those for programs with certain parts, and those that the user
chooses; and the explanation of every verdict, kind, rule, hazard and oracle.

An oracle that compares builds of one compiler adds targets: those with another pipeline or execution mode.
One that a compiler's worker asks adds an option to the targets that have it.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from opsieve.backends.compilers.user_oracle import GROUP
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown, suggest_name
from opsieve.gen.model.program import Program


@dataclass(frozen=True, slots=True)
class NamedOracle:
    """An oracle: its question, and its additions if chosen: a target option, sibling targets, or further
    runs.

    `option` is one such as `check=text`; `siblings` is an option all of whose values run.
    """

    name: str
    asks: str
    # `check=text`
    option: str = ""
    # An option whose values are all run as siblings.
    siblings: str = ""
    measured: bool = False


ORACLES: tuple[NamedOracle, ...] = (
    NamedOracle(
        "well-formed", "the module is well-formed and type-checked, before it is built and after every pass"
    ),
    NamedOracle("text-round-trip", "TVM's printer and parser give the same module", option="check=text"),
    NamedOracle("json-round-trip", "TVM's JSON gives the same module", option="check=json"),
    NamedOracle("builds", "it builds and runs: no error, crash or hang"),
    NamedOracle("pipelines", "every pipeline gives the same outputs", siblings="pipeline"),
    NamedOracle("execution", "bytecode and compiled code give the same outputs", siblings="exec"),
    NamedOracle("reference", "the outputs are those of the float64 reference, or of a second compiler"),
    NamedOracle(
        "passes", "the sequence of passes that belongs to a program neither fails nor changes the outputs"
    ),
    NamedOracle(
        "metamorphic",
        "a program that means the same has the same outputs (`--metamorphic`; strategies rewrite some"
        " programs anyway)",
    ),
    NamedOracle(
        "slowdown", "the optimised build is not slower than the unoptimised one, by a margin", measured=True
    ),
    NamedOracle(
        "accepts-invalid",
        "a program that was made wrong is refused; chosen by name, `run` asks it of what the reference"
        " rejects for its inputs too",
    ),
    NamedOracle(
        "nondeterminism", "a second run gives the same; always asked before a mismatch counts", measured=True
    ),
    NamedOracle("memory", "the optimised build does not need more memory, by a margin", measured=True),
)
NAMES: tuple[str, ...] = tuple(oracle.name for oracle in ORACLES)
# the parameter of a case that names the oracle which found its failure, where that has to be chosen
ORACLE = "oracle"
_BY_NAME: Mapping[str, NamedOracle] = {oracle.name: oracle for oracle in ORACLES}


def name_optional_oracle(verdict: Verdict, program: Program) -> str:
    """Name the oracle that has to be chosen to reproduce a verdict; "" if the judge gives it anyway."""
    if verdict.verdict != "fail":
        return ""
    if verdict.kind == "accepts-invalid":
        return "accepts-invalid" if program.fault is None else ""
    if verdict.kind in ("slowdown", "nondeterminism"):
        return verdict.kind
    return "memory" if "memory" in verdict.rules else ""


@dataclass(frozen=True, slots=True)
class OracleChoice:
    """The chosen oracles."""

    names: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[str, ...]:
        """The oracles that rerun a passing build."""
        return tuple(name for name in self.names if name in _BY_NAME and _BY_NAME[name].measured)

    def expand_targets(self, given: Sequence[ResolvedTarget]) -> list[ResolvedTarget]:
        """Return the targets with the additions of the oracles, each once, in order."""
        found: dict[ResolvedTarget, None] = {}
        for target in given:
            siblings = [target]
            for name in self.names:
                option = _BY_NAME[name].siblings if name in _BY_NAME else ""
                values = target.facts.options.get(option, ()) if option else ()
                siblings += [target.with_options(**{option: value}) for value in values]
            for sibling in siblings:
                found[self.add_options(sibling)] = None
        return list(found)

    def add_options(self, target: ResolvedTarget) -> ResolvedTarget:
        """Return the target with the options that the oracles need."""
        own = (name for name in self.names if name not in _BY_NAME)
        target = target.asking(tuple(dict.fromkeys([*target.oracles, *own])))
        for name in self.names:
            option, _, value = _BY_NAME[name].option.partition("=") if name in _BY_NAME else ("", "", "")
            if option and option in target.facts.options:
                now = target.options[option]
                # Both checks at once have a value of their own.
                target = target.with_options(**{option: value if now in ("off", value) else "all"})
        return target


def add_oracles(case: Case, target: ResolvedTarget, names: Iterable[str]) -> tuple[Case, ResolvedTarget]:
    """Return a case and its target such that `judge_case` consults these oracles, with one target."""
    choice = choose_oracles(names)
    if choice.measured:
        case = replace(case, parameters={**case.parameters, ORACLE: choice.measured[0]})
    return case, choice.add_options(target)


def choose_oracles(names: Iterable[str]) -> OracleChoice:
    """Choose the oracles of a list of names, each once, in order.

    Raises:
        BadInput: For an unknown oracle.
    """
    every = tuple(dict.fromkeys(names))
    for name in every:
        own = [] if name in _BY_NAME else sorted(entry_points(group=GROUP).names)
        if name not in _BY_NAME and name not in own:
            raise BadInput(
                f"there is no oracle {shown(name, 60)}; there are"
                f" {', '.join([*NAMES, *own])}, and those of packages that you install"
                f"{suggest_name(name, [*NAMES, *own])}"
            )
    return OracleChoice(every)


# What a verdict, a kind of failure, a rule, a hazard or an oracle means, by name.


_FILE = Path(__file__).with_name("explanations.toml")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A name, the kind of thing it names (`verdict`, `kind`, `rule`, `hazard`, `oracle`), and its meaning."""

    name: str
    what: str
    text: str


@cache
def read_explanations() -> tuple[Explanation, ...]:
    """Read all explanations; a name such as `memory` can have several."""
    sections = tomllib.loads(_FILE.read_text("utf-8"))
    written = [
        Explanation(name, what, text) for what, texts in sections.items() for name, text in texts.items()
    ]
    return (*written, *(Explanation(each.name, "oracle", each.asks) for each in ORACLES))


def find_explanations(name: str) -> list[Explanation]:
    """Find what a name means, without links; `accumulation:12` is explained as `accumulation:K`."""
    family = name.partition(":")[0]
    return [
        Explanation(each.name, each.what, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each.text))
        for each in read_explanations()
        if each.name == name or (":" in each.name and each.name.partition(":")[0] == family)
    ]
