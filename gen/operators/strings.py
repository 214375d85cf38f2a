"""Operators on strings. Their leaves are words from a short list (gen/build/writing.py).

Sources: the ONNX operator pages of StringConcat, StringSplit, StringNormalizer, RegexFullMatch, TfIdfVectorizer.
"""

from collections.abc import Mapping
from typing import Any

from opsieve.gen.spec.builder import Builder
from opsieve.gen.spec.declaration import Operator, Sampler
from opsieve.gen.spec.instance import Attr, Instance, Partner, between
from opsieve.gen.spec.symbolic_arith import broadcast, broadcasts
from opsieve.gen.spec.tensor import Attributes, Ins, Tensor, Typed
from opsieve.gen.spec.undefined import case_by_locale, split_of_empty

_PATTERNS = (".*", "[a-z]+", "\\w+", "the .*", "", "[A-Z]\\w*", "cat|0")


def _normalise(builder: Builder, x: Tensor) -> Instance:
    """Without stop words, which would leave a number of words that only a run tells."""
    rng = builder.rng
    attrs: Attributes = {"locale": "C"}  # the default, en_US, is not on every machine
    if rng.random() < builder.style.rates.case_change:
        attrs["case_change_action"] = rng.choice(("LOWER", "UPPER", "NONE"))
    if rng.random() < builder.style.rates.rare_attribute:
        attrs["is_case_sensitive"] = rng.below(2)
    if x.rank == 2 and x.shape[0] != 1:
        x = builder.match("string", (1, x.shape[1]))
    return Instance([x], attrs)


def _vectorize(builder: Builder, x: Tensor) -> Instance:
    rng = builder.rng
    pool = list(rng.shuffled(range(6)))
    pairs = rng.between(0, 1) and 2
    singles = len(pool) - 2 * pairs
    attrs: Attributes = {
        "mode": rng.choice(("TF", "IDF", "TFIDF")),
        "min_gram_length": 1,
        "max_gram_length": 2 if pairs else 1,
        "max_skip_count": rng.between(0, 1) if pairs else 0,
        "ngram_counts": [0, singles] if pairs else [0],
        "ngram_indexes": list(range(singles + pairs)),
    }
    if x.dtype == "string":
        attrs["pool_strings"] = [("a", "b", "cat", "Dog", "x y", "zebra")[number] for number in pool]
    else:
        attrs["pool_int64s"] = pool
    if rng.random() < builder.style.rates.attribute:
        attrs["weights"] = [float(rng.between(1, 3)) for _ in range(singles + pairs)]
    return Instance([x], attrs)


def _vector(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [("float32", (*ins[0].shape[:-1], max(attrs["ngram_indexes"]) + 1))]


def text(name: str, sample: Sampler | None, infer: Any, **more: Any) -> Operator:
    """An operator on strings."""
    return Operator(
        name,
        sample,
        infer=infer,
        family="text",
        dtypes=more.pop("dtypes", ("string",)),
        bounds=more.pop("bounds", _none),
        **more,
    )


def _none(ins: Ins, attrs: Mapping[str, Any]) -> tuple[float, float]:
    return 0.0, 0.0


def _same(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    return [("string", ins[0].shape)]


OPERATORS = (
    text(
        "StringConcat",
        None,
        lambda ins, attrs: [("string", broadcast(ins[0].shape, ins[1].shape))],
        parts=(Partner(),),
        requires=lambda ins, attrs: broadcasts(ins[0].shape, ins[1].shape),
    ),
    text(
        "StringSplit",
        None,
        lambda ins, attrs: [("string", (*ins[0].shape, "?")), ("int64", ins[0].shape)],
        parts=(Attr("delimiter", (" ", "a", "qu"), 0.5), Attr("maxsplit", between(0, 3), 0.5)),
        bounds=lambda ins, attrs: [(0.0, 0.0), (0.0, 40.0)],
        undefined=(split_of_empty,),
        ranks=(1, 4),
    ),
    text("StringNormalizer", _normalise, _same, undefined=(case_by_locale,), ranks=(1, 2), sizes_unsaid=True),
    text(
        "RegexFullMatch",
        None,
        lambda ins, attrs: [("bool", ins[0].shape)],
        parts=(Attr("pattern", _PATTERNS),),
        bounds=lambda ins, attrs: (0.0, 1.0),
    ),
    text(
        "TfIdfVectorizer",
        _vectorize,
        _vector,
        bounds=lambda ins, attrs: (0.0, 100.0),
        dtypes=("string", "int32", "int64"),
        ranks=(1, 2),
    ),
)
