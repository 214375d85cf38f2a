"""Operators that make tensors out of shapes and scalars, and those that resample images."""

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.declaration import (
    ALL,
    FLOATS,
    NUMBERS,
    RATES,
    Declared,
    Draw,
    Recogniser,
    Solution,
    Want,
    attributes,
    numbers,
    real,
    static_sizes,
    tensor,
    whole,
)
from opsieve.gen.irs.tvm.nodes import Dtype

_WIDE = ("float32", "float64")


def _full(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    attrs = attributes("InitAttrs", dtype=Dtype(kind.dtype))
    return Solution((R.ShapeValue(kind.shape or ()), draw.constant(kind.dtype, ())), attrs)


def _solve_filled(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    return Solution((R.ShapeValue(kind.shape or ()),), attributes("InitAttrs", dtype=Dtype(kind.dtype)))


def _like(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    return Solution((Want(kind),), attributes("InitAttrs", dtype=None))


def _arange(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    size = static_sizes(kind)[0]
    start, step = draw.rng.randint(-3, 3), draw.rng.choice((1, 2, 3))
    make = real if kind.dtype in FLOATS else whole
    # An end that is a whole number of steps away leaves no doubt about the size, also in floats.
    bounds = tuple(make(value) for value in (start, start + step * size, step))
    return Solution(bounds, attributes("InitAttrs", dtype=Dtype(kind.dtype)))


def _eye(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    rows, columns = map(whole, static_sizes(kind))
    return Solution(
        (rows, columns, whole(draw.rng.randint(-1, 1))), attributes("InitAttrs", dtype=Dtype(kind.dtype))
    )


def _hamming(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    scalars = (
        whole(static_sizes(kind)[0]),
        R.Scalar(draw.chance(RATES.flag), "bool"),
        # The usual alpha and beta of the window.
        real(0.54),
        real(0.46),
    )
    return Solution(scalars, attributes("InitAttrs", dtype=Dtype(kind.dtype)))


_METHODS = ("nearest_neighbor", "linear", "cubic")
_MODES = ("half_pixel", "align_corners", "asymmetric")


def _resize(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    batch, channels, *space = static_sizes(kind)
    # One more than the result gives a scale that is no simple fraction, so that places fall between pixels.
    source = [max(1, draw.rng.choice((size, size // 2, size * 2, size + 1))) for size in space]
    dims = len(space)
    # Images may be resized by all three methods, volumes not by the cubic one.
    method = draw.rng.choice(_METHODS[: 4 - dims + 1])
    attrs = attributes(
        f"Resize{dims}DAttrs",
        roi=(0.0,) * (2 * dims),
        layout="NCHW" if dims == 2 else "NCDHW",
        method=method,
        coordinate_transformation_mode=draw.rng.choice(_MODES) if method != "cubic" else "half_pixel",
        rounding_method=draw.rng.choice(("round", "floor", "ceil")) if method == "nearest_neighbor" else "",
        cubic_alpha=-0.75,
        cubic_exclude=0,
        extrapolation_value=0.0,
        out_dtype=None,
    )
    return Solution((Want(tensor(kind.dtype, (batch, channels, *source))), R.ShapeValue(tuple(space))), attrs)


def _grid_sample(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    batch, channels, height, width = static_sizes(kind)
    data = tensor(kind.dtype, (batch, channels, draw.size(4), draw.size(4)))
    grid = Want(tensor(kind.dtype, (batch, 2, height, width)), (-1, 1))
    attrs = attributes(
        "GridSampleAttrs",
        method=draw.rng.choice(("bilinear", "nearest")),
        layout="NCHW",
        padding_mode=draw.rng.choice(("zeros", "border")),
        align_corners=draw.chance(RATES.flag),
    )
    return Solution((Want(data), grid), attrs)


def _affine_grid(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    batch, _, height, width = static_sizes(kind)
    attrs = attributes("AffineGridAttrs", align_corners=True)
    return Solution((Want(tensor(kind.dtype, (batch, 2, 3))), R.ShapeValue((height, width))), attrs)


def _roi(draw: Draw, kind: T.RelaxTensorType) -> Solution:
    boxes, channels, height, width = static_sizes(kind)
    batch, size = draw.size(2), draw.rng.randint(4, 6)
    rows = []
    for _ in range(boxes):
        left, top = draw.rng.randint(0, 2), draw.rng.randint(0, 2)
        rows += [
            draw.rng.randrange(batch),
            left,
            top,
            left + draw.rng.randint(1, 3),
            top + draw.rng.randint(1, 3),
        ]
    rois = numbers(kind.dtype, (boxes, 5), rows)
    attrs = attributes(
        "ROIAlignAttrs",
        pooled_size=(height, width),
        spatial_scale=1.0,
        sample_ratio=draw.rng.choice((-1, 2)),
        aligned=draw.chance(RATES.flag),
        layout="NCHW",
        mode=draw.rng.choice(("avg", "max")),
    )
    return Solution((Want(tensor(kind.dtype, (batch, channels, size, size))), rois), attrs)


def _images(rank: int) -> Recogniser:
    return Recogniser(("float32",), (rank, rank), condition=lambda shape: min(shape) >= 1)


_SQUARE = Recogniser(
    ("float32", "float64", "int64", "int32"), (2, 2), condition=lambda shape: min(shape) >= 1
)
_ANY = Recogniser(ALL, static=False)
# With corners aligned a step of the grid is 2 / (side - 1), so a side of 1 would divide by 0.
_GRID = Recogniser(("float32",), (4, 4), condition=lambda shape: shape[1] == 2 and min(shape) >= 2)
_SIZED = Recogniser(("int64", "int32", "float32", "float64"), (1, 1), condition=lambda shape: shape[0] >= 1)

OPERATORS: tuple[Declared, ...] = (
    Declared("relax.full", _ANY, _full, "ConstantOfShape"),
    Declared("relax.zeros", _ANY, _solve_filled),
    Declared("relax.ones", _ANY, _solve_filled),
    Declared(
        "relax.full_like",
        _ANY,
        lambda draw, kind: Solution(
            (Want(kind), draw.constant(kind.dtype, ())), attributes("InitAttrs", dtype=None)
        ),
    ),
    Declared("relax.zeros_like", Recogniser(NUMBERS, static=False), _like),
    Declared("relax.ones_like", Recogniser(NUMBERS, static=False), _like),
    Declared("relax.arange", _SIZED, _arange, "Range"),
    Declared("relax.eye", _SQUARE, _eye, "EyeLike"),
    Declared(
        "relax.eye_like",
        _SQUARE,
        lambda draw, kind: Solution(
            (Want(kind), whole(draw.rng.randint(-1, 1))), attributes("InitAttrs", dtype=None)
        ),
        "EyeLike",
    ),
    Declared(
        "relax.hamming_window",
        # A window that is not periodic divides by the size less 1.
        Recogniser(_WIDE, (1, 1), condition=lambda s: s[0] > 1),
        _hamming,
        "HammingWindow",
    ),
    Declared("relax.image.resize2d", _images(4), _resize, "Resize"),
    Declared("relax.image.resize3d", _images(5), _resize, "Resize"),
    Declared("relax.image.grid_sample", _images(4), _grid_sample, "GridSample"),
    Declared("relax.image.affine_grid", _GRID, _affine_grid, "AffineGrid"),
    Declared("relax.vision.roi_align", _images(4), _roi, "RoiAlign"),
)
