"""opsieve: reduce, triage and bisect the bugs of deep-learning compilers.

What is below comes from `opsieve.tui.api` and others, imported when first used: `import opsieve` loads
neither onnx nor numpy.
"""

# Workers load it under Python 3.8
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from opsieve.version import VERSION

if TYPE_CHECKING:
    from opsieve.triage.store.queries import Queries as Store
    from opsieve.tui.api import (
        BadInput,
        assert_agrees,
        attribute,
        bisect_commits,
        bisect_releases,
        compare,
        open_case,
        open_store,
        reduce,
        run,
    )
    from opsieve.tui.campaign_api import fuzz

__version__ = VERSION

__all__ = [
    "BadInput",
    "Store",
    "assert_agrees",
    "attribute",
    "bisect_commits",
    "bisect_releases",
    "compare",
    "fuzz",
    "open_case",
    "open_store",
    "reduce",
    "run",
]
_ELSEWHERE = {
    "Store": ("opsieve.triage.store.queries", "Queries"),
    "fuzz": ("opsieve.tui.campaign_api", "fuzz"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _ELSEWHERE.get(name, ("opsieve.tui.api", name))
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
