"""Confirm that a module whose result is a constant dies of SIGSEGV when it runs."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

code = """
import sys, tvm
from tvm import relax
module = tvm.ir.load_json(open(sys.argv[1] + "/module.json").read())
relax.analysis.well_formed(module)
relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())["main"]()
"""
done = subprocess.run(
    [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
)
is_confirmed = done.returncode == -11
print("confirmed:" if is_confirmed else "not confirmed:", version("apache-tvm"), "exit", done.returncode)
sys.exit(not is_confirmed)
