"""Confirm that AttachAttrLayoutFreeBuffers makes two functions of one global symbol."""

import sys
from pathlib import Path

import tvm
from tvm import relax

module = tvm.ir.load_json(Path(__file__).with_name("module.json").read_text())
tvm.relax.analysis.well_formed(module)  # raises where it is not
try:
    relax.build(relax.transform.AttachAttrLayoutFreeBuffers()(module), "llvm")
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "duplicate global symbol" in seen
print("confirmed:" if is_confirmed else "not confirmed:", tvm.__version__, seen.strip()[-200:])
sys.exit(not is_confirmed)
