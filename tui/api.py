"""The sessions of the commands for Python, from models and arrays in memory or from files: the API of `import
opsieve`.

Every function takes a `model` (a path as the commands take it, an `onnx.ModelProto`, its bytes, the result of
`torch.onnx.export`, a Case, or a module or function of TVM) and `inputs`: None, an `.npz` file or a data set,
or values by name (numpy arrays, or objects with `__array__`). Missing inputs are drawn from the seed. `say`
receives one sentence per call about slow steps. BadInput, one sentence, is raised for unusable arguments.
Compilers run in processes of their own, never in the caller's. The examples in docs/reference/api.md run as
tests.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

# Part of this interface
from opsieve.gen.errors import BadInput as BadInput
from opsieve.gen.model.printable import count_noun

if TYPE_CHECKING:
    import onnx

    from opsieve.backends.compare import Comparison
    from opsieve.backends.judge.oracle_names import OracleChoice
    from opsieve.backends.workers.zygotes.zygote import Limits
    from opsieve.gen.case.case import Case
    from opsieve.reducer.engine.form import Progress
    from opsieve.reducer.sessions.session import Reduced
    from opsieve.triage.judging import JudgeResult
    from opsieve.triage.store.queries import Queries

Model: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | Any"
Values: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | None"
Say: TypeAlias = Callable[[str], None]


def ignore(_: object) -> None:
    """Ignore a sentence, or a step of the progress."""


def open_case(model: Model, inputs: Values = None, expected: Values = None, seed: int = 0) -> "Case":
    """Read a model with its inputs and expected outputs as one case.

    Args:
        model: A path (an ``.onnx`` file or a case folder), an ``onnx.ModelProto``, its bytes, what
            ``torch.onnx.export`` returns, a ``Case``, or a module or function of TVM.
        inputs: Arrays by input name, a path to an ``.npz`` file or an ONNX test data set, or None to draw
            them. A list is an ONNX sequence, None an absent optional.
        expected: Expected outputs in the same forms.
        seed: Seed of the inputs that are drawn.

    Returns:
        The case: ``case.program``, ``case.inputs``, ``case.expected``, ``case.origin``.

    Raises:
        BadInput: If the model or a value cannot be read.

    Examples:
        >>> opsieve.open_case("model.onnx").program.operators()
    """
    from opsieve.gen.case.case import open_case as opened

    with write_files(model, inputs, expected) as files:
        return opened(files.model, files.inputs, files.expected, seed)


def run(
    model: Model,
    inputs: Values = None,
    targets: Sequence[str] = (),
    *,
    expected: Values = None,
    seed: int = 0,
    values: str = "",
    tolerance: tuple[float, float] | None = None,
    oracle: Sequence[str] = (),
    metamorphic: bool = False,
    check: bool = True,
    seconds: float = 60.0,
    memory: int = 0,
    offline: bool = False,
    save: str | os.PathLike[str] | None = None,
    locate: bool = False,
    say: Say = ignore,
    progress: "Callable[[JudgeResult], object]" = ignore,
) -> "list[JudgeResult]":
    """Run a model on compilers and judge each result, as `opsieve run` does.

    Args:
        model: The model, in one of the forms that `open_case` takes.
        inputs: Input values, in the forms that `open_case` takes.
        targets: Compilers, written ``backend[==release | @path][:option,...]``; if empty, the one that a case
            names, else onnxruntime.
        expected: Expected outputs; a result that contradicts them is a failure.
        seed: Seed of the inputs that are drawn.
        values: How inputs are chosen, as ``--values`` takes it.
        tolerance: (relative, absolute) tolerance per element; replaces the measured policy.
        oracle: Names of oracles to consult too, those of your own among them.
        metamorphic: Also run equivalent programs.
        check: Whether ONNX's checker has to accept the model first.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        offline: Use only releases that are installed.
        save: Folder in which each failure is saved as a case.
        locate: Whether to find the first node whose output is wrong given correct inputs
            (``result.located``).
        say: Receives diagnostics, one sentence per call.
        progress: Receives each result as soon as it is known.

    Returns:
        One result per target, in order. ``result.judged.verdict`` is the verdict,
        ``result.judged.observations[0].outputs`` are the target's arrays by output name (None if there are
        none), ``result.facts()`` are the keys of ``--json``.

    Raises:
        BadInput: If a target does not exist, or the checker rejects the model.
    """
    from opsieve.triage.judging import JudgeRequest, JudgeResult, judge_models

    results = []
    limits = make_limits(seconds, memory)
    with write_files(model, inputs, expected) as files, name_targets(targets, oracle) as named:
        request = JudgeRequest(
            targets=named.targets,
            inputs=files.inputs,
            expected=files.expected,
            values=values,
            seed=seed,
            tolerance=tolerance,
            metamorphic=metamorphic or "metamorphic" in named.oracles.names,
            oracles=named.oracles,
            check=check,
            save=None if save is None else Path(save),
            limits=limits,
            offline=offline,
            locate=locate,
        )
        for found in judge_models([files.model], request, say):
            if not isinstance(found, JudgeResult):
                raise BadInput(found.reason.replace(str(files.model), files.name))
            results.append(replace(found, model=files.name))
            progress(results[-1])
    return results


def compare(
    got: Mapping[str, Any], expected: Mapping[str, Any], tolerance: tuple[float, float] | None = None
) -> "Comparison":
    """Compare outputs by name with the judge's policy.

    Args:
        got: Arrays by output name, of the dtypes that the model declares.
        expected: The arrays that they should equal.
        tolerance: (relative, absolute) tolerance per element; replaces the measured policy, in which the
            error of an output is its largest absolute difference over the largest expected magnitude.

    Returns:
        The comparison: ``agrees``, ``mismatches`` by output name, ``worst``.
    """
    from opsieve.backends.compare import POLICY, compare as compared

    wanted = {name: _convert_value(value) for name, value in expected.items()}
    given = {name: _convert_value(value) for name, value in got.items()}
    return compared(given, wanted, {}, replace(POLICY, tolerance=tolerance))


def reduce(
    model: Model,
    inputs: Values = None,
    targets: Sequence[str] = (),
    *,
    against: str | None = None,
    oracle: Sequence[str] = (),
    same: str = "fingerprint",
    check: "str | os.PathLike[str] | Callable[[Case], bool] | None" = None,
    pass_: Any = None,
    expected: Values = None,
    output: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    resources: Mapping[str, float] | None = None,
    seed: int = 0,
    minutes: float | None = None,
    checks: int | None = None,
    seconds: float = 30.0,
    memory: int = 0,
    offline: bool = False,
    say: Say = ignore,
    progress: "Callable[[Progress], object]" = ignore,
) -> "Reduced":
    """Reduce a failing model to the smallest one that fails in the same way, as `opsieve reduce` does.

    The results are written to `output`. Calling it again with the same `output` resumes; what a callback
    raises (KeyboardInterrupt, say) ends the reduction and leaves the best model so far there.

    Args:
        model: The failing model, in one of the forms that `open_case` takes.
        inputs: Input values, in the forms that `open_case` takes.
        targets: Compilers to try in order; all installed ones if empty.
        against: The trusted target to compare with; chosen automatically if None.
        oracle: Names of oracles to consult too.
        same: How strictly the failure must stay the same: ``loose``, ``fingerprint`` or ``cure``.
        check: A script that decides instead: called with the model and its inputs, it exits with 0 while
            the failure shows. Or a function: called with a Case, it returns True while the failure shows.
        pass_: With a module of TVM: what runs on it before the build. TVM's passes, as one object, a
            Sequential or a list (taken by name, without arguments), their names
            (``"LegalizeOps,FuseOps:1"``), or a Python file that defines passes.
        expected: Expected outputs.
        output: Folder of the results; a new temporary one if None.
        jobs: Number of slow tests that run at the same time, 1 to 64; one, or as many as the cluster's
            workers have threads, if None.
        scheduler: Address of a Dask cluster that runs slow tests.
        resources: Resources that a worker of the cluster must have.
        seed: Seed of the inputs that are drawn.
        minutes: Wall time after which the result is the smallest model so far.
        checks: Number of tests after which the result is the smallest model so far.
        seconds: Time limit of one run, in seconds of wall time.
        memory: Memory limit of one run in bytes; 0 for the default.
        offline: Use only releases that are installed.
        say: Receives diagnostics, one sentence per call.
        progress: Called with the state of the reduction.

    Returns:
        ``facts`` are the keys of ``--json``; ``text`` is the reduced model for people;
        ``reduction.best`` is the program with its inputs. ``reduction`` is None if nothing fails.

    Raises:
        BadInput: If an option cannot be used, or the model cannot be read.
    """
    from opsieve.reducer.sessions.session import ReductionRequest, Session
    from opsieve.reducer.sessions.worker_pool import WorkerPool, open_cluster
    from opsieve.triage.fingerprint.sameness import LEVELS

    if same not in LEVELS:
        raise BadInput(f"same is one of {', '.join(LEVELS)}")
    # Each job keeps worker processes with a compiler loaded.
    if not 1 <= (jobs or 1) <= 64:
        raise BadInput("jobs is a number from 1 to 64")
    # With a cluster the tests run there; one worker here is enough for the rest.
    here = 1 if scheduler is not None else jobs or 1
    limits = make_limits(seconds, memory)
    with (
        name_targets(targets, oracle) as named,
        _open_output(output) as folder,
        write_files(model, inputs, expected, pass_) as files,
        WorkerPool(limits, here, offline, named.targets, say) as pool,
        open_cluster(scheduler, resources or {}, jobs, pool[0], say) as further,
    ):
        request = ReductionRequest(
            files.model,
            inputs=files.inputs,
            expected=files.expected,
            targets=named.targets,
            oracles=named.oracles.names,
            against=against,
            level=same,
            script=Path(check) if isinstance(check, (str, os.PathLike)) else None,
            is_failing=check if callable(check) else None,
            output=folder,
            jobs=here,
            seed=seed,
            seconds=seconds,
            minutes=minutes,
            checks=checks,
        )
        with Session(request, pool, _Listener(say, progress), further) as session:
            return session.reduce()


@contextmanager
def _open_output(output: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield the named folder of results, or a new one, which is removed if it stays empty."""
    if output is not None:
        yield Path(output)
        return
    # Not a TemporaryDirectory: the results must outlive the call.
    folder = Path(tempfile.mkdtemp(prefix="opsieve-reduced-"))
    try:
        yield folder
    finally:
        # It is not empty: there are results
        with suppress(OSError):
            folder.rmdir()


def open_store(folder: str | os.PathLike[str]) -> "Queries":
    """Open a store of `opsieve fuzz` or `opsieve import` for reading.

    Args:
        folder: The folder of the store.

    Returns:
        A context manager with ``clusters()``, ``members(name)``, ``case(name)``, ``counts()`` and more.

    Raises:
        BadInput: If the folder holds no store.
    """
    from opsieve.triage.store.queries import Queries

    return Queries(Path(folder))


def assert_agrees(
    model: Model,
    inputs: Values = None,
    targets: Sequence[str] = (),
    *,
    expected: Values = None,
    tolerance: tuple[float, float] | None = None,
    seed: int = 0,
    seconds: float = 60.0,
    offline: bool = False,
    reduced: bool = True,
    output: str | os.PathLike[str] | None = None,
) -> None:
    """Assert that every target computes what the model means.

    A first failure is reduced, and the message names the folder of the reduced model and its script.

    Args:
        model: The model, in one of the forms that `open_case` takes.
        inputs: Input values, in the forms that `open_case` takes.
        targets: Compilers, written ``backend[==release | @path][:option,...]``; if empty, the one that a case
            names, else onnxruntime.
        expected: Expected outputs.
        tolerance: (relative, absolute) tolerance per element; replaces the measured policy.
        seed: Seed of the inputs that are drawn.
        seconds: Time limit of one run, in seconds of wall time.
        offline: Use only releases that are installed.
        reduced: Whether to reduce the first failure.
        output: Folder of the reduced case; a temporary one if None.

    Raises:
        AssertionError: If a verdict is not ``pass``, with one line per target. Targets that could not run,
            lack an operator or stay undecided do not agree either.
    """
    # Pytest then shows the caller's line, not this function.
    __tracebackhide__ = True
    with write_files(model, inputs, expected) as files:
        given: dict[str, Any] = {
            "expected": files.expected,
            "seed": seed,
            "seconds": seconds,
            "offline": offline,
        }
        results = run(files.model, files.inputs, targets, tolerance=tolerance, **given)
        wrong = [result for result in results if result.judged.verdict.verdict != "pass"]
        if not wrong:
            return
        lines = [
            f"{files.name} does not agree with what it means on {len(wrong)} of"
            f" {count_noun(len(results), 'target')}:"
        ]
        for result in wrong:
            verdict = result.judged.verdict
            what = (
                f"{verdict.verdict} ({verdict.kind} at {verdict.stage})" if verdict.kind else verdict.verdict
            )
            lines.append(f"  {result.target.display}: {what}: {verdict.reason}")
        # Only what fails for certain can be reduced.
        failed = next((result for result in wrong if result.judged.verdict.verdict == "fail"), None)
        if reduced and failed is not None:
            found = reduce(files.model, files.inputs, [failed.target.display], output=output, **given)
            lines += _describe_reduction(found)
    raise AssertionError("\n".join(lines))


def _describe_reduction(found: "Reduced") -> list[str]:
    """Describe the place and size of a reduction."""
    facts = found.facts
    if found.reduction is None:
        return [f"  not reduced: {facts['message']}"]
    size = f"{facts['nodes_before']} to {count_noun(facts['nodes_after'], 'node')}"
    lines = [f"  reduced from {size}: {facts['output']}"]
    return [*lines, f"  script: {facts['script']}"] if facts["script"] else lines


@dataclass(frozen=True, slots=True)
class _Listener:
    """The callbacks of a caller as the listener of a session."""

    heard: Say
    moved: "Callable[[Progress], object]"

    def say(self, sentence: str) -> None:
        self.heard(sentence)

    def progress(self, at: "Progress") -> None:
        self.moved(at)


@dataclass(frozen=True, slots=True)
class _Files:
    """The arguments of a session as files; `name` is the model's name for people."""

    model: Path
    inputs: Path | None
    expected: Path | None
    name: str


@contextmanager
def write_files(model: Model, inputs: Values, expected: Values, pass_: Any = None) -> Iterator[_Files]:
    """Write values in memory to a folder that lasts as long as the block; a path stays where it is."""
    with tempfile.TemporaryDirectory(prefix="opsieve-question-") as scratch:
        path, name = _place_model(model, Path(scratch) / "model", pass_)
        yield _Files(
            path,
            _write_values(inputs, path, scratch, "input"),
            _write_values(expected, path, scratch, "output"),
            name,
        )


def _place_model(model: Any, folder: Path, pass_: Any) -> tuple[Path, str]:
    """Return the path of a model, in `folder` if it was in memory, and its name."""
    # By the name of its module: importing TVM to ask would load a compiler into the caller.
    if type(model).__module__.partition(".")[0] == "tvm":
        from opsieve.backends.workers.questions.module_reader import write_module

        return write_module(model, pass_, folder), "the module"
    if pass_ is not None:
        raise BadInput("pass_ is for a module of TVM: a path or a Case holds its own passes")
    if isinstance(model, (str, os.PathLike)):
        return Path(model), str(model)
    from opsieve.gen.case.case import Case, save

    if isinstance(model, Case):
        save(model, folder)
        return folder, model.program.name or "the case"
    data, name = _serialise_model(model)
    folder.mkdir()
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path, name


def _serialise_model(model: Any) -> tuple[bytes, str]:
    """Serialise a model in memory and return its name too; raises BadInput for other objects."""
    from onnx import ModelProto

    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), "model"
    # Of torch.onnx.ONNXProgram
    proto = getattr(model, "model_proto", model)
    if not isinstance(proto, ModelProto):
        raise BadInput(
            "a model is a path, an onnx.ModelProto, its bytes, a Case or a module of TVM,"
            f" not a {type(model).__name__}"
        )
    # The limit of protobuf: serialising would raise its own error, or write a broken file.
    if proto.ByteSize() > 1 << 31:
        raise BadInput(
            "a model over 2 GB cannot be held in one ModelProto; save it with external data and pass its path"
        )
    return proto.SerializeToString(deterministic=True), proto.graph.name or "model"


def _write_values(values: Values, model: Path, scratch: str, role: Any) -> Path | None:
    """Write the values of inputs or outputs as a data set; a path stays as it is."""
    if values is None or isinstance(values, (str, os.PathLike)):
        return None if values is None else Path(values)
    from opsieve.gen.case.case import program_at
    from opsieve.gen.data.data_set import fit_values, write_folder

    program = program_at(model)
    types = program.inputs() if role == "input" else program.outputs()
    arrays = {name: _convert_value(value) for name, value in values.items()}
    folder = Path(scratch) / f"given {role}s"
    folder.mkdir()
    write_folder(folder, fit_values(arrays, types, role, f"the {role}s given"), types, role)
    return folder


def _convert_value(value: Any) -> Any:
    """Convert arrays to numpy's; sequences and absent values stay."""
    import numpy as np

    if isinstance(value, (list, tuple)):
        return [_convert_value(item) for item in value]
    return value if value is None or isinstance(value, np.ndarray) else np.asarray(value)


def make_limits(seconds: float, memory: int) -> "Limits":
    """Return the limits of a run; raises BadInput for numbers that are none."""
    from opsieve.backends.workers.zygotes.zygote import Limits

    # Not `seconds <= 0`, which a NaN would pass.
    if not seconds > 0 or memory < 0:
        raise BadInput("seconds is a number above 0, memory a number of bytes")
    return Limits(seconds=seconds, memory=memory) if memory else Limits(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Named:
    """The targets and oracles that a caller names, and may therefore run code of the caller's own."""

    targets: tuple[str, ...]
    oracles: "OracleChoice"


@contextmanager
def name_targets(targets: Iterable[str], oracle: Sequence[str] = ()) -> Iterator[Named]:
    """Allow the named builds and oracles while the block lasts; raises BadInput for a single string."""
    for word, given in (("targets", targets), ("oracle", oracle)):
        # A string is a sequence too: each of its letters would be a target.
        if isinstance(given, str):
            raise BadInput(f"{word} is a list: {word}=[{given!r}]")
    from opsieve.backends.judge.oracle_names import choose_oracles
    from opsieve.backends.registry import resolve
    from opsieve.backends.releases import builds, consent
    from opsieve.backends.target import may_be_own

    named = tuple(map(str, targets))
    choice = choose_oracles(oracle)
    # The caller wrote these names, so that they are consent to run code of the caller's own.
    own = [resolve(name) for name in named if may_be_own(name)]
    for target in own:
        builds.allow(target)
    with consent.name_oracles([*oracle, *(name for target in own for name in target.oracles)]):
        yield Named(named, choice)
