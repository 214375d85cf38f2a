"""Inputs as Polygraphy saves them: JSON with base64 of numpy's `.npy` files.

`polygraphy run --save-inputs FILE` writes a list of iterations, each an object of arrays by name;
`--save-outputs` an object of class RunResults. An array is `{"array": base64, "polygraphy_class": "ndarray"}`
(https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/polygraphy/, module `polygraphy.json`).
"""

import base64
import binascii
import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opsieve.gen.data.data_set import read_npy
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import bound_reading, read_file

_LIMIT = 256 << 20
_CLASS = "polygraphy_class"

Arrays = dict[str, np.ndarray[Any, Any]]


@bound_reading
def is_polygraphy(path: Path) -> bool:
    """Whether a JSON file speaks of Polygraphy's classes; False for one that cannot be read or is over 256
    MiB.
    """
    try:
        return f'"{_CLASS}"'.encode() in read_file(path, _LIMIT)
    except BadInput:
        return False


@bound_reading
def read_polygraphy_inputs(path: Path) -> list[Arrays]:
    """The arrays by name of each iteration; BadInput for results of runners, and for anything that is not
    plain arrays.
    """
    where = shown(path, 160)
    try:
        feeds = msgspec.json.decode(read_file(path, _LIMIT))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{where} is no readable JSON: {shown(str(error), 120)}") from None
    if isinstance(feeds, dict) and feeds.get(_CLASS) == "RunResults":
        raise BadInput(
            f"{where} holds the results of some runners, and nobody says that they are right: import their"
            " inputs"
        )
    if not isinstance(feeds, list) or not feeds or not all(isinstance(feed, dict) for feed in feeds):
        raise BadInput(f"{where} holds no list of inputs as Polygraphy saves them")
    return [
        {name: _array(value, f"the value of {shown(name)} in {where}") for name, value in feed.items()}
        for feed in feeds
    ]


def _array(value: Any, where: str) -> np.ndarray[Any, Any]:
    if (
        not isinstance(value, dict)
        or value.get(_CLASS) != "ndarray"
        or not isinstance(value.get("array"), str)
    ):
        kind = value.get(_CLASS) if isinstance(value, dict) else type(value).__name__
        raise BadInput(f"{where} is no array but {shown(kind)}: save numpy arrays")
    try:
        data = base64.b64decode(value["array"], validate=True)
        return read_npy(io.BytesIO(data), len(data), where)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{where} is no array in base64: {shown(str(error), 120)}") from None
