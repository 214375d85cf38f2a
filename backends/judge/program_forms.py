"""What judging knows of programs that are not ONNX models: who has checked one, and which other builds say
what it should give.

There is no evaluator of Relax apart from TVM. A build of another pipeline shares TVM's kernels and importer,
not the passes in between: where two such builds agree against the target in what no rounding explains, the
target is wrong. Rounding they cannot settle.
"""

from collections.abc import Mapping

from opsieve.backends.compare import Comparison
from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.verdict import STRUCTURE
from opsieve.gen.model.program import Program

# TVM checks a module when it takes it in (the stage `import`), so an error behind that is about a module that
# it found valid.
_CHECKED = {"relax": "TVM's own check of the module"}
_PIPELINES = {"relax": ("zero", "target", "default")}
_EXACT = ("int", "uint", "bool")


def checked_by(program: Program, ending: Observation) -> str:
    """Who had found the program valid before the stage in which it ended, "" for nobody."""
    return _CHECKED.get(program.form, "") if ending.stage != "import" and ending.outcome == "error" else ""


def can_be_undefined(program: Program) -> bool:
    """Whether well-formed programs of this form can read memory that nobody wrote: then other values in a
    second run are no fault yet.
    """
    return program.form == "tir"


def timed_repeats(program: Program) -> int:
    """How many further runs the time of a program is taken from (0: the one run). A TIR function runs for
    microseconds; its worker tells the time of a thousand calls when it is asked for more than one run.
    """
    return 1 if program.form == "tir" else 0


def other_builds(
    program: Program, target: ResolvedTarget, baseline: ResolvedTarget | None
) -> list[ResolvedTarget]:
    """Builds of the target's compiler that optimise otherwise than the target and its baseline do; none for
    an ONNX model.
    """
    if target.name != "tvm":
        return []
    pipelines = [name for name in _PIPELINES.get(program.form, ()) if name != target.options["pipeline"]]
    builds = [target.with_options(pipeline=name, opt="0", disabled="", trace="off") for name in pipelines]
    return [build for build in builds if build != baseline]


def beyond_rounding(found: Comparison, dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """The outputs whose mismatch no rounding explains: structure, and values of integers and bool."""
    return tuple(
        name
        for name, mismatch in found.mismatches.items()
        if mismatch.what in STRUCTURE or dtypes.get(name, "").startswith(_EXACT)
    )
