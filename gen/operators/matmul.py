"""Sums of products over an axis: MatMul, Gemm, Einsum, Det.

Sources: the ONNX operator pages of MatMul, Gemm, Einsum and Det.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opsieve.gen.declarations.builder import FREE, Sizes
from opsieve.gen.declarations.declaration import Operator, RankEnds
from opsieve.gen.declarations.instance import Attr, Draft, First, Input, some
from opsieve.gen.declarations.properties import (
    Rounding,
    gemm_size,
    inner_size,
    long_sum,
    overflow,
)
from opsieve.gen.declarations.symbolic_arith import Truth, broadcast, broadcasts, either
from opsieve.gen.declarations.tensor import FLOATS, Bounds, Domain, Ins, Tensor, Typed

# The largest determinant whose bounds are computed; a hostile one has 2**40 factors.
_MOST_FACTORS, _MOST_FACTOR = 16, 1e9


def second_factor(draft: Draft) -> Sizes:
    """Draw the shape of the right operand of a matrix product, which may be batched."""
    rng, rates, shape = draft.rng, draft.builder.style.rates, draft.x.shape
    if len(shape) == 1:
        return rng.choice(((shape[0],), (shape[0], FREE)))
    if rng.random() < rates.vector_product:
        return (shape[-1],)
    batch = shape[:-2][rng.below(len(shape) - 1) :] if rng.random() < rates.batched_product else ()
    # A batch of 1 is stretched over that of the first operand.
    return (*(1 if rng.random() < rates.stretched_batch else side for side in batch), shape[-1], FREE)


def matrix_shape(a: Sizes, b: Sizes) -> Sizes:
    """Return the shape of the product of two stacks of matrices, by the rules of numpy.matmul."""
    if len(a) == 1 and len(b) == 1:
        return ()
    if len(a) == 1:
        return (*b[:-2], b[-1])
    if len(b) == 1:
        return a[:-1]
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def inner(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """Require equal inner sizes, and stacks that broadcast."""
    a, b = ins[0].shape, ins[1].shape
    found = [a[-1] == (b[-2] if len(b) > 1 else b[0])]
    return [*found, *broadcasts(a[:-2], b[:-2])] if len(a) > 1 and len(b) > 1 else found


def _dot_bounds(a: Tensor, b: Tensor, terms: int) -> Bounds:
    # Not the product of the ends: the sign of each element is unknown.
    size = terms * a.size * b.size
    return (-size if a.low < 0 or b.low < 0 else 0.0), size


def _shape_by_flag(name: str, plain: str, turned: str) -> Callable[[Draft], str]:
    """Make a rule that picks one of two shapes by a transposition attribute."""
    return lambda draft: turned if name in draft.attrs else plain


# C in every shape that broadcasts to the product; fusions of Gemm differ by it.
GEMM = (
    Attr("transA", (1,), 0.3),
    Attr("transB", (1,), 0.4),
    First(_shape_by_flag("transA", "rows inner", "inner rows")),
    Input(_shape_by_flag("transB", "inner columns", "columns inner")),
    some(
        Attr("alpha", (0.5, 2.0, -1.0), 0.3),
        Attr("beta", (0.5, 2.0, -1.0), 0.3),
        where=lambda draft: draft.x.dtype in FLOATS,
    ),
    Input(
        lambda draft: draft.rng.choice(("", "columns", "columns", "1 columns", "rows columns", "rows 1")),
        share=0.75,
    ),
)


def gemm_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    """Infer the rows of the first matrix and the columns of the second."""
    rows = ins[0].shape[1 if attrs.get("transA") else 0]
    return [(ins[0].dtype, (rows, ins[1].shape[0 if attrs.get("transB") else 1]))]


def gemm_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    """Require two matrices, and a third input that broadcasts to their product (one way only)."""
    if any(len(tensor.shape) != 2 for tensor in ins[:2]):
        return [False]
    found = [ins[0].shape[0 if attrs.get("transA") else 1] == ins[1].shape[1 if attrs.get("transB") else 0]]
    if len(ins) > 2:
        wanted = gemm_type(ins, attrs)[0][1]
        # The page: C is unidirectionally broadcastable to the product.
        found.append(len(ins[2].shape) <= 2)
        found += [either(p == q, p == 1) for p, q in zip(ins[2].shape[::-1], wanted[::-1], strict=False)]
    return found


def gemm_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    """Bound the result: as many products as the inner size, and a bias."""
    inner = ins[0].shape[0 if attrs.get("transA") else 1]
    size = abs(attrs.get("alpha", 1.0)) * inner * ins[0].size * ins[1].size
    if len(ins) > 2:
        size += abs(attrs.get("beta", 1.0)) * ins[2].size
    return _bound_by_sign(ins, size)


# By the rank of the first operand; sizes of letters that it lacks are free.
_EQUATIONS = {
    1: ("i,i->", "i,i->i", "i,j->ij", "i->", "i,ij->j"),
    2: ("ij,jk->ik", "ij,kj->ik", "ij->ji", "ij->i", "ij,ij->", "ij,jk", "ij,j->i", "ij,ik->jk", "ij,ij->ij"),
    3: ("bij,bjk->bik", "bij,jk->bik", "ijk->kji", "ijk->ik", "bij,bkj->bik", "bij,bij->b"),
    4: (
        "bhid,bhjd->bhij",
        "bhij,bhjd->bhid",
        "bhwc,cd->bhwd",
        "bhij->bjih",
        "bhij,hij->b",
        "...ij,jk->...ik",
    ),
}


def _operands(draft: Draft) -> None:
    terms = draft["equation"].partition("->")[0].split(",")
    sides = _letters(terms[0], draft.x.shape)
    for term in terms[1:]:
        found = draft.builder.match(draft.x.dtype, tuple(sides.get(letter, FREE) for letter in term))
        draft.inputs.append(found)
        sides |= _letters(term, found.shape)


def _letters(term: str, shape: Sizes) -> dict[str, Any]:
    letters = term.replace("...", "")
    return dict(zip(letters, shape[len(shape) - len(letters) :], strict=True))


def _cover_ellipsis(term: str, tensor: Tensor) -> Sizes:
    """Return the axes for which an ellipsis stands: those that the letters leave."""
    return tensor.shape[: len(tensor.shape) - len(term.replace("...", ""))]


def _einsum_type(ins: Ins, attrs: Mapping[str, Any]) -> list[Typed]:
    left, arrow, right = attrs["equation"].partition("->")
    sides = dict[str, Any]()
    lead: Sizes = ()
    for term, tensor in zip(left.split(","), ins, strict=True):
        sides |= _letters(term, tensor.shape)
        lead = broadcast(lead, _cover_ellipsis(term, tensor))
    # Without an arrow the output has the letters that occur once, in alphabetical order, as in numpy.
    if not arrow:
        right = "".join(sorted(letter for letter in sides if left.count(letter) == 1))
    elif "..." not in right:
        lead = ()
    return [(ins[0].dtype, (*lead, *(sides[letter] for letter in right.replace("...", ""))))]


def _einsum_fits(ins: Ins, attrs: Mapping[str, Any]) -> Sequence[Truth]:
    sides, found = dict[str, Any](), list[Truth]()
    lead: Sizes = ()
    for term, tensor in zip(attrs["equation"].partition("->")[0].split(","), ins, strict=True):
        letters = len(term.replace("...", ""))
        if not (letters <= len(tensor.shape) if "..." in term else letters == len(tensor.shape)):
            return [False]
        found += broadcasts(lead, _cover_ellipsis(term, tensor))
        lead = broadcast(lead, _cover_ellipsis(term, tensor))
        for letter, side in _letters(term, tensor.shape).items():
            if letter in sides:
                found.append(sides[letter] == side)
            sides.setdefault(letter, side)
    return found


def _einsum_terms(ins: Ins, attrs: Mapping[str, Any]) -> int:
    left, arrow, right = attrs["equation"].partition("->")
    sides = dict[str, Any]()
    for term, tensor in zip(left.split(","), ins, strict=True):
        sides |= _letters(term, tensor.shape)
    kept = right if arrow else "".join(letter for letter in sides if left.count(letter) == 1)
    return math.prod(side for letter, side in sides.items() if letter not in kept)


def _bound_by_sign(ins: Ins, size: float) -> Bounds:
    return (0.0 if ins[0].dtype.startswith("u") else -size), size


def _small_square(draft: Draft) -> Sizes:
    side = draft.rng.between(1, 4)
    return (*draft.x.shape[:-2], side, side)


def _det_bounds(ins: Ins, attrs: Mapping[str, Any]) -> Bounds:
    side, size = ins[0].shape[-1], ins[0].size
    if side > _MOST_FACTORS:
        return -math.inf, math.inf
    # Leibniz: a determinant is a sum of side! products of `side` elements.
    most = math.factorial(side) * size**side if size <= _MOST_FACTOR else math.inf
    return -most, most


def _work(inner: Any) -> Any:
    return lambda ins, attrs, outs: math.prod(outs[0][1]) * inner(ins, attrs)


def _diagonal(ins: Ins, attrs: Mapping[str, Any]) -> bool:
    """Return whether a letter occurs twice in one term, or the equation has blanks: both are not modelled."""
    terms = attrs["equation"].partition("->")[0].replace(".", "").split(",")
    return " " in attrs["equation"] or any(len(set(term)) < len(term) for term in terms)


OPERATORS = (
    Operator(
        "MatMul",
        parts=(Input(second_factor),),
        infer=lambda ins, attrs: [(ins[0].dtype, matrix_shape(ins[0].shape, ins[1].shape))],
        requires=inner,
        bounds=lambda ins, attrs: _dot_bounds(ins[0], ins[1], ins[0].shape[-1]),
        ranks=(1, 5),
        family="product",
        cost=_work(lambda ins, attrs: ins[0].shape[-1]),
        undefined=(
            overflow(np.matmul),
            long_sum(inner_size),
        ),
        symbolic=True,
        rank_ends=RankEnds.LEAST,
        rounding=Rounding.SUMS,
    ),
    Operator(
        "Gemm",
        parts=GEMM,
        infer=gemm_type,
        requires=gemm_fits,
        bounds=gemm_bounds,
        ranks=(2, 2),
        family="product",
        cost=_work(lambda ins, attrs: ins[0].shape[0 if attrs.get("transA") else 1]),
        undefined=(long_sum(gemm_size),),
        symbolic=True,
        rank_ends=RankEnds.BOTH,
        sizes_unsaid=True,
        rounding=Rounding.SUMS,
    ),
    Operator(
        "Einsum",
        parts=(Attr("equation", lambda draft: draft.rng.choice(_EQUATIONS[draft.x.rank])), _operands),
        infer=_einsum_type,
        requires=_einsum_fits,
        bounds=lambda ins, attrs: _bound_by_sign(
            ins, _einsum_terms(ins, attrs) * float(math.prod(tensor.size for tensor in ins))
        ),
        ranks=(1, 4),
        family="product",
        cost=_work(_einsum_terms),
        symbolic=True,
        unmodelled=_diagonal,
        ranks_spelled=True,
    ),
    Operator(
        "Det",
        parts=(
            First(
                fits=lambda draft: draft.holds(
                    draft.x.shape[-1] <= 4, draft.x.shape[-1] == draft.x.shape[-2]
                ),
                other=_small_square,
                # A determinant of 4 x 4 then stays below 6,144, far from overflow in float16 as well.
                domain=Domain(-4, 4),
            ),
        ),
        infer=lambda ins, attrs: [(ins[0].dtype, ins[0].shape[:-2])],
        requires=lambda ins, attrs: [ins[0].shape[-1] == ins[0].shape[-2]],
        bounds=_det_bounds,
        safe=(Domain(-4, 4),),
        ranks=(2, 4),
        family="product",
        symbolic=True,
        rank_ends=RankEnds.LEAST,
    ),
)
