"""Backend files loaded as a worker of an old release loads them."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from opsieve.backends.workers.zygotes.zygote import CHILD, COMMON

_CODE = """
import json, runpy, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
child = runpy.run_path(sys.argv[2])
child["load_module"](child["COMMON"], sys.argv[3])
module = child["load_module"]("backend", sys.argv[4])
print(eval(sys.argv[5]))
"""


def loaded_alone(file: Path, missing: Sequence[str], expression: str) -> str:
    """What is printed of `expression` over `module`, in an interpreter that has neither opsieve nor the
    `missing` packages.
    """
    names = '["' + '", "'.join(["opsieve", *missing]) + '"]'
    arguments = [names, str(CHILD), str(COMMON), str(file), expression]
    done = subprocess.run(
        [sys.executable, "-I", "-c", _CODE, *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
