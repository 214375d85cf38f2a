"""Operators of com.microsoft on words and their numbers.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: Tokenizer, MurmurHash3,
NGramRepeatBlock, NGramHashMapping, VarlenNGramHashMapping, BifurcationDetector, WordConvEmbedding.
MurmurHash3 is that of https://github.com/aappleby/smhasher (x86, 32 bits), over the bytes of an element.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.backends.reference.contrib.evaluation import Array, Function, not_computed

# MurmurHash3 works on 32-bit words; Python's integers must be cut to them.
_WORD = 0xFFFFFFFF
_START, _END = "\x02", "\x03"


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _WORD


def _murmur(key: bytes, seed: int) -> int:
    mixed, whole = seed & _WORD, len(key) // 4 * 4
    for at in range(0, whole, 4):
        block = int.from_bytes(key[at : at + 4], "little") * 0xCC9E2D51 & _WORD
        mixed = (
            _rotate_left(mixed ^ (_rotate_left(block, 15) * 0x1B873593 & _WORD), 13) * 5 + 0xE6546B64
        ) & _WORD
    if key[whole:]:
        rest = int.from_bytes(key[whole:], "little") * 0xCC9E2D51 & _WORD
        mixed ^= _rotate_left(rest, 15) * 0x1B873593 & _WORD
    mixed ^= len(key)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ (mixed >> shift)) * factor & _WORD
    return mixed ^ (mixed >> 16)


def _hashes(x: Array, positive: int = 1, seed: int = 0) -> Array:
    # Of a float32 in the model, maybe: then these are other bytes
    if x.dtype == np.float64:
        raise not_computed("the bytes of a float have no float64 version")
    keys = (
        [str(item).encode() for item in x.ravel()]
        if x.dtype == object
        else [item.tobytes() for item in x.ravel()]
    )
    made = np.array([_murmur(key, seed) for key in keys], np.uint32).reshape(x.shape)
    return made if positive else made.view(np.int32)


def _run_tokenizer(
    x: Array, mark: int = 0, mincharnum: int = 1, pad_value: str = "",
    separators: Sequence[str] | None = None, tokenexp: str | None = None
) -> Array:  # fmt: skip
    """Split strings [..., C] into rows of tokens [..., C, D]; supports the regular expressions that re2 and
    Python read alike.
    """
    rows = [_tokens(str(text), mincharnum, separators, tokenexp) for text in x.ravel()]
    # The page has other shapes for empty input: one dimension stays, of two the last becomes 0.
    if x.size == 0:
        return np.empty(x.shape if x.ndim == 1 else (x.shape[0], 0), object)
    # Before the marks: without any token there are no marks either.
    longest = max(map(len, rows))
    if not longest:
        return np.empty((*x.shape, 0), object)
    # "padding will appear outside the markers"
    marked = [[_START, *row, _END] if mark else row for row in rows]
    width = longest + (2 if mark else 0)
    made = np.empty((len(rows), width), object)
    for at, row in enumerate(marked):
        made[at] = [*row, *[pad_value] * (width - len(row))]
    return made.reshape(*x.shape, width)


def _tokens(text: str, least: int, separators: Sequence[str] | None, expression: str | None) -> list[str]:
    if expression == "." or (separators is not None and list(separators) == [""]):
        found = list(text)
    elif expression:
        found = [match.group() for match in re.finditer(expression, text, re.ASCII) if match.group()]
    else:
        found = [text]
        for separator in separators or ():
            found = [
                part
                for token in found
                for part in re.split(f"(?:{separator})", token, flags=re.ASCII)
                if part
            ]
    return [token for token in found if len(token) >= least]


def _no_repeats(ids: Array, scores: Array, ngram_size: int = 1) -> Array:
    """Give -inf to each token that would end an n-gram which the row holds already."""
    made, size = scores.copy(), ngram_size
    for row, tokens in enumerate(ids.tolist()):
        if len(tokens) >= size:
            last = tokens[len(tokens) - size + 1 :]
            for at in range(len(tokens) - size + 1):
                if tokens[at : at + size - 1] == last:
                    made[row, tokens[at + size - 1]] = -np.inf
    return made


def _ngram_hashes(
    ids: Array, multipliers: Array, sizes: Array, past: Array | None = None, offsets: Array | None = None,
    end: Array | None = None, segments: Array | None = None, past_segments: Array | None = None,
    max_ngram_size: int = 2, n_head_per_ngram: int = 1, pad_id: int = 0, reset_on_eos: int = 0,
) -> Any:  # fmt: skip
    """Hash the n-grams that end at each token, [batch, length, (max_ngram_size - 1) * heads]; return also the
    ids that the next call needs.
    """
    batch, length = ids.shape
    before = max_ngram_size - 1
    missing = pad_id if end is None else int(end.reshape(()))
    history = np.full((batch, before), missing, ids.dtype) if past is None else past
    line = np.concatenate([history, ids], axis=1)
    own = np.zeros_like(ids) if segments is None else segments
    known = np.repeat(own[:, :1], before, axis=1) if past_segments is None else past_segments
    marks = np.concatenate([known, own], axis=1)
    # The first place that a token may look back to
    begun = np.zeros_like(line, dtype=np.int64)
    for at in range(1, line.shape[1]):
        begun[:, at] = begun[:, at - 1]
        if reset_on_eos and end is not None:
            begun[:, at] = np.where(line[:, at - 1] == missing, at, begun[:, at])
        begun[:, at] = np.where(marks[:, at] != marks[:, at - 1], at, begun[:, at])
    made = []
    # The hash is defined by the wrapped product.
    with np.errstate(over="ignore"):
        for order in range(2, max_ngram_size + 1):
            mix = np.zeros_like(ids)
            for shift in range(order):
                places = np.arange(before, before + length) - shift
                seen = np.where(places >= begun[:, before:], line[:, places], np.asarray(missing, ids.dtype))
                mix = mix ^ (seen * multipliers[shift])
            heads = sizes[(order - 2) * n_head_per_ngram : (order - 1) * n_head_per_ngram]
            made.append(mix[..., np.newaxis] % heads)
    hashes = np.concatenate(made, axis=-1)
    return hashes if offsets is None else hashes + offsets, line[:, line.shape[1] - before :]


def _packed_ngram_hashes(
    ids: Array, multipliers: Array, sizes: Array, bounds: Array, past: Array | None = None,
    offsets: Array | None = None, end: Array | None = None, segments: Array | None = None,
    past_segments: Array | None = None, captured: Array | None = None, state_update_capacity: int = 0,
    max_ngram_size: int = 2, pad_id: int = 0, **attributes: Any,
) -> Any:  # fmt: skip
    """Hash requests of several lengths that stand behind each other; return also the state after each of
    their first `captured` tokens.
    """
    before = max_ngram_size - 1
    missing = pad_id if end is None else int(end.reshape(()))
    hashes, present, marks = [], [], []
    states = np.full((len(bounds) - 1, state_update_capacity, before), pad_id, ids.dtype)
    for at, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
        own, rows = ids[np.newaxis, first:last], slice(at, at + 1)
        history = np.full((1, before), missing, ids.dtype) if past is None else past[rows]
        known = None if segments is None else segments[np.newaxis, first:last]
        earlier = None if past_segments is None else past_segments[rows]
        made, kept = _ngram_hashes(
            own, multipliers, sizes, history, offsets, end, known, earlier,
            max_ngram_size=max_ngram_size, pad_id=pad_id, **attributes,
        )  # fmt: skip
        hashes.append(made[0])
        present.append(kept[0])
        line = np.concatenate([history, own], axis=1)[0]
        for count in range(
            min(0 if captured is None else int(captured[at]), state_update_capacity, last - first)
        ):
            states[at, count] = line[count + 1 : count + 1 + before]
        if known is not None and earlier is not None:
            marks.append(np.concatenate([earlier, known], axis=1)[0, -before:])
    return np.concatenate(hashes), np.stack(present), np.stack(marks) if marks else None, states


def _bifurcation(
    source: Array,
    current: Array,
    before: Array,
    predicted: Array | None = None,
    min_ngram_size: int = 1,
    max_ngram_size: int = 3,
) -> Any:
    """Return the tokens with the predicted ones up to the first that differs from the source, and where their
    last n-gram stands in the source alone.
    """
    words, tokens, start = source.tolist(), current.tolist(), int(before.reshape(()))
    if predicted is not None:
        guesses = predicted.tolist()
        same = 0
        while same < min(len(guesses), len(words) - start) and guesses[same] == words[start + same]:
            same += 1
        tokens = tokens + guesses[: same + 1]
    found = -1
    for size in range(min_ngram_size, max_ngram_size + 1):
        if size > len(tokens):
            break
        last = tokens[-size:]
        places = [at for at in range(len(words) - size + 1) if words[at : at + size] == last]
        # A longer n-gram may occur once where a shorter one occurs often.
        if len(places) != 1:
            found = -1
            # No longer n-gram can occur where a shorter one does not.
            if not places:
                break
            continue
        found = places[0] + size
        break
    return np.array(tokens, np.int64), np.array(found, np.int64)


def _word_embeddings(words: Array, w: Array, b: Array, characters: Array, **_: Any) -> Array:
    """Embed words [count, characters] (0 pads) as the largest value of a convolution along their characters,
    after a tanh.
    """
    width, length = w.shape[2], words.shape[1]
    made = np.zeros((len(words), len(w)), characters.dtype)
    for at, word in enumerate(words):
        count = int((word > 0).sum()) if word[0] > 0 else 0
        if not count:
            raise not_computed("the page does not say what the embedding of an empty word is")
        # A word shorter than the window is padded to it.
        seen = characters[word[: max(count, width)]]
        windows = [seen[place : place + width] for place in range(min(max(count, width), length) - width + 1)]
        made[at] = np.tanh(np.einsum("pwc,fwc->pf", np.stack(windows), w[:, 0]) + b).max(axis=0)
    return made


FUNCTIONS: Mapping[str, Function] = {
    "Tokenizer": _run_tokenizer,
    "MurmurHash3": _hashes,
    "NGramRepeatBlock": _no_repeats,
    "NGramHashMapping": _ngram_hashes,
    "VarlenNGramHashMapping": _packed_ngram_hashes,
    "BifurcationDetector": _bifurcation,
    "WordConvEmbedding": _word_embeddings,
}
