"""ONNX's own node tests, collected in a process of their own.

ONNX registers a node test when the module that describes it is imported, in a list that lasts as long as the
process. So what a test finds in the list would depend on what ran before it, and the import seeds numpy's
global generator. The conftest's fixture `node_tests` runs this script once for all pytest processes.
"""

import pickle
import sys
import warnings
from pathlib import Path

from onnx.backend.test.case.test_case import TestCase


def save(path: Path) -> None:
    """Write every node test, in order of name."""
    from onnx.backend.test.loader import load_node_model_tests

    warnings.simplefilter("ignore")  # some divide by zero on purpose
    tests = sorted(load_node_model_tests(), key=lambda test: test.name)
    path.write_bytes(pickle.dumps(tests))


def load(path: Path) -> list[TestCase]:
    return pickle.loads(path.read_bytes())  # noqa: S301 this run wrote the file


if __name__ == "__main__":
    save(Path(sys.argv[1]))
