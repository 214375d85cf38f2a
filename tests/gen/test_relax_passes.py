import random
from collections.abc import Sequence

from hypothesis import given, strategies as st

from opsieve.gen.irs.relax.passes import (
    LEFT_OUT,
    RULES,
    cross_steps,
    draw,
    extend_steps,
    legalise_steps,
    rule,
)


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
    assert is_legal(extend_steps(first, rng))
    assert is_legal(cross_steps(first, second, rng))
    assert legalise_steps(first) == first


def test_a_pass_is_in_the_table_or_left_out_with_a_reason() -> None:
    names = {rule.name for rule in RULES}
    assert not names & set(LEFT_OUT)
    assert all(LEFT_OUT.values())
    assert all(set(rule.after) <= names for rule in RULES)
