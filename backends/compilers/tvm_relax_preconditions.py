"""Preconditions of Relax passes, from their documentation or that of the pass that makes their input. A
refusal because of one is not a bug: the backend calls it `unsupported`; everything else that a pass raises is
an error.

Read from the docstrings of `tvm.relax.transform` of apache-tvm 0.27. Passes that need data of their own are
not run at all (`LEFT_OUT` in gen/irs/relax/passes.py says why).
"""

from __future__ import annotations

import re
from collections.abc import Mapping


class PassPrecondition(Exception):
    """A module that a pass was not made for, by its own documentation."""


# pass -> (what the message says, what the pass wants)
PRECONDITIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "MergeCompositeFunctions": (
        (
            (
                r"Do not have a default for relax\.expr\.|Invalid type: relax\.expr\.|Cannot treat type"
                r" `tirx\.PrimFunc`|Variable \S+ could not be found in any group"
            ),
            (
                'it groups "composite functions created by FuseOpsByPattern"; of other modules it knows'
                " calls, tuples and variables alone"
            ),
        ),
    ),
    "ToMixedPrecision": (
        (
            r"\(tensor\) is false: Expected TensorType, but got|\(!expr->ty\.IsMissing\(\)\) is false",
            (
                'it "assumes the input module to be fp32 only", so tensors of float32 are what operators are'
                " given"
            ),
        ),
        (
            r"no block is being built",
            'it "mainly operates within dataflow blocks": ConvertToDataflow may be needed first',
        ),
    ),
    "SplitLayoutRewritePreproc": (
        (
            (
                r"There should be a compute block if there is only one subtree|body of the primfunc should be"
                r" a root block"
            ),
            'it splits what a layout rewrite made, "after meta_schedule tuning"',
        ),
    ),
}


def find_precondition(name: str, message: str) -> str | None:
    """Return the documented precondition that a pass's message reports as violated; `None` if there is no
    such precondition.
    """
    for pattern, reason in PRECONDITIONS.get(name, ()):
        if re.search(pattern, message[:2000]):
            return reason
    return None
