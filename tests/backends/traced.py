"""Run as a process of its own by test_tracer.py: loads the tracer as a worker does, and a library, and does what it is told."""

import ctypes
import importlib.util
import json
import os
import sys

spec = importlib.util.spec_from_file_location("tracer", sys.argv[1])
tracer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tracer)
told = json.loads(sys.argv[2])
library = ctypes.CDLL(told["library"])
hits = os.memfd_create("hits")
os.ftruncate(hits, told["count"])
probes = tracer.Tracer(hits, told["count"])
probes.add(told["library"], told["points"], told["count"])


def numbers():
    return sorted(note & ~tracer.NEW for note in probes.notes())


def child(does):
    """What a forked process reached, and how it ended."""
    notes = os.memfd_create("notes")
    os.ftruncate(notes, tracer.HEAD + 4 * told["count"])
    pid = os.fork()
    if not pid:
        probes.watch(notes)
        does()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    probes.watch(notes)
    return {"status": status, "reached": numbers(), "foreign": probes.foreign}


exec(told["do"])  # noqa: S102 - the test's own text
print(json.dumps(answer))  # noqa: F821 - the test's text makes it
