"""Compute a digest of the generator: while it stays the same, equal seeds and requests give equal bytes."""

import functools
import hashlib
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import onnx


@functools.cache
def compute_generator_version() -> str:
    """Return twelve digits of a digest of `gen`, of the modules and files of strategies and operators, and of
    onnx's version.
    """
    digest = hashlib.sha256(onnx.__version__.encode())
    gen = Path(__file__).resolve().parent.parent
    paths = {path.resolve() for path in (*gen.rglob("*.py"), *gen.rglob("*.txt"))}
    for group in ("opsieve.strategies", "opsieve.operators"):
        for point in entry_points(group=group):
            spec = find_spec(point.module)
            if spec is not None and spec.origin is not None:
                paths.add(Path(spec.origin).resolve())
    for path in sorted(paths):
        name = path.relative_to(gen).as_posix() if path.is_relative_to(gen) else path.name
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
