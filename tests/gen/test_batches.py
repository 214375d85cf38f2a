"""Programs that depend on those before them in their batch: the same alone and in order, whatever was asked
for before.
"""

import pytest
from hypothesis import example, given, strategies as st

from opsieve.gen.errors import BadInput
from opsieve.gen.generation.batches import Batches
from opsieve.gen.generation.random_graph import GenRequest
from opsieve.gen.generation.request import draw_nodes

SIZE = 8
FAULTY = 21  # a seed of which no program can be made
Made = tuple[int, int, tuple[int, ...]]


def noted(request: GenRequest, seed: int, memory: list[int]) -> Made:
    """What a program depends on: its nodes, its seed, the seeds before it."""
    before = tuple(memory)
    memory.append(seed)
    if seed == FAULTY:
        raise BadInput("no such program")
    return request.nodes, seed, before


def expected(request: GenRequest, seed: int) -> Made:
    return draw_nodes(request, seed).nodes, seed, tuple(range(seed - seed % SIZE, seed))


WISHES = st.sampled_from((GenRequest(nodes=3), GenRequest(nodes=4), GenRequest(nodes=2, between=(2, 9))))


# A memory that an exception left half done.
@example([(GenRequest(nodes=3), 19), (GenRequest(nodes=3), FAULTY), (GenRequest(nodes=3), 20)])
@given(st.lists(st.tuples(WISHES, st.integers(0, 40)), max_size=12))
def test_what_is_made_depends_on_the_batch_alone(asked: list[tuple[GenRequest, int]]) -> None:
    batches = Batches(SIZE, list[int], noted)
    for request, seed in asked:
        if FAULTY <= seed < FAULTY - FAULTY % SIZE + SIZE:
            with pytest.raises(BadInput):
                batches.make_at(request, seed)
        else:
            assert batches.make_at(request, seed) == expected(request, seed)


def test_seeds_in_order_are_made_once_each() -> None:
    made = []

    def counted(request: GenRequest, seed: int, memory: list[int]) -> int:
        made.append(seed)
        return seed

    batches = Batches(SIZE, list[int], counted)
    for seed in range(3 * SIZE):
        batches.make_at(GenRequest(between=(1, 5)), seed)
    assert made == list(range(3 * SIZE))
    batches.make_at(GenRequest(between=(1, 5)), 3)
    assert made[3 * SIZE :] == [0, 1, 2, 3]
