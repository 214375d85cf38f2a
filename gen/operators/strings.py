"""Operators on strings. Their leaves are words from a short list (gen/graph/writing.py).

Sources: the ONNX operator pages of StringConcat, StringSplit, StringNormalizer, RegexFullMatch,
TfIdfVectorizer.
"""

from typing import Any

from opsieve.gen.declarations import declaration, properties, symbolic_arith
from opsieve.gen.declarations.instance import Attr, Count, Draft, First, Part, Partner, between, flag, some

_PATTERNS = (".*", "[a-z]+", "\\w+", "the .*", "", "[A-Z]\\w*", "cat|0")


def _pool(draft: Draft) -> list[Any]:
    words = ("a", "b", "cat", "Dog", "x y", "zebra")
    pool = draft.rng.shuffle_items(range(6))
    return [words[number] for number in pool] if draft.x.dtype == "string" else pool


# `ngram_counts` holds the start of each length in the pool: first single words, then pairs of two words.
_NGRAMS: tuple[Part, ...] = (
    Count("pairs", (0, 2)),
    Attr("mode", ("TF", "IDF", "TFIDF")),
    Attr("min_gram_length", (1,)),
    Attr("max_gram_length", lambda draft: 2 if draft["pairs"] else 1),
    Attr("max_skip_count", lambda draft: draft.rng.below(2) if draft["pairs"] else 0),
    Attr("ngram_counts", lambda draft: [0, 6 - 2 * draft["pairs"]] if draft["pairs"] else [0]),
    Attr("ngram_indexes", lambda draft: list(range(6 - draft["pairs"]))),
    some(Attr("pool_strings", _pool), where=lambda draft: draft.x.dtype == "string"),
    some(Attr("pool_int64s", _pool), where=lambda draft: draft.x.dtype != "string"),
    Attr("weights", lambda draft: [float(draft.rng.between(1, 3)) for _ in draft["ngram_indexes"]], 0.5),
)


def text(name: str, infer: Any, **more: Any) -> declaration.Operator:
    """Return an operator on strings."""
    return declaration.Operator(
        name,
        infer=infer,
        family="text",
        dtypes=more.pop("dtypes", ("string",)),
        bounds=more.pop("bounds", lambda ins, attrs: (0.0, 0.0)),
        **more,
    )


OPERATORS = (
    text(
        "StringConcat",
        lambda ins, attrs: [("string", symbolic_arith.broadcast(ins[0].shape, ins[1].shape))],
        parts=(Partner(),),
        requires=lambda ins, attrs: symbolic_arith.broadcasts(ins[0].shape, ins[1].shape),
    ),
    text(
        "StringSplit",
        lambda ins, attrs: [("string", (*ins[0].shape, "?")), ("int64", ins[0].shape)],
        parts=(Attr("delimiter", (" ", "a", "qu"), 0.5), Attr("maxsplit", between(0, 3), 0.5)),
        bounds=lambda ins, attrs: [(0.0, 0.0), (0.0, 40.0)],
        undefined=(properties.split_of_empty,),
        ranks=(1, 4),
    ),
    # Without stop words: how many words they leave is known only after a run.
    text(
        "StringNormalizer",
        lambda ins, attrs: [("string", ins[0].shape)],
        parts=(
            First(
                # The page allows the shapes [C] and [1, C] only.
                fits=lambda draft: draft.x.rank < 2 or draft.x.shape[0] == 1,
                other=lambda draft: (1, draft.x.shape[1]),
            ),
            # The default locale, en_US, is missing on some machines.
            Attr("locale", ("C",)),
            Attr("case_change_action", ("LOWER", "UPPER", "NONE"), 0.7),
            flag("is_case_sensitive", 0.3),
        ),
        unmodelled=declaration.has_attribute("stopwords"),
        undefined=(properties.case_by_locale,),
        ranks=(1, 2),
        sizes_unsaid=True,
    ),
    text(
        "RegexFullMatch",
        lambda ins, attrs: [("bool", ins[0].shape)],
        parts=(Attr("pattern", _PATTERNS),),
        bounds=lambda ins, attrs: (0.0, 1.0),
    ),
    text(
        "TfIdfVectorizer",
        lambda ins, attrs: [("float32", (*ins[0].shape[:-1], max(attrs["ngram_indexes"]) + 1))],
        parts=_NGRAMS,
        bounds=lambda ins, attrs: (0.0, 100.0),
        dtypes=("string", "int32", "int64"),
        ranks=(1, 2),
    ),
)
