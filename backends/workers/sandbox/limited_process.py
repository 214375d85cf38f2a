"""A reader of hostile bytes in a process of its own, with limits on time and memory: for what takes little
time to write down and much to read.
"""

import importlib
import os
import resource
import signal
import subprocess
import sys
from typing import NoReturn

from opsieve.backends.workers.sandbox.helper_walls import drop_rights
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import measure_addresses

# Of CPU
SECONDS = 6
# Bytes, in addition to three times the input and the reader's own code.
_MEMORY = 256 << 20
# Characters of a reason
_LONGEST = 300


def read_limited(reader: str, data: bytes, seconds: int = SECONDS) -> bytes:
    """Return what a reader makes of bytes; raise BadInput if it exceeds its time or memory, or raises.

    Args:
        reader: `module:function`, which takes bytes and returns bytes. It opens no file and starts no
            process.
        data: What is read.
        seconds: CPU time that the reader may take.
    """
    # Isolated: neither the current folder nor PYTHONPATH may supply another module of that name.
    command = [sys.executable, "-I", "-c", f"from {__name__} import serve; serve()", reader, str(seconds)]
    # Threads of OpenBLAS reserve address space, which counts towards the limit.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            # The limit on CPU time does not end a process that sleeps; wall time is far above it for busy
            # machines.
            command,
            input=data,
            capture_output=True,
            timeout=30 * seconds,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"it is not read within {30 * seconds} s") from None
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    why = lines[-1] if lines else f"its reader ends with exit code {done.returncode}"
    if done.returncode == -signal.SIGXCPU:
        why = f"it takes more than {seconds} s of CPU to read"
    raise BadInput(why if len(why) <= _LONGEST and why.isprintable() else shown(why, _LONGEST))


def serve() -> NoReturn:
    """Be the process: read stdin, and write the reader's result to stdout."""
    module, _, name = sys.argv[1].partition(":")
    read = getattr(importlib.import_module(module), name)
    data = sys.stdin.buffer.read()
    # The limit is on top of what the process already takes, which differs by its imports.
    most = measure_addresses() + _MEMORY + 3 * len(data)
    seconds = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    # The soft limit sends SIGXCPU, which names the reason; a second later the hard one kills.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    drop_rights()
    try:
        answer = read(data)
    except MemoryError:
        sys.exit(f"it takes more than {(_MEMORY + 3 * len(data)) >> 20} MB of memory to read")
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    # Without the interpreter's tidy end, which could need calls that the walls refuse.
    os._exit(0)
