"""apache-tvm on the CPU: ONNX models through the importer of Relax, Relax modules and TIR functions as they
are.

https://tvm.apache.org/docs/ describes Relax and its pipelines. The pipelines differ in what optimises before
the lowering that all share: `default` is what `relax.build` does alone for a CPU and fuses nothing, `zero`
runs the `zero` pipeline (constant folding and fusion) first, `target` is `relax.get_default_pipeline` of the
target. With `default` every `opt` runs the same passes; with `target` level 0 leaves three out (measured on
0.27). `disabled` takes names of passes joined with `+`, of Relax and of TIR (`FuseOps+tirx.Simplify`);
`FuseOps@2` is the second application alone. TVM cannot do without some of them: leaving those out is an
error, or a crash. `trace` prints `opsieve pass ran NAME` as each begins and `opsieve pass acted NAME` when it
changed the module. `check` asks for the round trips of a Relax module: by TVM's printer and parser (`text`),
by its JSON (`json`).
"""

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from opsieve.backends.compilers import tvm_capture, tvm_relax_modules, tvm_script, tvm_tir, tvm_tir_seeds
from opsieve.backends.compilers.worker_common import (
    CLASSES,
    meaning_of,
    onnx_name,
    read_onnx,
)

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run

TARGETS = {"llvm": {"kind": "llvm"}, "llvm-O0": {"kind": "llvm", "opt-level": 0}, "cuda": {"kind": "cuda"}}

# Integers of less than a byte: TVM's runtime holds them packed but cannot be fed or read through numpy, and
# its kernels for the CPU read packed bytes wrongly (seen on 0.27), so that they cannot cross a graph's
# border; neither can strings.
BARRED = frozenset(["int4", "uint4", "int2", "uint2", "string"])

# What a message means, first match wins. A lack that TVM states is `unsupported`; what it does not explain (a
# KeyError in a converter, a type error of a program that is valid, an InternalError of a pass) is left an
# error.
MEANINGS: Tuple[Tuple[str, str], ...] = (
    (
        "environment",
        r"Model IR version \d+ not supported|Unable to import onnx|tvm has no pass |tvm cannot compute on ",
    ),
    ("out-of-memory", r"bad_alloc|[Cc]annot allocate memory|[Ff]ailed to allocate|Unable to allocate"),
    ("rejected", r"encountered divisor value 0|step values must be non-zero"),
    ("rejected", r"match_cast error|Mismatched \S+\.shape\[\d+\] on argument"),
    ("unsupported", r"[Uu]nsupported|[Nn]ot (?:yet |currently )?(?:supported|implemented)|does not support"),
    (
        "unsupported",
        r"\b[Oo]nly (?:currently )?supports?\b|\bOnly [^.]{1,60} (?:is|are) (?:currently )?supported",
    ),
    (
        "unsupported",
        r"Only constant \w+ (?:currently )?supported|are supported only, but|must be 1 for Relax frontend",
    ),
    (
        "unsupported",
        r"cannot handle ShapeExpr inputs|must be a constant|requires a statically (?:known|typed)",
    ),
    ("unsupported", r"unknown dtype|datatype should be one of|cannot cross the border of a model"),
)
# These classes say what they mean, so that no wording of a message is needed.
TVM_CLASSES = dict(
    CLASSES,
    PassPrecondition="unsupported",
    OpNotImplemented="unsupported",
    OpAttributeUnImplemented="unsupported",
    OtherRelease="environment",
)

SCRIPT = """\
def run(model, inputs):
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load_model_from_string(model)
    shapes = {name: list(np.shape(value)) for name, value in inputs.items()}
    module = from_onnx(model, shape_dict=shapes, keep_params_in_input=False)
    target = tvm.target.Target(%(target)r)%(watcher)s
    with tvm.transform.PassContext(opt_level=%(opt)d%(watched)s), target:%(before)s
        built = relax.build(module, target, relax_pipeline=%(pipeline)s, exec_mode=%(exec)r)
    main = relax.VirtualMachine(built, tvm.cpu())["main"]
    given = {tensor.name for tensor in model.graph.initializer}
    names = [item.name for item in model.graph.input if item.name not in given]
    result = main(*[tvm.runtime.tensor(np.asarray(inputs[name])) for name in names])

    def read(item):
        if hasattr(item, "numpy"):
            return item.numpy()
        if isinstance(item, tvm.runtime.ShapeTuple):
            return np.array(list(item), np.int64)
        return np.asarray(item) if isinstance(item, (bool, int, float)) else [read(part) for part in item]

    outputs = [item.name for item in model.graph.output]
    return dict(zip(outputs, map(read, [result] if len(outputs) == 1 else list(result))))
"""


OR_SHAPE = (
    'value.numpy() if hasattr(value, "numpy") else'
    " np.array([*value] if isinstance(value, tvm.runtime.ShapeTuple) else value)"
)

# `PassContext(disabled_pass=...)` knows no single applications of a pass.
WATCHER = """
    skipped, counts = %(disabled)a, {}

    @tvm.instrument.pass_instrument
    class Skip:
        def should_run(self, module, info):
            name = str(info.name)
            counts[name] = counts.get(name, 0) + 1
            return name not in skipped and f"{name}@{counts[name]}" not in skipped
"""


class TvmRelax:
    """The backend `tvm`."""

    name = "tvm"
    package = "apache-tvm"
    module = "tvm"
    version_of_distribution = True
    extra = "tvm"
    options: Mapping[str, Tuple[str, ...]] = {
        "pipeline": ("default", "zero", "target"),
        "opt": ("3", "0", "1", "2", "4"),
        "exec": ("bytecode", "compiled"),
        "target": tuple(TARGETS),
        "disabled": (),
        "trace": ("off", "on"),
        "check": ("off", "text", "json", "all"),
        # Lowered only; printed only; printed and read back
        "stop": ("run", "lower", "print", "read"),
        # what a campaign begins with, or a script makes, as outputs
        "emit": (
            "",
            "relax",
            "tir",
            "topi",
            "script",
        ),
    }
    irs: Tuple[str, ...] = ("onnx", "relax", "tir")
    # Of the ONNX models that a campaign chooses for it, which cost twice and more what an average one does.
    milliseconds: Mapping[str, float] = {"onnx": 3600, "relax": 480, "tir": 100}
    main_option = "pipeline"
    variables = ("TVM_*", "DMLC_*")
    native_sources: Mapping[str, str] = {"libtvm_compiler": "/project/", "libtvm_runtime": ""}
    # `disabled` takes `PASS@2` for the second application
    counts_applications = True
    baseline: Mapping[str, str] = {
        "pipeline": "default",
        "opt": "0",
        "exec": "bytecode",
        "target": "llvm-O0",
        "disabled": "",
        "trace": "off",
        "check": "off",
    }
    # One thread also because a fork of a process whose kernels have run on several threads hangs.
    environment: Mapping[str, str] = {
        "TVM_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    lacks: Tuple[str, ...] = (
        "strings, sequences, optionals; 2-bit and 4-bit values that are fed or read",
        "Loop, Scan and many operators: its importer says so, operator by operator",
    )

    def base(self, python: Tuple[int, int]) -> Tuple[str, ...]:
        """Return the requirements of tvm and its ONNX importer (tried with 0.25 and 0.26); the wheels want
        Python 3.10 or newer.
        """
        numpy = "numpy==2.2.6" if python < (3, 14) else "numpy>=2.3.2"
        return (numpy, "onnx", "ml_dtypes", "protobuf", "typing_extensions")

    def companions(self, release: str) -> Tuple[str, ...]:
        """Return the apache-tvm-ffi of the release: each was built against one, and newer ones fail to import
        or segfault.
        """
        if release.startswith("0.25."):
            return ("apache-tvm-ffi==0.1.12",)
        return ("apache-tvm-ffi==0.1.14.post1",)

    def load(self) -> str:
        """Import tvm and the importer, and compile one Relu (never run) so that forked workers find lazy
        parts loaded.
        """
        import onnx
        import tvm
        from onnx import helper
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "warm", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        # Compiled but not run: running a kernel starts threads, with which a process must not fork.
        relax.build(from_onnx(model), tvm.target.Target("llvm"))
        return str(tvm.__version__)

    def prepare(self, request: "Request") -> "Run":
        """Take the program in, compile and link it, each IR in its own way."""
        import tvm

        if request.options["emit"] == "script":
            return tvm_capture.prepare(tvm, request)
        if request.options["emit"] == "topi":
            return tvm_tir_seeds.topi()
        if request.options["stop"] in ("print", "read") and request.ir != "onnx":
            return tvm_script.prepare(tvm, request, module_of(tvm, request))
        if request.options["emit"] == "tir" and request.ir == "relax":
            with passes(tvm, request) as target:
                return tvm_tir_seeds.lower_module(module_of(tvm, request), target)
        if request.ir != "onnx" and request.options["target"] == "cuda":
            raise ValueError(
                "tvm cannot compute on cuda: here a program of that IR is compiled for the processor alone"
            )
        ways = {"onnx": self.from_onnx, "relax": self.from_relax, "tir": self.from_tir}
        return ways[request.ir](request)

    def from_relax(self, request: "Request") -> "Run":
        """Prepare a Relax module: its passes, then the pipeline of the target."""
        import tvm

        return tvm_relax_modules.prepare(tvm, request, module_of(tvm, request), passes, build)

    def from_tir(self, request: "Request") -> "Run":
        """Prepare a TIR function: its passes, then the lowering of TIR."""
        import tvm

        # Registers the nodes that a function may hold
        import tvm.s_tir

        module = module_of(tvm, request)
        with tvm_tir.preconditions():
            return tvm_tir.prepare(request, module, passes)

    def from_onnx(self, request: "Request") -> "Run":
        """Prepare an ONNX model by the importer; open shapes are those of the values that will be fed."""
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        # First, so that a missing device is reported before the compile time is spent.
        device = device_of(tvm, request)
        model = read_onnx(
            request, "tvm", onnx_name, lambda name: name not in BARRED, ((), ("sequence_type",))
        )
        module = from_onnx(
            model, shape_dict=open_shapes(model.graph, request.inputs), keep_params_in_input=False
        )
        given = {tensor.name for tensor in model.graph.initializer}
        names = [item.name for item in model.graph.input if item.name not in given]

        if request.options["emit"] == "relax":
            return tvm_tir_seeds.make_module_outputs(tvm, [module])
        request.stage("compile")
        with passes(tvm, request) as target:
            if request.options["emit"] == "tir":
                return tvm_tir_seeds.lower_module(module, target)
            built = build(tvm, request, module, target)
        # The machine code is made here
        machine = relax.VirtualMachine(built, device)
        main = machine["main"]
        outputs = [item.name for item in model.graph.output]

        def run(values: Dict[str, Any]) -> Dict[str, Any]:
            result = main(*[tvm.runtime.tensor(np.asarray(values[name]), device) for name in names])
            results = [result] if len(outputs) == 1 else list(result)
            return {name: to_value(tvm, item, name, request) for name, item in zip(outputs, results)}

        return run

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify by the exception's class if it is specific, otherwise by the message."""
        if stage == "import" and exception.rpartition(".")[2] == "NotWellFormed":
            return "rejected"
        return meaning_of(exception, message[:1000], MEANINGS, TVM_CLASSES)

    def script(self, options: Mapping[str, str], dtypes: Collection[str]) -> str:
        """Return the source of `run` for an exported script; "" for a device."""
        return "" if options["target"] == "cuda" else SCRIPT % self.settings(options)

    def brief(
        self, options: Mapping[str, str], dtypes: Collection[str], program: Any, failed: str
    ) -> Tuple[List[str], List[str]]:
        """Return the statements of a short script; two empty lists for a module whose run has other values
        than tensors, and for an ONNX model with passes disabled or on a device.
        """
        if program.ir != "onnx":
            whole = self.script_of_module(program, program.script_is_exact, options)
            return tvm_script.cut_brief(whole, program, failed)
        if options["disabled"] or options["target"] == "cuda":
            return [], []
        settings = self.settings(options)
        # From the model to the executable
        lines = [line[4:] for line in ("\n".join(SCRIPT.split("\n")[5:12]) % settings).split("\n")]
        if failed == "run":
            fed, names = list(program.inputs()), list(program.outputs())
            result = "[result]" if len(names) == 1 else "result"
            # Shapes come back as tuples of TVM, sizes as numbers.
            value = OR_SHAPE if {"Shape", "Size"} & set(program.operators()) else "value.numpy()"
            lines += [
                "result = main(*[tvm.runtime.tensor(inputs[name]) for name in %a])" % fed,
                "outputs = {name: %s for name, value in zip(%a, %s)}" % (value, names, result),
            ]
        return ["import tvm", "from tvm import relax", "from tvm.relax.frontend.onnx import from_onnx"], lines

    def script_of_module(self, program: Any, text: bool, options: Mapping[str, str]) -> str:
        """Return the same for a module of an IR with its passes, given as TVMScript or else as TVM's JSON."""
        keywords = tvm_relax_modules.KEYWORDS
        return tvm_script.source(program, text, self.settings(options), keywords)

    def settings(self, options: Mapping[str, str]) -> Dict[str, Any]:
        """Return the parts of a script that depend on the options."""
        pipeline = {
            "default": ("", '"default"'),
            "zero": ('\n        module = relax.get_pipeline("zero")(module)', '"default"'),
            "target": ("", "relax.get_default_pipeline(target)"),
        }[options["pipeline"]]
        disabled = [item for item in options["disabled"].split("+") if item]
        return {
            "target": TARGETS[options["target"]],
            "opt": int(options["opt"]),
            "watched": ", instruments=[Skip()]" if disabled else "",
            "watcher": WATCHER % {"disabled": disabled} if disabled else "",
            "before": pipeline[0],
            "pipeline": pipeline[1],
            "exec": options["exec"],
            "check": options["check"],
        }


class OtherRelease(Exception):
    """A module that was written by another release of TVM and that this one does not understand."""


def module_of(tvm: Any, request: "Request") -> Any:
    """Return the module, or function, of a request; raises OtherRelease if it is of another release and this
    one cannot read it.

    Types and fields of the IR come and go between releases, so a failure to read one's own JSON alone is a
    failure.
    """
    text = request.model.decode("utf-8")
    try:
        return tvm.ir.load_json(text)
    except Exception as error:
        wrote = str((json.loads(text).get("metadata") or {}).get("tvm_version", "an unknown release"))[:40]
        # TVM fails to read its own JSON: a failure to report.
        if wrote == str(tvm.__version__):
            raise
        what = "this module was written by TVM %s, and %s cannot read it: %s" % (
            wrote,
            tvm.__version__,
            error,
        )
        raise OtherRelease(what) from error


@contextlib.contextmanager
def passes(tvm: Any, request: "Request", instruments: Sequence[Any] = (), **settings: Any) -> Iterator[Any]:
    """Run all passes in the block as the request's options say: skipped, traced, their effects recorded.
    Yields the target.

    With `instruments` of the caller's own, those record the effects. Raises ValueError at the end for an
    unknown name to skip.
    """
    options = request.options
    target = tvm.target.Target(TARGETS[options["target"]])
    disabled = [item for item in options["disabled"].split("+") if item]
    # Only one of the two may record them, else each would be there twice.
    effects = None if instruments else request.effects
    watched = disabled or options["trace"] == "on" or effects is not None
    watcher = watch(tvm, disabled, options["trace"] == "on", effects) if watched else None
    all_of_them = [*instruments, *([watcher] if watcher else [])]
    context = tvm.transform.PassContext(opt_level=int(options["opt"]), instruments=all_of_them, **settings)
    with context, target:
        yield target
    if watcher:
        refuse_unknown(tvm, disabled, watcher.counts)


def device_of(tvm: Any, request: "Request") -> Any:
    """Return the device that the target computes on; raises ValueError if there is none."""
    if request.options["target"] != "cuda":
        return tvm.cpu()
    if not tvm.cuda().exist:
        raise ValueError(
            "tvm cannot compute on cuda: %s"
            % (
                "there is no such device"
                if tvm.runtime.enabled("cuda")
                else "this build has no runtime for it"
            )
        )
    return tvm.cuda()


def build(tvm: Any, request: "Request", module: Any, target: Any) -> Any:
    """Build the executable of a Relax module, by the pipeline that the request's options name."""
    from tvm import relax

    pipeline = "default"
    if request.options["pipeline"] == "zero":
        module = relax.get_pipeline("zero")(module)
    elif request.options["pipeline"] == "target" or request.options["target"] == "cuda":
        # a device wants its schedules
        pipeline = relax.get_default_pipeline(target)
    return relax.build(module, target, relax_pipeline=pipeline, exec_mode=request.options["exec"])


def watch(tvm: Any, disabled: List[str], trace: bool, effects: Optional[List[str]] = None) -> Any:
    """Make an instrument that skips the named passes, and prints (or records in `effects`) which run and
    which change the module.

    A pass that only runs other passes is a `host`.
    """
    from tvm_ffi import structural_equal

    counts: Dict[str, int] = {}
    open_: List[
        Any
    ] = []  # the passes under way, outermost first: the module before each, and whether others ran in it

    def report(what: str, name: str) -> None:
        if effects is not None:
            effects.append("%s %s" % (what, name))
        if trace:
            print("opsieve pass %s %s" % (what, name), file=sys.stderr, flush=True)

    @tvm.instrument.pass_instrument  # type: ignore[misc, unused-ignore]
    class Watcher:
        def __init__(self) -> None:
            self.counts = counts

        def should_run(self, module: Any, info: Any) -> bool:
            name = str(info.name)
            counts[name] = counts.get(name, 0) + 1
            return name not in disabled and "%s@%d" % (name, counts[name]) not in disabled

        def run_before_pass(self, module: Any, info: Any) -> None:
            if trace or effects is not None:
                # The pass under way runs this one.
                if open_:
                    open_[-1][1] = True
                open_.append([module, False])
                report("ran", str(info.name))

        def run_after_pass(self, module: Any, info: Any) -> None:
            if trace or effects is not None:
                before, is_host = open_.pop()
                if is_host:
                    report("host", str(info.name))
                # TVM copies a module even where a pass changes nothing: identity says nothing.
                elif not structural_equal(before, module):
                    report("acted", str(info.name))

    return Watcher()


def refuse_unknown(tvm: Any, disabled: List[str], counts: Mapping[str, int]) -> None:
    """Raise ValueError for a pass that did not run and that TVM does not have: a misspelt one would pass
    every test.
    """
    missing = {name.rpartition("@")[0] or name for name in disabled} - set(counts)
    if not missing:
        return
    import tvm_ffi

    known = {
        name.rpartition(".")[2] for name in tvm_ffi.registry.list_global_func_names() if ".transform." in name
    }
    # Passes that exist but were not called in this pipeline are fine.
    for name in sorted(missing):
        if name.rpartition(".")[2] not in known:
            raise ValueError("tvm has no pass %r" % name[:80])


def open_shapes(graph: Any, inputs: Mapping[str, Any]) -> Dict[str, List[int]]:
    """Return the shapes of the fed values for inputs whose declared shape is missing or has an open
    dimension.
    """
    shapes = {}
    for item in graph.input:
        tensor = item.type.tensor_type
        fixed = tensor.HasField("shape") and all(
            dim.WhichOneof("value") == "dim_value" for dim in tensor.shape.dim
        )
        if item.name in inputs and not fixed:
            shapes[item.name] = list(np.shape(inputs[item.name]))
    return shapes


def to_value(tvm: Any, result: Any, name: str, request: "Request") -> Any:
    """Convert a result of the virtual machine to a numpy array or a list of arrays."""
    if hasattr(result, "numpy"):
        return result.numpy()
    if isinstance(result, tvm.runtime.ShapeTuple):
        note = "tvm returned a shape for %s, read as a tensor of int64" % name
        # Once, although every run and output comes by here.
        if note not in request.notes:
            request.notes.append(note)
        return np.array(list(result), np.int64)
    if isinstance(result, (bool, int, float)):
        return np.asarray(result)
    return [to_value(tvm, item, name, request) for item in result]


BACKEND = TvmRelax()
