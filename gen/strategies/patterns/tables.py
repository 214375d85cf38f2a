"""Structures that optimisers look for, by name."""

from collections.abc import Callable
from typing import Final

from opsieve.gen.declarations.tensor import Tensor
from opsieve.gen.generation.pattern_builder import PatternBuilder
from opsieve.gen.strategies.patterns.fused import FUSED
from opsieve.gen.strategies.patterns.moved import MOVED

Pattern = Callable[[PatternBuilder], Tensor]
PATTERNS: Final[dict[str, Pattern]] = {pattern.__name__: pattern for pattern in (*FUSED, *MOVED)}
