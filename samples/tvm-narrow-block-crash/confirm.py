"""Confirm that NarrowDataType dies of SIGSEGV on a block whose variable is int64."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

code = """
import sys, tvm, tvm.s_tir
module = tvm.ir.load_json(open(sys.argv[1] + "/module.json").read())
module = tvm.IRModule({"main": module}) if isinstance(module, tvm.tirx.PrimFunc) else module
tvm.tirx.transform.NarrowDataType(32)(module)
"""
done = subprocess.run(
    [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
)
is_confirmed = done.returncode == -11
print("confirmed:" if is_confirmed else "not confirmed:", version("apache-tvm"), "exit", done.returncode)
sys.exit(not is_confirmed)
