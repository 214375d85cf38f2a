"""Operators that move elements and keep them all, or repeat them: reshaping, joining, splitting, flipping,
repeating.
"""

import math

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.declaration import (
    ALL,
    FLOATS,
    LIMIT,
    NUMBERS,
    RATES,
    Declared,
    Draw,
    Recogniser,
    Solution,
    Want,
    attributes,
    static_sizes,
    tensor,
    whole,
)
from opsieve.gen.irs.relax.operators.reductions import unfold_shape
from opsieve.gen.irs.tvm.nodes import ObjectNode, Value

_ANY = Recogniser(ALL, static=False)
_RANKED = Recogniser(ALL, (1, 5))


def _regroup_shape(draw: Draw, kind: T.RelaxTensorType) -> tuple[T.Size, ...]:
    """Another shape of as many elements: symbols stay, ones come and go, numbers are factored anew."""
    shape = kind.shape or ()
    symbolic = [size for size in shape if not isinstance(size, int)]
    plain = math.prod(size for size in shape if isinstance(size, int))
    new: list[T.Size] = list(draw.factors(plain, draw.rng.randint(0 if plain == 1 else 1, 3)))
    for size in symbolic:
        new.insert(draw.rng.randint(0, len(new)), size)
    return tuple(new)


def _batch_flatten(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    first, rest = static_sizes(kind)
    return Solution((Want(tensor(kind.dtype, (first, *draw.factors(rest, draw.rng.randint(1, 3))))),))


def _expand(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape = kind.shape or ()
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    axes = sorted(draw.rng.sample(ones, draw.rng.randint(1, len(ones))))
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    named = tuple(axis - len(shape) if draw.chance(RATES.negative_of_many) else axis for axis in axes)
    return Solution((Want(tensor(kind.dtype, kept)),), attributes("ExpandDimsAttrs", axis=named))


def _squeeze(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape = list(kind.shape or ())
    axes: list[int] = []
    for _ in range(draw.rng.randint(1, 2) if len(shape) < 4 else 1):
        axis = draw.rng.randint(0, len(shape))
        shape.insert(axis, 1)
        # An inserted axis moves those at and after its place up by one.
        axes = sorted([axis, *(other + (other >= axis) for other in axes)])
    return Solution((Want(tensor(kind.dtype, shape)),), attributes("SqueezeAttrs", axis=tuple(axes)))


def _permute(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape = kind.shape or ()
    axes = draw.rng.sample(range(len(shape)), len(shape))
    source: list[T.Size] = [0] * len(shape)
    for place, axis in enumerate(axes):
        source[axis] = shape[place]
    named: Value = (
        None if axes == list(range(len(shape)))[::-1] and draw.chance(RATES.left_out) else tuple(axes)
    )
    return Solution((Want(tensor(kind.dtype, source)),), attributes("PermuteDimsAttrs", axes=named))


def _large(shape: tuple[int, ...]) -> list[int]:
    return [axis for axis, size in enumerate(shape) if size > 1]


def _concat(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    axis = draw.rng.choice(_large(static_sizes(kind)))
    size = static_sizes(kind)[axis]
    cuts = sorted(draw.rng.sample(range(1, size), min(size - 1, draw.rng.randint(1, 3))))
    parts = []
    for start, end in zip([0, *cuts], [*cuts, size], strict=True):
        shape = list(kind.shape or ())
        shape[axis] = end - start
        parts.append(Want(tensor(kind.dtype, shape)))
    return Solution((tuple(parts),), attributes("ConcatAttrs", axis=axis))


def _stack(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    axis = draw.rng.choice([a for a, size in enumerate(static_sizes(kind)) if 1 <= size <= 4])
    shape = list(kind.shape or ())
    count = static_sizes(kind)[axis]
    del shape[axis]
    return Solution(((Want(tensor(kind.dtype, shape)),) * count,), attributes("StackAttrs", axis=axis))


def _split(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    size, shape = static_sizes(kind)[axis], list(kind.shape or ())
    room = max(1, LIMIT // max(1, draw.count(shape)))
    pieces = draw.rng.randint(2, 3) if room > 2 else 2
    index = draw.rng.randrange(pieces)
    sections: Value = pieces
    sizes = [size] * pieces
    if draw.chance(RATES.uneven_pieces):
        sizes = [size if place == index else draw.size(8) for place in range(pieces)]
        # Uneven pieces are given by the places of the cuts.
        sections = tuple(sum(sizes[: place + 1]) for place in range(pieces - 1))
    fields = []
    for part in sizes:
        shape[axis] = part
        fields.append(tensor(kind.dtype, shape))
    shape[axis] = sum(sizes)
    attrs = attributes("SplitAttrs", indices_or_sections=sections, axis=axis)
    return Solution((Want(tensor(kind.dtype, shape)),), attrs, T.TupleType(tuple(fields)), index)


def _tile(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    repeats = [draw.rng.choice([n for n in (1, 2, 3, size) if size % n == 0]) for size in static_sizes(kind)]
    shape = [size // times for size, times in zip(static_sizes(kind), repeats, strict=True)]
    return Solution((Want(tensor(kind.dtype, shape)),), attributes("TileAttrs", repeats=tuple(repeats)))


def _repeat(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    shape = list(static_sizes(kind))
    times = draw.rng.choice([n for n in (1, 2, 3, shape[axis]) if shape[axis] % n == 0])
    shape[axis] //= times
    return Solution((Want(tensor(kind.dtype, shape)),), attributes("RepeatAttrs", repeats=times, axis=axis))


def _shrunk(draw: Draw, kind: T.RelaxTensorType) -> tuple[T.Size, ...]:
    shape: list[T.Size] = [1 if draw.chance(RATES.one) else size for size in kind.shape or ()]
    return (
        tuple(shape[draw.rng.randint(0, len(shape)) :])
        if draw.chance(RATES.fewer_dimensions)
        else tuple(shape)
    )


def _collapse_to(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape, _, kept = unfold_shape(draw, T.RelaxTensorType(kind.dtype, static_sizes(kind)), 1)
    source = shape if kept else [draw.size(4), *static_sizes(kind)]
    return Solution((Want(tensor(kind.dtype, source)), R.ShapeValue(kind.shape or ())))


def _collapse_like(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    first, _ = _collapse_to(draw, kind).args
    return Solution((first, Want(kind)))


def _reverse(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    along, batch = draw.rng.sample(range(kind.rank), 2)
    sizes = static_sizes(kind)
    lengths = draw.constant(draw.rng.choice(("int32", "int64")), (sizes[batch],), 1, sizes[along])
    return Solution(
        (Want(kind), lengths), attributes("ReverseSequenceAttrs", seq_axis=along, batch_axis=batch)
    )


def _meshgrid(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    index = draw.rng.randrange(kind.rank)
    parts = tuple(Want(tensor(kind.dtype, (size,))) for size in static_sizes(kind))
    whole = T.TupleType((kind,) * kind.rank)
    return Solution((parts,), attributes("MeshgridAttrs", indexing="ij"), whole, index)


def _pad(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape, widths = list(static_sizes(kind)), []
    mode = draw.rng.choice(("constant", "constant", "reflect", "replicate", "circular"))
    for axis, size in enumerate(shape):
        before = draw.rng.randint(0, min(2, size - 1))
        after = draw.rng.randint(0, min(2, size - 1 - before))
        # These modes copy from the input, which has to be longer than the pad.
        if mode != "constant" and size - before - after <= max(before, after):
            before = after = 0
        shape[axis] = size - before - after
        widths += [before, after]
    attrs = attributes(
        "PadAttrs", pad_width=tuple(widths), pad_value=draw.rng.choice((0.0, 1.5)), pad_mode=mode
    )
    return Solution((Want(tensor(kind.dtype, shape)),), attrs)


def _pixel_shuffle(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    *lead, channels, height, width = static_sizes(kind)
    factor = next((f for f in (2, 3) if height % f == 0 and width % f == 0), 1)
    source = (*lead, channels * factor * factor, height // factor, width // factor)
    return Solution(
        (Want(tensor(kind.dtype, source)),), attributes("PixelShuffleAttrs", upscale_factor=factor)
    )


def _layout(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    """Return a permutation of the axes, written as a map of indices."""
    order = draw.rng.sample(range(kind.rank), kind.rank)
    names = [
        ObjectNode("ir.Var", {"ty": ObjectNode("ir.PrimType", {"dtype": "int64"}), "name": f"i{n}"})
        for n in order
    ]
    by_axis: list[ObjectNode] = [names[0]] * kind.rank
    source = [0] * kind.rank
    for place, axis in enumerate(order):
        by_axis[axis], source[axis] = names[place], static_sizes(kind)[place]
    mapping = ObjectNode("tirx.IndexMap", {"initial_indices": tuple(by_axis), "final_indices": tuple(names)})
    attrs = attributes("LayoutTransformAttrs", index_map=mapping, pad_value=None)
    return Solution((Want(tensor(kind.dtype, source)),), attrs)


def _tri(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    return Solution((Want(kind), whole(draw.rng.randint(-2, 2))))


def _one_hot(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    axis = draw.rng.randrange(kind.rank)
    shape = list(static_sizes(kind))
    depth = shape.pop(axis)
    indices = draw.indices(shape, depth, draw.rng.choice(("int64", "int32")))
    # TVM takes the element type of the result from these scalars.
    on, off = (R.Scalar(value if kind.dtype in FLOATS else int(value), kind.dtype) for value in (1.0, 0.0))
    attrs = attributes("OneHotAttrs", depth=depth, axis=axis if axis < kind.rank - 1 else -1)
    return Solution((indices, on, off), attrs)


_TWO_WAYS = Recogniser(ALL, (2, 4), condition=lambda shape: min(shape) >= 1)
_ONES = Recogniser(ALL, (1, 5), static=False, condition=lambda shape: 1 in shape)
_SPLITTABLE = Recogniser(ALL, (1, 5), condition=lambda shape: bool(_large(shape)))
_STACKED = Recogniser(ALL, (1, 5), condition=lambda shape: any(1 <= size <= 4 for size in shape))

OPERATORS: tuple[Declared, ...] = (
    Declared(
        "relax.reshape",
        _ANY,
        lambda draw, kind: Solution(
            (Want(tensor(kind.dtype, _regroup_shape(draw, kind))), R.ShapeValue(kind.shape or ()))
        ),
        "Reshape",
    ),
    Declared(
        "relax.flatten",
        Recogniser(ALL, (1, 1)),
        lambda draw, kind: Solution((Want(tensor(kind.dtype, draw.factors(static_sizes(kind)[0]))),)),
        "Flatten",
    ),
    Declared("relax.nn.batch_flatten", Recogniser(ALL, (2, 2)), _batch_flatten),
    Declared("relax.expand_dims", _ONES, _expand, "Unsqueeze"),
    Declared("relax.squeeze", Recogniser(ALL, (0, 4), static=False), _squeeze, "Squeeze"),
    Declared("relax.permute_dims", Recogniser(ALL, (1, 5), static=False), _permute, "Transpose"),
    Declared("relax.concat", _SPLITTABLE, _concat, "Concat"),
    Declared("relax.stack", _STACKED, _stack),
    Declared("relax.split", Recogniser(ALL, (1, 4)), _split, "Split"),
    Declared("relax.tile", _RANKED, _tile, "Tile"),
    Declared("relax.repeat", _RANKED, _repeat),
    Declared(
        "relax.broadcast_to",
        _ANY,
        lambda draw, kind: Solution(
            (Want(tensor(kind.dtype, _shrunk(draw, kind))), R.ShapeValue(kind.shape or ()))
        ),
        "Expand",
    ),
    Declared("relax.collapse_sum_to", Recogniser(FLOATS, (1, 4)), _collapse_to),
    Declared("relax.collapse_sum_like", Recogniser(FLOATS, (1, 4)), _collapse_like),
    Declared(
        "relax.flip",
        _RANKED,
        lambda draw, kind: Solution(
            (Want(kind),), attributes("FlipAttrs", axis=draw.rng.randrange(kind.rank))
        ),
    ),
    Declared("relax.reverse_sequence", _TWO_WAYS, _reverse, "ReverseSequence"),
    Declared("relax.meshgrid", Recogniser(NUMBERS, (2, 3)), _meshgrid),
    Declared("relax.nn.pad", Recogniser(FLOATS, (1, 4)), _pad, "Pad"),
    Declared("relax.nn.pixel_shuffle", Recogniser(FLOATS, (3, 4)), _pixel_shuffle, "DepthToSpace"),
    Declared("relax.layout_transform", Recogniser(FLOATS, (2, 4)), _layout),
    Declared("relax.tril", Recogniser(NUMBERS, (2, 4)), _tri, "Trilu"),
    Declared("relax.triu", Recogniser(NUMBERS, (2, 4)), _tri, "Trilu"),
    Declared(
        "relax.shape_to_tensor",
        Recogniser(("int64",), (1, 1)),
        lambda draw, kind: Solution((R.ShapeValue(tuple(draw.shape(static_sizes(kind)[0]))),)),
        "Shape",
    ),
    Declared(
        "relax.size",
        Recogniser(("int64",), (0, 0)),
        lambda draw, kind: Solution((Want(draw.tensor_type()),)),
        "Size",
    ),
    Declared(
        "relax.one_hot", Recogniser(("float32", "int64", "int32", "float64"), (1, 4)), _one_hot, "OneHot"
    ),
)
