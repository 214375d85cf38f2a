"""`opsieve.reduce` on a module that the caller's own TVM holds in memory, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

# The nested tuple of apache/tvm#20194: FuseOps leaves a function that FuseTIR cannot name.
MODULE = """\
import json
import tvm
from tvm import relax
from tvm.script import ir as I, relax as R
import opsieve


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            a = R.add(x, R.const(2.0, "float32"))
            pair = (x, a)
            nested = (pair, y)
            inner = nested[0]
            out = inner[0]
            R.output(out)
        return out


passes = relax.transform
steps = [passes.LegalizeOps(), passes.AnnotateTIROpPattern(), passes.FuseOps(), passes.FuseTIR()]
"""

REDUCED = """
found = opsieve.reduce(Module, targets=["tvm"], pass_=tvm.transform.Sequential(steps), output="small")
best = found.reduction.best.program
back = tvm.ir.load_json(best.data.decode())
print(json.dumps([found.facts["kind"], best.passes, best.operators(), isinstance(back, tvm.IRModule)]))
"""

WRITTEN = """
@tvm.transform.module_pass(opt_level=0, name="Mine")
def mine(mod, ctx):
    return mod

named = opsieve.reduce(Module, targets=["tvm"], pass_="LegalizeOps, FuseOps:1")
print(json.dumps([named.reduction is None, opsieve.open_case(Module).program.operators()]))
main = opsieve.open_case(Module["main"], seed=3)
print(json.dumps(sorted(main.inputs)))
for wrong in (mine, 3, "No Name"):
    try:
        opsieve.reduce(Module, targets=["tvm"], pass_=wrong)
    except opsieve.BadInput as error:
        print(json.dumps(str(error)))
try:
    opsieve.reduce(relax.const(1.0), targets=["tvm"])
except opsieve.BadInput as error:
    print(json.dumps(str(error)))
"""

FILE = """
found = opsieve.reduce(Module, targets=["tvm"], pass_="mine.py", output="small")
print(json.dumps([found.facts["kind"], found.reduction.best.program.passes]))
"""

PASSES = """\
import tvm
from tvm import relax


@tvm.transform.module_pass(opt_level=0, name="Mine")
def mine(mod, ctx):
    return relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(mod))


steps = [mine, relax.transform.FuseOps(), relax.transform.FuseTIR()]
"""


def answers(script: str, folder: Path) -> list[str]:
    """The lines that a person's script prints."""
    (folder / "mine_bug.py").write_text(MODULE + script)
    done = subprocess.run(
        [sys.executable, "mine_bug.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow(seconds=30)
def test_a_module_in_memory_is_reduced_with_its_passes(tmp_path: Path) -> None:
    assert answers(REDUCED, tmp_path) == ['["error", ["FuseOps", "FuseTIR"], [], true]']


@pytest.mark.slow(seconds=40)
def test_passes_are_names_and_others_are_refused(tmp_path: Path) -> None:
    first, inputs, *refused = answers(WRITTEN, tmp_path)
    assert (first, inputs) == ('[true, ["relax.add"]]', '["x", "y"]')
    mine, three, unnamed, constant = refused
    assert "TVM has no pass Mine" in mine
    assert "pass_ holds a int, which is neither a pass nor a name" in three
    assert "'No Name' is not a pass" in unnamed
    assert "is not a module or function" in constant


@pytest.mark.slow(seconds=40)
def test_a_file_of_passes_is_run_in_a_worker(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PASSES)
    assert answers(FILE, tmp_path) == ['["error", ["FuseOps", "FuseTIR"]]']
