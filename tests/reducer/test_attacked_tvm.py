"""Certificates of TIR functions and Relax modules, attacked by edits that share no code with the passes."""

import sys
from pathlib import Path

import pytest

from opsieve.backends.workers.workers import Workers

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
from benchmarks.reducing.attack import attack_tvm


@pytest.mark.slow(seconds=90)
@pytest.mark.parametrize(("kind", "first", "count"), [("tir", 4000, 20), ("relax", 4000, 6)])
def test_no_single_change_of_a_tvm_program_beats_a_certificate(kind: str, first: int, count: int) -> None:
    pytest.importorskip("tvm")
    with Workers() as workers:
        found = {seed: attack_tvm(kind, seed, workers) for seed in range(first, first + count)}
    assert not {seed: each[2] for seed, each in found.items() if each is not None and each[2]}
    assert any(each is not None and each[3] for each in found.values())
