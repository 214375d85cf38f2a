"""opsieve: reduce, triage and bisect the bugs of deep-learning compilers.

The functions below are `opsieve.tui.api`, imported when first used: `import opsieve` loads neither onnx nor numpy.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

__version__ = "0.1.0"

__all__ = [
    "BadInput",
    "assert_agrees",
    "attribute",
    "bisect_commits",
    "bisect_releases",
    "compare",
    "open_case",
    "open_store",
    "reduce",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsieve.tui import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
