"""Operators on strings that onnx 1.23's evaluator gets wrong, done right."""

import re
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_tfidf_vectorizer import TfIdfVectorizer as _TfIdfVectorizer


class StringNormalizer(OpRun):
    """StringNormalizer, https://onnx.ai/onnx/operators/onnx__StringNormalizer.html: stop words are dropped,
    the case is changed.

    onnx 1.23 takes accents away besides, splits an element at its blanks to look for stop words, and drops
    empty elements.
    """

    # The evaluator calls it by inputs and attribute names
    def _run(  # type: ignore[no-untyped-def]
        self, x, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=None
    ):
        words = [str(word) for word in x.ravel().tolist()]
        stops = list(stopwords or ())
        if is_case_sensitive:
            words = [word for word in words if word not in stops]
        else:
            lower = {stop.lower() for stop in stops}
            words = [word for word in words if word.lower() not in lower]
        change = {"LOWER": str.lower, "UPPER": str.upper}.get(case_change_action, str)
        # The page: if all are dropped, the output is one empty string.
        words = [change(word) for word in words] or [""]
        return (np.array(words, dtype=object).reshape((1, -1) if x.ndim == 2 else (-1,)),)


class RegexFullMatch(OpRun):
    r"""RegexFullMatch in the syntax of re2, https://github.com/google/re2/wiki/Syntax: `\w`, `\d`, `\s` and
    `\b` are ASCII's.

    onnx 1.23 takes Python's, where they are those of all scripts.
    """

    def _run(self, x, pattern=""):  # type: ignore[no-untyped-def]  # as above
        found = re.compile(pattern, re.ASCII)
        matches = [found.fullmatch(str(text)) is not None for text in x.ravel().tolist()]
        return (np.array(matches, bool).reshape(x.shape),)


class StringSplit(OpRun):
    """StringSplit, https://onnx.ai/onnx/operators/onnx__StringSplit.html, of any strings.

    onnx 1.23 gives an empty string of many substrings the length of the longest, as here, but fails on
    tensors without dimensions. The page leaves open how many substrings an empty string has where there is a
    delimiter (rule `split-of-empty-string`).
    """

    def _run(self, x, delimiter=None, maxsplit=None):  # type: ignore[no-untyped-def]  # as above
        parts = [
            str(text).split(delimiter or None, -1 if maxsplit is None else maxsplit) for text in x.ravel()
        ]
        longest = max(map(len, parts), default=0)
        made: Any = np.empty((len(parts), longest), dtype=object)
        for row, part in enumerate(parts):
            made[row] = part + [""] * (longest - len(part))
        counts = np.array([len(part) for part in parts], np.int64)
        return made.reshape(*x.shape, longest), counts.reshape(x.shape)


class TfIdfVectorizer(_TfIdfVectorizer):
    """TfIdfVectorizer without weights, which are 1 then: an error in onnx 1.23 where they are asked for."""

    def __init__(self, node: Any, parameters: Any) -> None:
        # onnx has no types there
        super().__init__(node, parameters)  # type: ignore[no-untyped-call]
        self.weights_ = self.weights_ or [1.0] * len(self.ngram_indexes_)
