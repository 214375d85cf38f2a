"""Confirm that FuseTIR removes a function that is passed as a value."""

import sys
from pathlib import Path

import tvm
from tvm import relax

module = tvm.ir.load_json(Path(__file__).with_name("module.json").read_text())
tvm.relax.analysis.well_formed(module)  # raises where it is not
try:
    relax.analysis.well_formed(relax.transform.FuseTIR()(relax.transform.LambdaLift()(module)))
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "is not defined" in seen
print("confirmed:" if is_confirmed else "not confirmed:", tvm.__version__, seen.strip()[-200:])
sys.exit(not is_confirmed)
