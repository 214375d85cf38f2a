"""Backends loaded as a worker of an old release loads them."""

import subprocess
import sys
from collections.abc import Sequence

from opsieve.backends.workers.zygotes.zygote import CHILD

_CODE = """
import importlib, importlib.util, json, os, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
package = os.path.abspath(os.path.join(os.path.dirname(sys.argv[2]), "..", "..", "..", "__init__.py"))
spec = importlib.util.spec_from_file_location("opsieve", package)
sys.modules["opsieve"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["opsieve"])
module = importlib.import_module(sys.argv[3])
print(eval(sys.argv[4]))
"""


def loaded_alone(module: str, missing: Sequence[str], expression: str) -> str:
    """What is printed of `expression` over `module`, one of opsieve's, in an interpreter that has not
    installed opsieve and lacks the `missing` packages.
    """
    arguments = ['["' + '", "'.join(missing) + '"]', str(CHILD), module, expression]
    done = subprocess.run(
        [sys.executable, "-I", "-c", _CODE, *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
