"""One line that tells a person which bug a fingerprint is about."""

from opsieve.gen.model.printable import printable
from opsieve.triage.fingerprint.component import ComponentName
from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.fingerprint.mismatch_components import BROKEN_MODEL

_MAX = 120
_WRONG = {
    "nan": "wrong NaNs",
    "inf": "wrong infinities",
    "value": "wrong values",
    "shape": "wrong shape",
    "dtype": "wrong dtype",
    "type": "wrong type",
    "missing": "missing output",
    "sign-of-zero": "wrong sign of zero",
}


def title_of(found: Fingerprint) -> str:
    """A title of at most 120 characters, `ValueError in Split: no value in Constant`: what failed, where, and
    what it said.
    """
    where = _where(found)
    if what := found.value(ComponentName.MISMATCH):
        of = found.value(ComponentName.OPERATORS)
        text = _WRONG.get(what, what) + (f" of {of}" if of else "")
        if dtype := found.value(ComponentName.DTYPE):
            text += f" ({dtype})"
    elif found.value(ComponentName.EXCEPTION) == BROKEN_MODEL:
        graph = found.component(ComponentName.OPERATORS)
        text = "broken model" + (f" of {graph.value}" if graph and graph.kept else "")
        text += f": {found.value(ComponentName.FOUND) or found.value(ComponentName.MESSAGE)}"
    else:
        kind = found.value(ComponentName.KIND)
        what = found.value(ComponentName.SIGNAL) or found.value(ComponentName.EXCEPTION) or kind
        said = found.value(ComponentName.MESSAGE)
        text = what + (f" in {where}" if where else "")
        text += f": {said}" if said and said != what else ""
        if kind not in ("error", "crash"):
            text = f"{kind}: {text}" if text != kind else kind
    text = printable(text)
    return text if len(text) <= _MAX else text[: _MAX - 1].rstrip() + "…"


def _where(found: Fingerprint) -> str:
    """The operator that was converted, else the innermost function."""
    frames = found.component(ComponentName.FRAMES)
    innermost = frames.items[0] if frames else ""
    operator = found.value(ComponentName.OPERATOR)
    return (
        f"{operator} ({innermost})"
        if operator and innermost
        else operator or innermost or found.value(ComponentName.PLACE)
    )
