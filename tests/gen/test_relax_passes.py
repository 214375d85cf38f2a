import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from opsieve.gen.irs.relax.passes import LEFT_OUT, RULES, crossed, draw, extended, legalised, rule


def is_legal(steps: Sequence[str]) -> bool:
    """Whether every pass is known and stands behind those that it needs."""
    seen: set[str] = set()
    for step in steps:
        found = rule(step)
        if found is None or not set(found.after) <= seen:
            return False
        seen.add(found.name)
    return True


rngs = st.randoms(use_true_random=False)


@given(rngs, rngs, st.integers(0, 12))
def test_sequences_are_legal_however_they_are_made(
    rng: random.Random, other: random.Random, length: int
) -> None:
    first, second = draw(rng, length), draw(other, length)
    assert is_legal(first)
    assert is_legal(extended(first, rng))
    assert is_legal(crossed(first, second, rng))
    assert legalised(first) == first


def test_a_pass_is_in_the_table_or_left_out_with_a_reason() -> None:
    names = {rule.name for rule in RULES}
    assert not names & set(LEFT_OUT)
    assert all(LEFT_OUT.values())
    assert all(set(rule.after) <= names for rule in RULES)
