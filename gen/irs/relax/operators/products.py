"""Products and windows: matrix products, convolutions, pools."""

from opsieve.gen.irs.relax import types as T
from opsieve.gen.irs.relax.declaration import (
    RATES,
    Declared,
    Draw,
    Recogniser,
    Solution,
    Solver,
    Want,
    attributes,
    static_sizes,
    tensor,
)
from opsieve.gen.irs.tvm.nodes import Dtype, Value

_FLOATS = ("float32", "float64")
_PRODUCTS = ("float32", "float64", "float16", "int32", "int64")
_SPACES = {1: "W", 2: "HW", 3: "DHW"}


def _matmul(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    shape: T.Shape = kind.shape or ()
    lead, rows, columns = shape[:-2], shape[-2], shape[-1]
    inner = draw.size(8)
    first, second = draw.broadcast(lead) if lead else ((), ())
    out: Value = None
    dtype = kind.dtype
    # Products of bytes overflow a byte, so the result has a type of its own.
    if dtype == "int32" and draw.chance(RATES.narrow_factors):
        dtype, out = draw.rng.choice(("int8", "uint8")), Dtype("int32")
    left, right = Want(tensor(dtype, (*first, rows, inner))), Want(tensor(dtype, (*second, inner, columns)))
    return Solution((left, right), attributes("MatmulAttrs", out_dtype=out))


def _vector(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    inner = draw.size(8)
    shape = kind.shape or ()
    vector = Want(tensor(kind.dtype, (inner,)))
    args = (vector, Want(tensor(kind.dtype, (inner, *shape)))) if draw.chance(RATES.second_vector) else None
    args = args or (Want(tensor(kind.dtype, (*shape, inner))), vector)
    return Solution(args, attributes("MatmulAttrs", out_dtype=None))


def _einsum(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    """Draw an equation whose output has one letter per axis; one more letter is summed over."""
    letters = "ijkl"[: kind.rank]
    shape = dict(zip(letters, static_sizes(kind), strict=True)) | {"z": draw.size(6)}
    first = [letter for letter in letters if draw.chance(RATES.first_has)]
    second = [letter for letter in letters if letter not in first or draw.chance(RATES.second_has)]
    for terms in (first, second):
        terms.insert(draw.rng.randint(0, len(terms)), "z")
    wants = tuple(Want(tensor(kind.dtype, [shape[letter] for letter in terms])) for terms in (first, second))
    subscripts = f"{''.join(first)},{''.join(second)}->{letters}"
    return Solution((wants,), attributes("EinsumAttrs", subscripts=subscripts))


def _conv(dims: int) -> Solver:
    def solve(draw: Draw, kind: T.RelaxTensorType) -> Solution:
        batch, channels, *space = static_sizes(kind)
        # Groups part the channels of both sides evenly.
        groups = draw.rng.choice([n for n in (1, 1, 1, channels) if channels % n == 0])
        inner = groups * draw.rng.choice((1, 2) if groups > 1 else (1, 2, 3))
        sides = []
        for size in space:
            taps = draw.rng.choice((1, 2, 3))
            step, gap = draw.rng.choice((1, 1, 2)), draw.rng.choice((1, 1, 2))
            # The padded input that gives exactly this output: the solver goes from results to operands.
            needed = (size - 1) * step + gap * (taps - 1) + 1
            left = draw.rng.randint(0, min(1, needed - 1))
            right = draw.rng.randint(0, min(1, needed - 1 - left))
            sides.append((step, gap, left, right, taps, needed - left - right))
        strides, dilation, before, after, kernel, source = zip(*sides, strict=True)
        letters = _SPACES[dims]
        attrs = attributes(
            f"Conv{dims}DAttrs",
            strides=strides,
            padding=(*before, *after),
            dilation=dilation,
            groups=groups,
            data_layout=f"NC{letters}",
            kernel_layout=f"OI{letters}",
            out_layout=f"NC{letters}",
            out_dtype=None,
        )
        data = Want(tensor(kind.dtype, (batch, inner, *source)))
        return Solution((data, Want(tensor(kind.dtype, (channels, inner // groups, *kernel)))), attrs)

    return solve


def _solve_transposed_conv(dims: int) -> Solver:
    def solve(draw: Draw, kind: T.RelaxTensorType) -> Solution:
        batch, channels, *space = static_sizes(kind)
        inner = draw.rng.choice((1, 2, 3))
        sides = []
        for size in space:
            step = draw.rng.choice([n for n in (1, 1, 2) if n <= size])
            count = draw.rng.randint(1, (size - 1) // step + 1)
            # The part of the size that taps, paddings and output padding make up together.
            rest = size - (count - 1) * step
            left, right = draw.rng.randint(0, 1), draw.rng.randint(0, 1)
            # The output padding has to be smaller than the stride.
            added = draw.rng.randint(0, min(step - 1, rest - 1))
            taps = rest + left + right - added
            sides.append((step, left, right, added, taps, count))
        strides, before, after, extra, kernel, source = zip(*sides, strict=True)
        letters = _SPACES[dims]
        attrs = attributes(
            f"Conv{dims}DTransposeAttrs",
            strides=strides,
            padding=(*before, *after),
            output_padding=extra,
            dilation=(1,) * dims,
            groups=1,
            data_layout=f"NC{letters}",
            kernel_layout=f"IO{letters}",
            out_layout=f"NC{letters}",
            out_dtype=None,
        )
        data = Want(tensor(kind.dtype, (batch, inner, *source)))
        return Solution((data, Want(tensor(kind.dtype, (inner, channels, *kernel)))), attrs)

    return solve


def _pool(dims: int) -> Solver:
    def solve(draw: Draw, kind: T.RelaxTensorType) -> Solution:
        batch, channels, *space = static_sizes(kind)
        sides = []
        for size in space:
            taps, step = draw.rng.choice((1, 2, 3)), draw.rng.choice((1, 2))
            gap = draw.rng.choice((1, 1, 1, 2))
            needed = (size - 1) * step + gap * (taps - 1) + 1
            # A pad is narrower than the window, so that every window holds an element.
            left = draw.rng.randint(0, min(1, taps - 1, needed - 1))
            right = draw.rng.randint(0, min(1, taps - 1, needed - 1 - left))
            sides.append((taps, step, gap, left, right, needed - left - right))
        window, strides, dilation, before, after, source = zip(*sides, strict=True)
        letters = _SPACES[dims]
        attrs = attributes(
            f"Pool{dims}DAttrs",
            pool_size=window,
            strides=strides,
            dilation=dilation,
            padding=(*before, *after),
            ceil_mode=draw.chance(RATES.ceil),
            count_include_pad=draw.chance(RATES.pads_count),
            layout=f"NC{letters}",
            out_layout=f"NC{letters}",
        )
        return Solution((Want(tensor(kind.dtype, (batch, channels, *source))),), attrs)

    return solve


def _adaptive(dims: int) -> Solver:
    def solve(draw: Draw, kind: T.RelaxTensorType) -> Solution:
        batch, channels, *space = static_sizes(kind)
        source: list[T.Size] = [size + draw.rng.choice((0, 1, 2, size)) for size in space]
        layout = f"NC{_SPACES[dims]}"
        attrs = attributes(
            f"AdaptivePool{dims}DAttrs", output_size=tuple(space), layout=layout, out_layout=layout
        )
        return Solution((Want(tensor(kind.dtype, (batch, channels, *source))),), attrs)

    return solve


def _spatial(dims: int, dtypes: tuple[str, ...] = _FLOATS) -> Recogniser:
    return Recogniser(dtypes, (dims + 2, dims + 2), condition=lambda shape: min(shape) >= 1)


_HALF = (*_FLOATS, "float16")

OPERATORS: tuple[Declared, ...] = (
    Declared(
        "relax.matmul",
        Recogniser(_PRODUCTS, (1, 4), static=False),
        lambda draw, kind: (_vector if kind.rank < 2 else _matmul)(draw, kind),
        "MatMul",
    ),
    Declared("relax.einsum", Recogniser(_FLOATS, (1, 3)), _einsum, "Einsum"),
    Declared(
        "relax.outer",
        Recogniser(_PRODUCTS, (2, 2)),
        lambda draw, kind: Solution(tuple(Want(tensor(kind.dtype, (size,))) for size in kind.shape or ())),
    ),
    *(Declared(f"relax.nn.conv{n}d", _spatial(n, _HALF), _conv(n), "Conv") for n in (1, 2, 3)),
    *(
        Declared(f"relax.nn.conv{n}d_transpose", _spatial(n), _solve_transposed_conv(n), "ConvTranspose")
        for n in (1, 2, 3)
    ),
    *(
        Declared(f"relax.nn.max_pool{n}d", _spatial(n, (*_HALF, "int32")), _pool(n), "MaxPool")
        for n in (1, 2, 3)
    ),
    *(Declared(f"relax.nn.avg_pool{n}d", _spatial(n), _pool(n), "AveragePool") for n in (1, 2, 3)),
    *(Declared(f"relax.nn.adaptive_avg_pool{n}d", _spatial(n), _adaptive(n)) for n in (1, 2, 3)),
)
