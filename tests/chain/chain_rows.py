"""Every way in which the judge reaches `fail`, and what each command has to say of it.

A row is a failure; its cells are what each step does where that is not what `usual_cells` says. A step that
does not apply to a row has a cell with the reason (`why`), and the exit code and sentence that the user gets
are asserted all the same.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx.parser
from repository import SAMPLES

from opsieve.backends.judge.reasons import Cause
from opsieve.backends.verdict import Kind
from opsieve.gen.case.case import Case, open_case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.tree import Bind, BindingBlock, Call, Function, Module, RelaxOperator, Seq, Var
from opsieve.gen.irs.relax.types import RelaxTensorType
from opsieve.gen.irs.relax.writing import to_json
from opsieve.gen.irs.tir import nodes as tir
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import encode

STEPS = ("run", "reduce", "verify", "attribute", "export", "script", "bisect", "add", "corpus", "diff")


@dataclass(frozen=True, slots=True)
class Cell:
    """The exit code of a step and what its output matches. `why` says why the step does not apply to the row,
    "" where it does.
    """

    code: int
    says: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A failure.

    `target` is the compiler with the fault; the same text with release 1.0 is well. `options` go to `run`
    alone. `nodes` are left by `reduce`, which is told `reduce_options`, too; `guilty` is the pass that
    `attribute` names.
    """

    name: str
    cause: Cause | None
    kind: Kind
    target: str
    program: str = "three"
    nodes: int = 1
    guilty: str = "FuseRelu"
    options: tuple[str, ...] = ()
    cells: Mapping[str, Cell] = field(default_factory=dict)
    # seconds that its steps take, of a row that runs in make test-all: it is long, or much like another
    slow: int = 0
    limits: tuple[str, ...] = ()  # of all steps
    good: str = "1.0"
    bad: str = "2.0"

    def cell(self, step: str) -> Cell:
        """What a step has to do."""
        return self.cells.get(step) or usual_cells(self)[step]

    def case(self) -> Case:
        """The program with its inputs, under the name of the row: a corpus keeps equal cases once."""
        if self.program not in PROGRAMS:
            return open_case(SAMPLES / self.program)
        case = PROGRAMS[self.program]()
        if self.options:  # as `run --save` notes it
            case = replace(case, parameters={"oracle": self.options[1]})
        if not isinstance(case.program, OnnxProgram):
            apart = np.float32(zlib.crc32(self.name.encode()) % 100 / 100)
            return replace(case, inputs={name: value + apart for name, value in case.inputs.items()})
        model = onnx.ModelProto.FromString(case.program.model)
        model.graph.name += f" {self.name}"
        return replace(case, program=OnnxProgram(model.SerializeToString()))


def sentence_of(cause: Cause) -> str:
    """A pattern of the sentences of a cause, whatever their facts. `run` leaves the target out where a
    sentence begins with it.
    """
    parts = re.split(r"\{\w+\}", cause.value.removeprefix("{target} ").removeprefix("{target}: "))
    return ".*".join(re.escape(part) for part in parts)


def usual_cells(row: Row) -> dict[str, Cell]:
    """What each step does where nothing stands in its way."""
    # A row without a cause is known by its kind alone.
    reason = f"(?: {row.kind} at \\w+:)? {sentence_of(row.cause)}" if row.cause else f" {row.kind} at \\w+: "
    return {
        "run": Cell(1, rf"fail +\S.*{reason}"),
        "reduce": Cell(0, rf"(?s)after +{row.nodes} .*verified: the reduced model still shows the same failure\n.*1-minimal"),
        "verify": Cell(0, "1-minimal: no single remaining edit preserves the failure"),
        "attribute": Cell(0, rf"pass {row.guilty}: skipping it cures the failure; it causes the failure alone"),
        "export": Cell(0, rf"repro\.py  {row.kind}: "), "script": Cell(1, "BUG: "),
        "bisect": Cell(0, rf"First bad release {re.escape(row.bad)} \(last good {re.escape(row.good)}\)"),
        "add": Cell(0, rf"fail {row.kind}"), "corpus": Cell(0, "still-failing"),
        "diff": Cell(1, "newly-failing"),
    }  # fmt: skip


X = np.linspace(0.25, 2, 6, dtype=np.float32).reshape(2, 3)
ONNX, NEWER, USERS, TRAINING = (
    f"<ir_version: {ir}, opset_import: [{domains}]>\n"
    for ir, domains in (
        (8, '"" : 18'),
        (10, '"" : 22'),
        (8, '"" : 18, "acme.nn" : 1'),
        (10, '"" : 22, "ai.onnx.preview.training" : 1'),
    )
)


def _case(text: str, graph: str = "", expected: np.ndarray | None = None, **inputs: np.ndarray) -> Case:
    model = onnx.parser.parse_model(text)
    model.graph.name = graph or model.graph.name
    outputs = None if expected is None else {"y": expected}
    return Case(OnnxProgram(model.SerializeToString()), {"x": X, **inputs}, outputs)


def _relax() -> Case:
    """exp(abs(x)), negated."""
    kind = RelaxTensorType("float32", (2, 3))
    x, a, e, y = (Var(name, kind) for name in "xaey")
    steps = ((a, "relax.abs", x), (e, "relax.exp", a), (y, "relax.negative", e))
    block = BindingBlock(tuple(Bind(to, Call(RelaxOperator(name), (of,), kind)) for to, name, of in steps))
    main = Function((x,), Seq((block,), y), kind, attrs=(("global_symbol", "main"),))
    return Case(RelaxProgram(to_json(Module((("main", main),))).encode()), {"x": X})


def _tir(*passes: str) -> Case:
    """B[i] = exp(A[i]) + A[i]."""
    a, b, at = tir.buffer("A", (8,), "float32"), tir.buffer("B", (8,), "float32"), tir.variable("i")
    read = tir.load(a, at)
    body = tir.store(b, tir.binary("Add", tir.call("tirx.exp", "float32", read), read), at)
    function = tir.function([a, b], tir.loop(at, tir.integer(8), body))
    values = np.linspace(0, 1, 8, dtype=np.float32)
    return Case(TirProgram(encode(function).encode(), passes, "main"), {"A": values, "B": 0 * values})


_SUM = "a = acme.nn.ScaledSum<alpha = 2.0>(x, x)"
_MOMENTUM = (
    "m, v = ai.onnx.preview.training.Momentum"
    '<alpha = 0.5, beta = 0.5, norm_coefficient = 0.0, mode = "standard">(r, t, a, a, a)'
)
PROGRAMS = {
    "three": lambda: _case(
        f"{ONNX}g (float[2, 3] x) => (float[2, 3] y) {{ a = Abs(x)\n r = Relu(a)\n y = Neg(r) }}"
    ),
    # What gives its input back is right.
    "copy": lambda: _case(f"{ONNX}g (float[2, 3] x) => (float[2, 3] y) {{ a = Abs(x)\n y = Relu(a) }}"),
    "users": lambda: _case(
        f"{USERS}g (float[2, 3] x) => (float[2, 3] y) {{ {_SUM}\n r = Relu(a)\n y = Neg(r) }}"
    ),
    "users-expected": lambda: _case(
        f"{USERS}g (float[2, 3] x) => (float[2, 3] y) {{ {_SUM}\n r = Relu(a)\n y = Neg(r) }}",
        expected=-3 * X,
    ),
    # Add of a float and a double.
    "invalid": lambda: _case(
        f"{ONNX}g (float[2, 3] x, double[2, 3] z) => (float[2, 3] y) {{ r = Relu(x)\n y = Add(r, z) }}",
        graph="disruptive Add mixed-dtypes: input 1",
        z=X.astype(np.float64),
    ),
    # An index out of range.
    "forbidden": lambda: _case(
        f"{ONNX}g (float[2, 3] x, int64[1] i) => (float[1, 3] y) {{ r = Relu(x)\n y = Gather(r, i) }}",
        i=np.array([7]),
    ),
    # Selu of doubles, which neither onnxruntime nor TVM has.
    "unshared": lambda: _case(
        f"{NEWER}g (double[2, 3] x) => (double[2, 3] y) {{ a = Selu(x)\n y = Relu(a) }}",
        x=X.astype(np.float64),
    ),
    "unshared-last": lambda: _case(
        f"{NEWER}g (double[2, 3] x) => (double[2, 3] y) {{ a = Relu(x)\n y = Selu(a) }}",
        x=X.astype(np.float64),
    ),
    # The same, of a shape that inference does not know.
    "open": lambda: _case(
        f"{NEWER}g (double[2, 3] x, int64[2] s) => (double[m, n] y) {{ a = Selu(x)\n "
        "t = Max(s, s)\n r = Reshape(a, t)\n y = Relu(r) }",
        x=X.astype(np.float64),
        s=np.array([2, 3]),
    ),
    # Momentum, which the reference alone has.
    "vouched": lambda: _case(
        f"{TRAINING}g (float r, int64 t, float[2, 3] x) => (float[2, 3] y) {{ a = Relu(x)\n {_MOMENTUM}\n y = Neg(m) }}",
        expected=-X / 4,
        r=np.float32(0.5),
        t=np.int64(0),
    ),
    "relax": _relax,
    "tir": _tir,
}
NOT_A_PASS = Cell(0, "not an optimiser pass: it also fails with all optimisations off")
OF_BUILD = {"bisect": Cell(0, r"First bad release anvil@\S*-2\.0 \(last good anvil@\S*-1\.0\)")}
NO_SCRIPT = {
    "export": Cell(
        2,
        "a failure of kind (slowdown|memory) cannot be shown by a script; export the case",
        why="a script measures neither time nor memory",
    ),
    "script": Cell(-1, "there is no script", why="a script measures neither time nor memory"),
}
FLAKY = {
    "run": Cell(1, "flaky +.*ended with `error` in 2 of 4 equal runs: "),
    "add": Cell(0, "flaky error"),
}
NOT_OF_A_PART = {
    "reduce": Cell(
        2, "only against the expected outputs", why="a part has no expected outputs, and no arbiter"
    ),
    "verify": Cell(2, "No such file or directory", why="there is no reduction"),
}
OF_COMMAND = {
    "attribute": Cell(2, "passes of command cannot be switched off from here", why="a command has no passes"),
    "bisect": Cell(
        2, "--target is command:.*, but anvil is the package of anvil", why="a command has no releases"
    ),
}

ROWS: tuple[Row, ...] = (
    # It died.
    Row("crash-compile", Cause.CRASHED, "crash", "anvil:crash@Relu", slow=10),  # quick: release-crash
    Row("crash-import", Cause.CRASHED, "crash", "anvil:crash@Relu/import", slow=20),
    Row("crash-run", Cause.CRASHED, "crash", "anvil:crash@Relu/run", slow=20),
    Row("crash-unoptimised", Cause.CRASHED, "crash", "anvil:!crash@Relu", cells={"attribute": NOT_A_PASS}, slow=10),
    Row("memory", Cause.ENDED, "memory", "anvil:memory@Relu"),
    Row("memory-limit", Cause.ENDED, "memory", "anvil:hog@Relu", slow=20, limits=("--memory", "128")),
    Row("memory-unoptimised", Cause.ENDED, "memory", "anvil:!memory@Relu", cells={"attribute": NOT_A_PASS}, slow=20),
    # It raised an error, or says that it lacks what it made itself.
    Row("lack-made", Cause.MADE_LACK, "error", "anvil:unsupported@Abs>Relu", nodes=2, guilty="FuseAbsRelu"),
    Row("lack-made-alone", Cause.MADE_LACK, "error", "anvil:level=off,faults=!unsupported@Abs>Relu", nodes=2,
        cells={"attribute": Cell(0, "nothing that can be switched off")}, slow=10),
    Row("error", Cause.REFUSES, "error", "anvil:error@Relu", slow=10),  # quick: relax-error, tir-error
    Row("error-run", Cause.REFUSES, "error", "anvil:error@Relu/run", slow=20),
    Row("rejected", Cause.REFUSES, "error", "anvil:rejected@Relu", slow=20),
    Row("error-unoptimised", Cause.REFUSES, "error", "anvil:!error@Relu", cells={"attribute": NOT_A_PASS}, slow=10),
    Row("error-expected", Cause.REFUSES, "error", "anvil:!error@Relu", "users-expected", cells={"attribute": NOT_A_PASS}, slow=10),
    # Invalid programs.
    Row("invalid-crash", Cause.DIED, "crash", "anvil:lenient+crash@Relu/import", "invalid"),
    Row("invalid-accepted", Cause.ACCEPTS, "accepts-invalid", "anvil:lenient", "invalid", cells={"attribute": NOT_A_PASS}),
    # Wrong outputs.
    Row("wrong", Cause.WRONG, "mismatch", "anvil:wrong@Relu"),
    Row("wrong-nan", Cause.WRONG, "mismatch", "anvil:nan@Relu", slow=20),
    Row("wrong-shape", Cause.CONTRADICTS_INFERENCE, "mismatch", "anvil:shape@Relu"),
    Row("wrong-dtype", Cause.CONTRADICTS_INFERENCE, "mismatch", "anvil:dtype@Relu", slow=20),
    Row("wrong-shape-open", Cause.CONTRADICTS_REFERENCE, "mismatch", "anvil:!turn@Relu", "open",
        cells={"attribute": NOT_A_PASS}),
    Row("wrong-unoptimised", Cause.WRONG, "mismatch", "anvil:!wrong@Relu", cells={"attribute": NOT_A_PASS}, slow=10),
    Row("wrong-operator", Cause.WRONG_OPERATOR, "mismatch", "anvil:!wrong@Relu", "unshared",
        cells={"attribute": NOT_A_PASS}),
    Row("not-expected", Cause.NOT_EXPECTED, "mismatch", "anvil:wrong@Relu", "users-expected"),
    # The reference and the expected outputs alone know better; without the latter it is undecided.
    Row("wrong-vouched", Cause.WRONG, "mismatch", "anvil:!wrong@Momentum", "vouched", cells={"attribute": NOT_A_PASS}, slow=10),
    # The expected outputs alone know better.
    Row("only-expected", Cause.NOT_EXPECTED, "mismatch", "anvil:!wrong@ScaledSum", "users-expected",
        cells={"attribute": NOT_A_PASS, **NOT_OF_A_PART}, slow=10),
    Row("contradicted", Cause.CONTRADICTED, "mismatch", "anvil:!~wrong@Selu", "unshared-last", nodes=1,
        cells={"attribute": NOT_A_PASS}, slow=10),
    Row("contradicts-itself", Cause.CONTRADICTS_ITSELF, "metamorphic",
        "anvil:wrong@Identity>Relu,rewrite=insert-identities", guilty="FuseIdentityRelu",
        # The script feeds the program as it was rewritten, and compares with the reference.
        cells={"export": Cell(0, r"repro\.py  mismatch: ")}),
    # Results that vary, and failures that come and go.
    Row("changed", Cause.CHANGED, "nondeterminism", "anvil:vary@Relu"),
    Row("flaky", Cause.NOT_CONFIRMED, "error", "anvil:once@Relu",
        cells=FLAKY),
    # In the unoptimised build too: what comes and goes is no missing feature.
    Row("flaky-lack", Cause.NOT_CONFIRMED, "error", "anvil:!waver@Relu",
        cells={**FLAKY, "run": Cell(1, "flaky +.*ended with `unsupported` in 2 of 4 equal runs: "),
               "attribute": NOT_A_PASS}, slow=20),
    Row("ended-later", Cause.ENDED_LATER, "error", "anvil:later@Relu",
        cells={**FLAKY, "run": Cell(1, "flaky +.*gave outputs once and then ended with `error`: ")}, slow=40),
    Row("levels-disagree", Cause.LEVELS_DISAGREE, "mismatch", "anvil:wrong@Relu", "users", nodes=2, slow=10),
    Row("accepts-forbidden", Cause.ACCEPTS_FORBIDDEN, "accepts-invalid", "anvil:lenient", "forbidden",
        options=("--oracle", "accepts-invalid"), cells={"attribute": NOT_A_PASS}),
    # Other targets: those above are installed beside opsieve.
    Row("release-crash", Cause.CRASHED, "crash", "anvil==2.0:crash@Relu"),
    Row("release-lack-made", Cause.MADE_LACK, "error", "anvil==2.0:unsupported@Abs>Relu", nodes=2, guilty="FuseAbsRelu", slow=10),
    Row("release-wrong", Cause.WRONG, "mismatch", "anvil==2.0:wrong@Relu", slow=20),
    Row("build-crash", Cause.CRASHED, "crash", "anvil@BUILD-2.0:crash@Relu", cells=OF_BUILD),
    Row("build-wrong", Cause.WRONG, "mismatch", "anvil@BUILD-2.0:wrong@Relu", cells=OF_BUILD, slow=20),
    Row("command-crash", Cause.CRASHED, "crash", "command:COMMAND-2.0 crash {model} {inputs} {outputs}", "copy",
        cells=OF_COMMAND, slow=10),
    Row("command-error", Cause.REFUSES, "error", "command:COMMAND-2.0 error {model} {inputs} {outputs}", "copy",
        cells=OF_COMMAND, slow=20),
    Row("command-wrong", Cause.WRONG, "mismatch", "command:COMMAND-2.0 wrong {model} {inputs} {outputs}", "copy",
        cells=OF_COMMAND),
    # An operator of the user's own; quick: not-expected, whose program has one.
    Row("users-operator", Cause.CRASHED, "crash", "anvil:crash@ScaledSum", "users", guilty="FuseScaledSum", slow=10),
    Row("users-fusion", Cause.MADE_LACK, "error", "anvil:unsupported@ScaledSum>Relu", "users", nodes=2,
        guilty="FuseScaledSumRelu", slow=10),
    # TVM's own IRs.
    Row("relax-crash", Cause.CRASHED, "crash", "anvil:crash@relax.exp", "relax", guilty="Fuserelax.exp", slow=10),
    Row("relax-error", Cause.REFUSES, "error", "anvil:error@relax.exp", "relax", guilty="Fuserelax.exp"),
    Row("relax-error-unoptimised", Cause.REFUSES, "error", "anvil:!error@relax.exp", "relax",
        cells={"attribute": NOT_A_PASS}, slow=20),
    Row("relax-lack-made", Cause.MADE_LACK, "error", "anvil:unsupported@relax.exp", "relax", guilty="Fuserelax.exp", slow=20),
    Row("relax-wrong", Cause.WRONG, "mismatch", "anvil:wrong@relax.exp", "relax", guilty="Fuserelax.exp", slow=20),
    Row("tir-crash", Cause.CRASHED, "crash", "anvil:crash@tirx.exp", "tir", nodes=2, guilty="Fusetirx.exp", slow=10),
    Row("tir-error", Cause.REFUSES, "error", "anvil:error@tirx.exp", "tir", nodes=2, guilty="Fusetirx.exp"),
    Row("tir-wrong", Cause.WRONG, "mismatch", "anvil:wrong@tirx.exp", "tir", nodes=2, guilty="Fusetirx.exp", slow=20),
    Row("slowdown", None, "slowdown", "anvil:drag@Relu/run", options=("--oracle", "slowdown"), cells=NO_SCRIPT, slow=100),
    Row("tir-slowdown", None, "slowdown", "anvil:drag@tirx.exp/run", "tir", options=("--oracle", "slowdown"), nodes=2, guilty="Fusetirx.exp", cells=NO_SCRIPT, slow=100),
    Row("memory-oracle", None, "memory", "anvil:hog@Relu", options=("--oracle", "memory"), cells=NO_SCRIPT, slow=100),
    Row("hang", Cause.ENDED, "hang", "anvil:hang@Relu", slow=100, limits=("--seconds", "2")),
)  # fmt: skip
# Bugs of real releases: the sample is the program, and `bad` the first release with the bug.
REAL_ROWS: tuple[Row, ...] = (
    Row("onnxruntime-wrong", Cause.WRONG, "mismatch", "onnxruntime==1.20.0", "pad-maxpool-wrong-value", nodes=2, guilty="Pad_Fusion", good="1.19.2", bad="1.20.0"),
    Row("onnxruntime-error", Cause.REFUSES, "error", "onnxruntime==1.21.0", "layernorm-fusion-run-error", nodes=6, guilty="SimplifiedLayerNormFusion", good="1.20.1", bad="1.21.0"),
    Row("onnxruntime-load-error", Cause.REFUSES, "error", "onnxruntime==1.24.1", "if-constant-load-error", nodes=1, guilty="ConstantFolding", good="1.23.2", bad="1.24.1"),
)  # fmt: skip
# Causes that lead to other verdicts.
NEVER_A_FAILURE: Mapping[Cause, str] = {
    cause: verdict
    for verdict, causes in {
        "environment": (Cause.NOT_RUN,),
        "unsupported": (Cause.LACKS, Cause.TYPE_REFUSED, Cause.REFUSES_AS_LACK),
        "flaky": (Cause.DIED_ONCE, Cause.ACCEPTED_ONCE),
        "invalid": (
            *(Cause.RAISED_WHERE_UNDEFINED, Cause.NO_MEANING, Cause.ILL_TYPED, Cause.FORBIDDEN),
            *(Cause.EVERYBODY_REJECTS, Cause.BREAKS_RULE, Cause.UNDEFINED),
        ),
        "pass": (
            *(
                Cause.GIVES_EXPECTED,
                Cause.AGREES,
                Cause.WITHIN_RULES,
                Cause.AGREES_UNREFERENCED,
                Cause.REFUSES_RIGHTLY,
            ),
            *(Cause.OPERATORS_AGREE, Cause.OUTVOTED, Cause.SELF_AGREES, Cause.ACCEPTS_ONLY),
        ),
        "undecided": (
            *(
                Cause.HOST_ENDS_TOO,
                Cause.REFERENCE_ENDS_TOO,
                Cause.NOBODY_ELSE,
                Cause.EXPECTED_DOUBTED,
                Cause.HOST_AGREES,
            ),
            *(
                Cause.EXPECTED_CONTRADICTED,
                Cause.DIFFERS_UNREFERENCED,
                Cause.UNREFERENCED,
                Cause.ONE_ORACLE,
                Cause.OWN_BUILDS_AGREE,
            ),
            *(
                Cause.ONE_ORACLE_OPERATOR,
                Cause.NOBODY_OBJECTS,
                Cause.LENIENT,
                Cause.NO_PLAIN,
                Cause.IS_ORACLE,
                Cause.NO_BASELINE,
            ),
            *(Cause.CONTRADICTS_UNREFERENCED, Cause.NOT_MEASURED),
        ),
    }.items()
    for cause in causes
}
# Kinds without a row, and why.
OTHER_KINDS: Mapping[str, str] = {
    "round-trip": "no oracle gives it; a round trip that fails is an error of the stage import",
}
