"""The record of an IR: everything that the rest of opsieve asks of programs in it.

`registry.py` finds the records by entry point. What stands above gen is named in them by a text, a target or
`module:name`, so that a record costs little to load. docs/how-to/add-an-ir.md writes one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from opsieve.gen.model.program import Program
from opsieve.gen.model.tensors import Value, ValueType

if TYPE_CHECKING:
    from onnx import ModelProto

P = TypeVar("P", bound=Program)
Lines = list[tuple[str, str]]
# The app shows a module in one scrolled view; more lines cost seconds of layout.
_MOST_LINES = 2000


def seed_inputs(program: Program, seed: int) -> dict[str, Value]:
    """Values by the types of the inputs alone."""
    from opsieve.gen.data.inputs import seeded_values

    return seeded_values(program.inputs(), seed)


def plain_payload(program: Program, as_is: bool) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes as they are; the header says the IR under the name by which older workers know it."""
    return program.data, {"form": program.ir, "passes": list(program.passes)}


def text_lines(program: Program) -> Lines:
    """Return the program's text, cut short."""
    lines = [("", line) for line in program.text().splitlines()]
    left = len(lines) - _MOST_LINES
    return lines[:_MOST_LINES] + ([("", f"… {left:,} more lines are not shown")] if left > 0 else [])


def describe(program: Program) -> Lines:
    """Describe a program for people: its IR, its passes, and its file."""
    kind = program.kind.partition(" ")[2]
    return [("IR", kind), ("passes", " ".join(program.passes)), ("program", next(iter(program.files())))]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A program that means the same, and the values that it is fed."""

    program: Program
    inputs: dict[str, Value]


# Rewrites a program with its inputs at the places that a text chooses ("": all); None if it fits nowhere.
Rewriter = Callable[[P, Mapping[str, Value], str], Rewritten | None]


@dataclass(frozen=True)
class OtherBuilds:
    """Builds of a compiler that optimise in another way: each other value of an option, and `rest`."""

    option: str
    values: tuple[str, ...]
    rest: Mapping[str, str]


@dataclass(frozen=True)
class ScriptFacts:
    """A program in an exported script, which has nothing of opsieve.

    Attributes:
        noun: What users of the compiler call a program.
        packages: What pip has to install besides the compiler.
        imports: Modules that a script imports besides numpy.
        parse: The expression that makes a program of a text `{}`; "" where the text itself is the program.
        authors: Oracles in words for people without opsieve.
        serialised: Whether MODEL is bytes, as a backend's `script` takes them; else it is text, which its
            `script_of_module` takes.
        trusts_baseline: Whether the compiler's unoptimised build says what is right where no reference does.
    """

    noun: str = "module"
    packages: tuple[str, ...] = ("numpy",)
    imports: tuple[str, ...] = ()
    parse: str = ""
    authors: Mapping[str, str] = field(
        default_factory=lambda: {
            "reference:float64": "its meaning, evaluated in float64",
            "reference": "its meaning, evaluated",
        }
    )
    serialised: bool = False
    trusts_baseline: bool = True


@dataclass(frozen=True)
class IR(Generic[P]):
    """One IR. What has a default is optional; the how-to page says what each of them buys.

    Attributes:
        name: Its name in case.json, in targets' facts and in requests to workers.
        suffix: How the name of a file with a program ends.
        also_reads: Endings of files of other tools that `read` takes as well.
        files: The files of a program in a case folder, the one that holds the program first.
        read: The program in a file and in what lies beside it. BadInput when it cannot be read, AnotherIR
            when it is a program of another IR in the same kind of file.
        load: The program of its bytes, its passes and its name.
        validator: The target that says whether a program is valid at all.
        checker: The same, where compilers do not refuse invalid programs by themselves; "" where they do.
        seed_inputs: Values for the inputs, the same for the same seed.
        payload: What a worker is sent, and what the header of the test says besides.
        lower: The bytes as compilers get them: valid in as many releases as possible.
        older: The program for older releases that refuse it; None where there is no other.
        graph: The program as an ONNX model, for the judge's analyses of graphs; None where it has none.
        translator: The target that writes a program in ONNX for the inputs that it is fed, for oracles that
            take ONNX alone; its output is `model`. "" for none.
        details: Ranks of tensors and classes of attributes, for the fingerprint of a small program.
        checked_by: Who has found a program valid once it is past the stage `import`; "" for nobody.
        declared_types: Types of outputs that bind every compiler, as those of shape inference bind them where
            there is a `graph`.
        can_be_undefined: Whether a program may read memory before it is written.
        timed_repeats: How many further runs its time is taken from.
        other_builds: Builds that may contradict a target, by the name of its backend.
        strategies: The strategies that make programs of it, and the share of the time of targets that each
            has in `--strategy mix`, in thousandths; one that is not installed has none.
        usual_features: Features (operators and edges) of a program that costs what a backend states.
        rewrites: Rewrites that keep a program's meaning: `module:MAPPING` of a name to a `Rewriter`.
        evaluator: The reference's evaluator: `module:function`, a backend's `prepare`.
        reduction: How it is reduced: `module:Class`, a `ReducibleIR`.
        printer: The target that prints a program for people; its outputs are `text` and `exact`.
        keeps_script: Whether the text is kept with the program.
        script_parser: The target that reads a user's own script; its output is `module`.
        script_language: What such a script is called.
        is_script: Whether the bytes of a script are for `script_parser`.
        is_editable: Whether strategies that mutate programs can read one.
        importer: The target that makes programs of ONNX models.
        script: How an exported script holds and runs a program.
        lines: (rails, label) lines for the screen.
        describe: (name, value) lines about a program.
        operators: The operators that the screen counts.
    """

    name: str
    suffix: str
    files: tuple[str, ...]
    read: Callable[[Path], P]
    load: Callable[[bytes, tuple[str, ...], str], P]
    validator: str
    also_reads: tuple[str, ...] = ()
    checker: str = ""
    seed_inputs: Callable[[P, int], dict[str, Value]] = seed_inputs
    payload: Callable[[P, bool], tuple[bytes, dict[str, Any]]] = plain_payload
    lower: Callable[[P], bytes] = lambda program: program.data
    older: Callable[[P], P | None] = lambda program: None
    graph: "Callable[[P], ModelProto | None]" = lambda program: None
    translator: str = ""
    details: Callable[[P], tuple[Iterable[str], Iterable[str]]] = lambda program: ((), ())
    checked_by: str = ""
    declared_types: Callable[[P], Mapping[str, ValueType]] = lambda program: {}
    can_be_undefined: Callable[[P], bool] = lambda program: False
    timed_repeats: int = 3
    other_builds: Mapping[str, OtherBuilds] = field(default_factory=dict)
    strategies: Mapping[str, int] = field(default_factory=dict)
    usual_features: float = 25.0
    rewrites: str = ""
    evaluator: str = ""
    reduction: str = ""
    printer: Callable[[P], str] = lambda program: ""
    keeps_script: bool = False
    script_parser: str = ""
    script_language: str = ""
    is_script: Callable[[bytes], bool] = lambda source: True
    is_editable: Callable[[P], bool] = lambda program: True
    importer: str = ""
    script: ScriptFacts = ScriptFacts()
    lines: Callable[[P], Lines] = text_lines
    describe: Callable[[P], Lines] = describe
    operators: Callable[[P], Iterable[str]] = lambda program: program.operators()
