"""Run as a process of its own by test_tracer.py: loads the tracer as a worker does, and a library, and does
what it is told.
"""

import ctypes
import importlib.util
import json
import os
import sys


def loaded(name, path):
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tracer = loaded("tracer", sys.argv[1])
told = json.loads(sys.argv[2])
if "callbacks" in told:
    loaded("callbacks", told["callbacks"]).provide()
library = ctypes.CDLL(told["library"])
hits = os.memfd_create("hits")
os.ftruncate(hits, told["count"])
probes = tracer.Tracer(hits, told["count"])
if told.get("counters"):
    probes.count(told["library"], told["points"], told["count"], told["counters"])
else:
    probes.add(told["library"], told["points"], told["count"])


def numbers():
    return sorted(note & ~tracer.NEW for note in probes.notes())


def child(does):
    """What a forked process reached, how it ended, and what the pages of its counters held then."""
    notes = os.memfd_create("notes")
    room = -(-(tracer.HEAD + 4 * told["count"]) // tracer.PAGE) * tracer.PAGE
    os.ftruncate(notes, room + 4 * tracer.PAGE)
    pid = os.fork()
    if not pid:
        probes.watch(notes)
        does()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    pages = os.pread(notes, 4 * tracer.PAGE, room).hex() if told.get("counters") else ""
    probes.counted = []
    probes.watch(notes)
    return {"status": status, "reached": numbers(), "foreign": probes.foreign, "pages": pages}


exec(told["do"])  # noqa: S102 - the test's own text
print(json.dumps(answer))  # noqa: F821 - the test's text makes it
