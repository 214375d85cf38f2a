"""Confirm that VectorizeLoop fails on a vectorised loop of one iteration."""

import sys
from pathlib import Path

import tvm
import tvm.s_tir

module = tvm.ir.load_json(Path(__file__).with_name("module.json").read_text())
module = tvm.IRModule({"main": module}) if isinstance(module, tvm.tirx.PrimFunc) else module
try:
    tvm.tirx.transform.VectorizeLoop()(module)
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "lanes > 1" in seen
print("confirmed:" if is_confirmed else "not confirmed:", tvm.__version__, seen.strip()[-200:])
sys.exit(not is_confirmed)
