"""Frames between the main process and workers: values of every layout arrive as they were sent."""

from typing import Any

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from opsieve.backends.workers.inside.wire import ALIGN, pack_value, unpack_value

DTYPES = st.sampled_from(["bool", "int8", "uint16", "float32", ">i4", "float64", "complex64"])


def travelled(value: Any) -> Any:
    chunks: list[Any] = []
    described = pack_value(value, chunks)
    body = b"".join(bytes(chunk) + bytes(-len(chunk) % ALIGN) for chunk in chunks)
    found, end = unpack_value(described, memoryview(body), 0)
    assert end == len(body)
    return found


@given(st.data())
def test_views_of_any_layout_arrive(data: st.DataObject) -> None:
    array = data.draw(
        hnp.arrays(data.draw(DTYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    )
    array = array.transpose(data.draw(st.permutations(range(array.ndim))))
    if array.ndim:
        array = array[
            tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in range(array.ndim))
        ]
    if data.draw(st.booleans()):
        array = np.broadcast_to(array, (3, *array.shape))
    found = travelled(array)
    assert found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


def test_a_cut_of_the_last_axis_arrives() -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(travelled(whole[:, ::2][1]), whole[1, ::2])
    np.testing.assert_array_equal(travelled(np.broadcast_to(np.float32(2), (5,))), np.full(5, 2, np.float32))
