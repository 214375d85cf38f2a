"""Confirm that the pipeline of the target removes a function that is passed as a value, and then needs it."""

import sys
from pathlib import Path

import tvm
from tvm import relax

module = tvm.ir.load_json(Path(__file__).with_name("module.json").read_text())
tvm.relax.analysis.well_formed(module)  # raises where it is not
target = tvm.target.Target("llvm")
try:
    with target:
        lifted = relax.transform.LambdaLift()(module)
        built = relax.build(lifted, target, relax_pipeline=relax.get_default_pipeline(target))
    relax.VirtualMachine(built, tvm.cpu())
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "Cannot find" in seen and "main_f2_1" in seen
print("confirmed:" if is_confirmed else "not confirmed:", tvm.__version__, seen.strip()[:200])
sys.exit(not is_confirmed)
