"""How diverse modules of TVM's own IRs are: what they call, and what reads what."""

from collections import Counter
from typing import Any

from opsieve.gen.model.program import Program


class ModuleMetrics:
    """Modules so far; every count but `calls` and `functions` is of distinct things."""

    def __init__(self) -> None:
        self.modules = 0
        self._functions = 0
        self._calls: Counter[str] = Counter()
        self._edges: set[tuple[str, str]] = set()
        self._signatures: set[tuple[str, ...]] = set()
        self._passes: Counter[str] = Counter()

    def add(self, program: Program) -> None:
        """One more module."""
        self.modules += 1
        self._functions += len(getattr(program, "functions", [program]))
        self._calls.update(program.operators())
        self._edges.update(program.edges())
        self._signatures.add(tuple(str(kind) for kind in program.inputs().values()))
        self._passes.update(step.partition(":")[0] for step in program.passes)

    def report(self) -> dict[str, Any]:
        """The keys of `modules` in `opsieve metrics --json` (benchmarks/research/README.md)."""
        return {
            "modules": self.modules,
            "functions": self._functions,
            "calls": self._calls.total(),
            "operators": len(self._calls),
            "edges": len(self._edges),
            "signatures": len(self._signatures),
            "passes": len(self._passes),
            "frequencies": dict(self._calls.most_common()),
        }
