"""A failure of each compiler, reduced by the command, and its exported script run in an environment of its
own that has only what the script names.
"""

import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnx
from benchmarks.exports import INSTALL, environment
from benchmarks.reducing.grow import grown
from benchmarks.reducing.scaled import Cost, measured
from benchmarks.reducing.two_bugs import SAMPLES

from opsieve.gen.case.case import Case, load
from opsieve.gen.data.data_set import write_folder
from opsieve.gen.irs.onnx.program import OnnxProgram, onnx_program
from opsieve.triage.corpus.collection import read_bugs

# Each with the release that it fails on, as its facts say; one whose inputs can lie in a host is given one.
CASES = (
    "pad-maxpool-wrong-value",
    "tvm-onehot-type-error",
    "openvino-int-division-wrong-value",
    "onnxscript-clip-bounds-wrong-value",
    "onnxslim-scalar-shape-error",
    "onnxsim-pad-avgpool-load-error",
    "onnxoptimizer-shape-crash",
    "tract-slice-step-error",
)


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """How an exported script ended: its lines, its exit code (None where it could not be run) and the last
    line that it printed.
    """

    lines: int
    code: int | None
    last: str


def report(only: str, size: int) -> None:
    """A row of a table for each compiler; `size` is that of the host around the bug, where it can be given
    one.
    """
    print(
        "| target | sample | nodes | left | checks | CPU, s | clock, s | lines of the script | exit code |"
        " last line |"
    )
    with tempfile.TemporaryDirectory(prefix="opsieve-compilers-") as folder:
        for sample in CASES:
            target = read_bugs(SAMPLES)[sample][1].fails
            if only in target:
                place = Path(folder) / sample
                nodes = hosted(sample, place, size)
                cost = measured(place, target, place / "out", "--yes")
                script = _run(cost, Path(folder))
                print(
                    f"| {target} | {sample} | {nodes} | {cost.left if cost.facts else 'none'} |"
                    f" {cost.facts.get('checks')} | {cost.cpu:.1f} | {cost.seconds:.1f} | {script.lines} |"
                    f" {script.code} | {script.last} |",
                    flush=True,
                )


def hosted(sample: str, place: Path, size: int) -> int:
    """Write a sample within a host as a model with its inputs; itself where nothing of it can be given one.
    The nodes that it has.
    """
    case = load(SAMPLES / sample)
    proto = onnx_program(case.program, "this").proto
    with suppress(ValueError):
        case = Case(OnnxProgram(grown(proto, size).SerializeToString()), case.inputs)
    (place / "test_data_set_0").mkdir(parents=True)
    onnx.save(onnx_program(case.program, "this").proto, place / "model.onnx")
    write_folder(place / "test_data_set_0", case.inputs, case.program.inputs(), "input")
    return case.program.size


def _run(cost: Cost, folder: Path) -> ScriptRun:
    path = cost.facts.get("script")
    if not path:
        return ScriptRun(0, None, "no script")
    text = Path(path).read_text()
    found = INSTALL.search(text)
    packages = [] if found is None else shlex.split(found[1])
    python = environment(packages, folder, f"{sys.version_info[0]}.{sys.version_info[1]}")
    if not packages or python is None:
        return ScriptRun(
            text.count("\n"), None, f"cannot be installed: {' '.join(packages) or 'it names nothing'}"
        )
    since = time.monotonic()
    done = subprocess.run(
        [python / "bin" / "python", path], capture_output=True, text=True, timeout=300, check=False
    )
    last = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    return ScriptRun(
        text.count("\n"), done.returncode, f"{ascii(last)[1:-1][:100]} ({time.monotonic() - since:.1f} s)"
    )
