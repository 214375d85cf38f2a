"""Confirm that InjectPermutedLayout fails on an if_then_else whose branches are constants."""

import sys
from pathlib import Path

import tvm
import tvm.s_tir

module = tvm.ir.load_json(Path(__file__).with_name("module.json").read_text())
module = tvm.IRModule({"main": module}) if isinstance(module, tvm.tirx.PrimFunc) else module
try:
    tvm.s_tir.transform.InjectPermutedLayout()(module)
    seen = ""
except Exception as error:
    seen = repr(error)
is_confirmed = "ir.Call" in seen
print("confirmed:" if is_confirmed else "not confirmed:", tvm.__version__, seen.strip()[-200:])
sys.exit(not is_confirmed)
