"""The comparison policy: what counts as a difference, by type."""

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from opsieve.backends.compare import SCREENS, Comparison, Policy, compare, error, identical
from opsieve.backends.judge.reasons import describe_mismatch
from opsieve.backends.verdict import Mismatch


def one(got, want, dtype="float32", **options) -> Comparison:  # type: ignore[no-untyped-def]
    return compare({"y": got}, {"y": want}, {"y": dtype}, **options)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_screen_of_a_type_is_where_agreement_ends(dtype: str) -> None:
    kind = np.dtype(dtype if dtype != "bfloat16" else ml_dtypes.bfloat16)
    got = np.array([1.0, 0.5], kind)
    inside, outside = np.array([1.0, 0.5 + 0.9 * SCREENS[dtype]]), np.array([1.0, 0.5 + 1.2 * SCREENS[dtype]])
    assert one(got, inside, dtype).agrees
    found = one(got, outside, dtype).worst
    assert found is not None
    assert (found.what, found.index, found.fraction) == ("value", (1,), 0.5)
    assert found.max_scaled == pytest.approx(1.2 * SCREENS[dtype], rel=1e-6)


def test_small_elements_beside_large_ones_are_never_judged_relatively() -> None:
    assert one(f32(1000.0, 2e-3), np.array([1000.0, 1e-3])).agrees


def test_long_sums_widen_the_screen_of_short_types_only() -> None:
    policy = Policy()
    assert policy.screen("float16", 1024) == policy.screen("float16")
    assert policy.screen("float16", 4096) == pytest.approx(2 * policy.screen("float16"))
    assert policy.screen("float32", 100_000) == policy.screen("float32")
    assert compare(
        {"y": np.float16([1.0])}, {"y": np.array([1.015])}, {"y": "float16"}, terms={"y": 4096}
    ).agrees
    assert not compare({"y": np.float16([1.0])}, {"y": np.array([1.015])}, {"y": "float16"}).agrees


def test_shape_dtype_and_presence_are_told_apart() -> None:
    assert one(f32(1.0).reshape(()), np.array([1.0])).worst.what == "shape"  # type: ignore[union-attr]
    assert one(np.array([1.0]), np.array([1.0])).worst.what == "dtype"  # type: ignore[union-attr]
    assert one(np.array([1], np.int64), np.array([1], np.int32), "int32").worst.what == "dtype"  # type: ignore[union-attr]
    assert compare({}, {"y": np.ones(2)}, {}).worst.what == "missing"  # type: ignore[union-attr]
    assert one(None, np.ones(2)).worst.what == "type"  # type: ignore[union-attr]
    assert one([f32(1)], f32(1)).worst.what == "type"  # type: ignore[union-attr]


def test_an_undeclared_output_may_be_narrower_than_the_float64_reference() -> None:
    assert one(f32(1.0), np.array([1.0]), "").agrees
    assert not one(np.array([1], np.int32), np.array([1.0]), "").agrees


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int8", "bool"])
def test_equal_bytes_agree_whatever_they_say_and_only_in_one_type(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    value = (
        np.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf]).astype(kind, casting="unsafe")
        if kind.kind in "Vfc"
        else np.ones(6, kind)
    )
    found = one(value, value[::-1].copy()[::-1], dtype, policy=Policy(signed_zero=True))
    assert (found.agrees, found.rules) == (True, ())
    other = value.view(np.uint8)
    assert one(other, other.copy(), dtype).worst.what == "dtype"  # type: ignore[union-attr]


def test_integers_booleans_and_strings_are_exact() -> None:
    assert one(np.array([1, 2]), np.array([1, 2]), "int64").agrees
    big = one(np.array([2**62 + 1]), np.array([2**62]), "int64").worst
    assert big is not None
    assert big.max_abs == 1.0
    assert not one(np.array([True]), np.array([False]), "bool").agrees
    nibbles = np.array([1, -8], ml_dtypes.int4)
    assert one(nibbles, nibbles, "int4").agrees
    assert not one(nibbles, nibbles[::-1], "int4").agrees
    assert one(np.array(["a", b"b"], object), np.array(["a", "b"], object), "string").agrees
    assert not one(np.array(["a"], object), np.array(["b"], object), "string").agrees


def test_nan_and_infinity_must_stand_in_the_same_places() -> None:
    nan, inf = float("nan"), float("inf")
    assert one(f32(nan, inf, 1), np.array([nan, inf, 1])).agrees
    assert one(f32(nan, 1), np.array([1, 1])).worst.what == "nan"  # type: ignore[union-attr]
    assert one(f32(1, 1), np.array([nan, 1])).worst.what == "nan"  # type: ignore[union-attr]
    assert one(f32(inf, 1), np.array([-inf, 1])).worst.what == "inf"  # type: ignore[union-attr]
    assert one(f32(inf, 1), np.array([3.0, 1])).worst.what == "inf"  # type: ignore[union-attr]
    assert not one(f32(nan, 1), np.array([nan, 2.0])).agrees


def test_infinity_agrees_with_a_value_beyond_the_type_and_the_rule_is_named() -> None:
    found = one(f32(float("inf"), 1.0), np.array([1e39, 1.0]))
    assert (found.agrees, found.rules) == (True, ("beyond-range",))
    assert not one(f32(float("-inf"), 1.0), np.array([1e39, 1.0])).agrees
    # and the others are not measured by the value that does not fit
    assert not one(f32(float("inf"), 1.0), np.array([1e39, 2.0])).agrees


def test_flushed_denormals_and_zero_signs_do_not_count_unless_asked() -> None:
    assert one(f32(0.0), np.array([1e-39])).agrees
    assert not one(np.float16([0.0]), np.array([1e-5]), "float16").agrees
    assert one(f32(-0.0, 1), np.array([0.0, 1])).agrees
    assert one(f32(-0.0, 1), np.array([0.0, 1]), policy=Policy(signed_zero=True)).worst.what == "sign-of-zero"  # type: ignore[union-attr]


def test_a_stated_tolerance_holds_element_by_element() -> None:
    strict = Policy(tolerance=(1e-3, 1e-4))
    found = one(f32(540.001, 3.4e-4), np.array([540.0, 0.0]), policy=strict).worst
    assert found is not None
    assert (found.index, found.fraction) == ((1,), 0.5)
    assert one(f32(540.0, 0.9e-4), np.array([540.0, 0.0]), policy=strict).agrees


def test_sequences_are_compared_item_by_item() -> None:
    found = one([f32(1), f32(2)], [np.array([1.0]), np.array([3.0])]).worst
    assert found is not None
    assert found.output == "y[1]"
    assert one([f32(1)], []).worst.what == "shape"  # type: ignore[union-attr]
    assert one([], []).agrees


def test_empty_and_zero_outputs() -> None:
    assert one(f32(), np.zeros(0)).agrees
    assert one(f32(0, 0), np.zeros(2)).agrees
    assert not one(f32(0, 1e-3), np.zeros(2)).agrees


def test_errors_beside_zeros_are_finite_and_in_order() -> None:
    zeros = np.zeros(2)
    small, large = (error(f32(0, off), zeros) for off in (6e-8, 0.3))
    assert 0 < small < large < float("inf")
    assert large / small == pytest.approx(0.3 / 6e-8, rel=1e-6)
    assert (error(np.int64([0, 3]), np.int64([0, 0])), error(f32(0, 0), zeros)) == (3.0, 0.0)
    found = one(f32(0, 0.3), zeros).worst
    assert found is not None
    assert found.max_scaled == pytest.approx(large)
    sentence = "output 'y': got 0.3, expected 0 at [1] (absolute error 0.3; 50 % of the elements differ)"
    assert describe_mismatch(found) == sentence


@pytest.mark.parametrize(
    ("got", "want", "sentence"),
    [
        (
            [-0.48705, 1],
            [-0.49608, -2],
            "got 1, expected -2 at [1] (150 % of the value, 150 % of the largest magnitude; all elements differ)",
        ),
        (
            [1, 2, np.inf, 4],
            [1, 2, 1000.69, 4],
            "got inf, expected 1000.7 at [2] (25 % of the elements differ)",
        ),
        (
            [1.0000001, 1.5],
            [1, 1],
            "got 1.5, expected 1 at [1] (50 % of the value, 50 % of the largest magnitude; 50 % of the elements differ)",
        ),
        (
            [1000.001],
            [1000.2],
            "got 1000, expected 1000.2 at [0] (0.02 % of the value, 0.02 % of the largest magnitude; all elements differ)",
        ),
        (
            [1.9975],
            [1],
            "got 1.9975, expected 1 at [0] (100 % of the value, 100 % of the largest magnitude; all elements differ)",
        ),
        ([1, 2, 3], [1, 2], "got shape (3,), expected (2,)"),
    ],
)
def test_a_mismatch_is_a_sentence_with_both_values_and_the_error(
    got: list[float], want: list[float], sentence: str
) -> None:
    assert (
        describe_mismatch(one(f32(*got), np.array(want, dtype=np.float64)).worst) == f"output 'y': {sentence}"
    )


@pytest.mark.parametrize(
    ("got", "want"), [("1.00000012", "1.00000024"), ("nan", "0.5"), ("True", "False"), ("-0.0", "0.0")]
)
def test_two_values_that_differ_are_never_written_alike(got: str, want: str) -> None:
    worst = Mismatch("y", "value", 1e-7, 1e-7, fraction=1.0, index=(0,), got=got, expected=want)
    left, right = re.search("got (.*), expected (.*) at", describe_mismatch(worst)).groups()  # type: ignore[union-attr]
    assert left != right


def test_structure_is_told_before_values() -> None:
    found = compare(
        {"a": f32(5), "b": f32(1, 2)},
        {"a": np.array([1.0]), "b": np.ones(3)},
        {"a": "float32", "b": "float32"},
    )
    assert set(found.mismatches) == {"a", "b"}
    assert found.worst is not None
    assert found.worst.output == "b"


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_a_value_agrees_with_itself_in_float64(values: list[float]) -> None:
    got = np.array(values, np.float32)
    assert one(got, got.astype(np.float64)).agrees
    assert error(got, got.astype(np.float64)) == 0.0
    assert identical(got, got.copy())


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.integers(0, 19))
def test_a_moved_element_is_found_where_it_is(values: list[float], at: int) -> None:
    want = np.array(values, np.float64)
    got = want.astype(np.float32)
    got[at % got.size] += np.float32(1 + np.abs(want).max())
    found = one(got, want).worst
    assert found is not None
    assert found.index == (at % got.size,)
    assert not identical(got, want.astype(np.float32))
