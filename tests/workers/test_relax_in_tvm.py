"""Generated modules beside TVM's own type inference."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from opsieve.gen.irs.relax.catalogue import Solutions
from opsieve.gen.irs.relax.declaration import Draw
from opsieve.gen.irs.relax.generator import generate
from opsieve.gen.irs.relax.mutation import incorrect, mutate_module
from opsieve.gen.irs.relax.policies import POLICIES
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.rewrites import rewritten
from opsieve.gen.irs.relax.writing import to_json


def test_modules_are_well_formed_and_type_checked(tvm: Callable[..., Any]) -> None:
    solutions = Solutions(Draw(random.Random(1)))
    texts = [
        to_json(generate(seed, policy(), solutions).module)
        for policy in POLICIES.values()
        for seed in range(10)
    ]
    assert [said for said in tvm("well_formed", texts=texts) if said] == []


@pytest.mark.slow(seconds=3)
def test_what_tvm_parses_comes_back_the_same(tvm: Callable[..., Any]) -> None:
    for text in tvm("examples"):
        assert tvm("compare", texts=[text, to_json(from_json(text))])


def test_mutants_and_rewrites_are_well_formed_and_what_is_made_wrong_is_refused(
    tvm: Callable[..., Any],
) -> None:
    right, wrong = [], []
    for seed in range(24):
        rng = random.Random(seed)
        policy = list(POLICIES.values())[seed % len(POLICIES)]()
        made = generate(seed, policy)
        mutant = mutate_module(made.module, rng, policy, made.symbols)
        right += [mutant] if mutant else []
        right.append(rewritten(made.module, rng)[0])
        if (broken := incorrect(made.module, rng)) is not None:
            wrong.append(broken)
    assert [said for said in tvm("well_formed", texts=list(map(to_json, right))) if said] == []
    refused = tvm("well_formed", texts=[to_json(module) for module, _ in wrong])
    assert len(wrong) > 8
    assert [what for said, (_, what) in zip(refused, wrong, strict=True) if said is None] == []
