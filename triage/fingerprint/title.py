"""One line that tells a person which bug a fingerprint is about."""

from opsieve.triage.fingerprint.fingerprint import Fingerprint

_MAX = 120
_BROKEN = "BrokenModel"
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
    """A title of at most 120 characters, `ValueError in Split: no value in Constant`: what failed, where, and what it said."""
    where = _where(found)
    if what := found.value("mismatch"):
        of = found.value("operators")
        text = _WRONG.get(what, what) + (f" of {of}" if of else "")
        if dtype := found.value("dtype"):
            text += f" ({dtype})"
    elif found.value("exception") == _BROKEN:
        small = next((part.value for part in found.components if part.name == "operators" and part.kept), "")
        text = "broken model" + (f" of {small}" if small else "")
        text += f": {found.value('found') or found.value('message')}"
    else:
        kind = found.value("kind")
        what = found.value("signal") or found.value("exception") or kind
        said = found.value("message")
        text = what + (f" in {where}" if where else "")
        text += f": {said}" if said and said != what else ""
        if kind not in ("error", "crash"):
            text = f"{kind}: {text}" if text != kind else kind
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return text if len(text) <= _MAX else text[: _MAX - 1].rstrip() + "…"


def _where(found: Fingerprint) -> str:
    """The operator that was converted, else the innermost function."""
    innermost = found.value("frames").partition(" < ")[0]
    operator = found.value("operator")
    return f"{operator} ({innermost})" if operator and innermost else operator or innermost or found.value("place")
