"""Structures that optimisers look for, by name."""

from collections.abc import Callable

from opsieve.gen.declaration import Tensor
from opsieve.gen.patterns_fused import FUSED
from opsieve.gen.patterns_moved import MOVED
from opsieve.gen.weaving import Weaver

Pattern = Callable[[Weaver], Tensor]
PATTERNS: dict[str, Pattern] = {pattern.__name__: pattern for pattern in (*FUSED, *MOVED)}
