"""opsieve: reduce, triage and bisect the bugs of deep-learning compilers.

What is below comes from `opsieve.tui.api` and others, imported when first used: `import opsieve` loads
neither onnx nor numpy.
"""

# Workers load it under Python 3.8
from __future__ import annotations

from opsieve.version import VERSION

# As in `typing`, whose import would delay the handler of Ctrl-C in `__main__`
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from opsieve.triage.store.queries import Queries as Store
    from opsieve.tui.api import BadInput, assert_agrees, compare, open_case, open_store, reduce, run
    from opsieve.tui.campaign_api import fuzz
    from opsieve.tui.culprit_api import attribute, bisect_commits, bisect_releases, bisect_source, replay
    from opsieve.tui.given_models import given_models, models
    from opsieve.tui.store_api import (
        add_to_corpus,
        compare_corpus,
        export,
        import_cases,
        list_bugs,
        replay_bugs,
        replay_corpus,
        triage_logs,
        triage_store,
        watch,
    )

__version__ = VERSION

__all__ = [
    "BadInput",
    "Store",
    "add_to_corpus",
    "assert_agrees",
    "attribute",
    "bisect_commits",
    "bisect_releases",
    "bisect_source",
    "compare",
    "compare_corpus",
    "export",
    "fuzz",
    "given_models",
    "import_cases",
    "list_bugs",
    "models",
    "open_case",
    "open_store",
    "reduce",
    "replay",
    "replay_bugs",
    "replay_corpus",
    "run",
    "triage_logs",
    "triage_store",
    "watch",
]
# The functions that other modules than `opsieve.tui.api` have. `opsieve.triage` and `opsieve.bisect` are
# packages, and `import` is a keyword, so the functions of these commands have longer names.
_MODULES = {
    "triage.store.queries": ["Store"],
    "tui.campaign_api": ["fuzz"],
    "tui.culprit_api": ["attribute", "bisect_commits", "bisect_releases", "bisect_source", "replay"],
    "tui.given_models": ["given_models", "models"],
    "tui.store_api": [
        "add_to_corpus",
        "compare_corpus",
        "export",
        "import_cases",
        "list_bugs",
        "replay_bugs",
        "replay_corpus",
        "triage_logs",
        "triage_store",
        "watch",
    ],
}
_ELSEWHERE = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"opsieve.{_ELSEWHERE.get(name, 'tui.api')}")
    return getattr(module, "Queries" if name == "Store" else name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
