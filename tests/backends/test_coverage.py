"""What workers say of the native code that a test was the first to reach."""

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from models import X, chain

from opsieve.backends.coverage.coverage import Coverage, EffectNumbers, Probes, own_libraries
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.errors import BadInput

ORT = resolve("onnxruntime")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="traps are for Linux on x86-64"
)


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[Coverage, Workers]]:
    """Nothing is reached yet: what another test has reached would not be new."""
    coverage = Coverage("functions", ["onnxruntime"], tmp_path / "points")
    with Workers(coverage=coverage) as workers:
        yield coverage, workers


def test_each_test_is_told_what_it_was_the_first_to_reach(traced: tuple[Coverage, Workers]) -> None:
    coverage, workers = traced
    tests = [Test(chain(operator), X) for operator in ("Relu", "Relu", "Softmax", "Relu")]
    answers = list(workers.observe_many(ORT, tests))
    first, again, other, last = (answer.reached or () for answer in answers)
    assert [answer.outcome for answer in answers] == ["ok"] * 4
    assert len(first) > 500
    assert len(other) > 5
    assert again == last == ()
    probes = coverage.maps()["onnxruntime", ""]
    assert probes.count >= len(first) + len(other)


def test_another_worker_starts_from_what_is_known(traced: tuple[Coverage, Workers]) -> None:
    _, workers = traced
    workers.observe(ORT, chain("Tanh"), X)
    assert workers.observe(ORT, chain("Tanh"), X, fresh=True).reached == ()
    assert workers.observe(ORT, chain("Erf"), X, fresh=True).reached != ()


def test_all_that_one_test_reaches_is_the_same_each_time(traced: tuple[Coverage, Workers]) -> None:
    _, workers = traced
    asked = Test(chain("Sigmoid"), X, again=True)
    workers.observe_many(ORT, [asked])
    seen = [set(answer.reached or ()) for answer in workers.observe_many(ORT, [asked] * 4)]
    assert len(seen[1]) > 500
    assert seen[1] == seen[2] == seen[3]


def test_probes_that_come_and_go_count_no_more(traced: tuple[Coverage, Workers]) -> None:
    coverage, workers = traced
    workers.observe(ORT, chain("Abs"), X)
    probes = coverage.maps()["onnxruntime", ""]
    assert isinstance(probes, Probes)
    before, number = probes.count, int(probes.numbers()[0])
    probes.disregard([number])
    assert probes.count == before - 1
    assert number not in probes.numbers()
    again = Probes(probes.points)
    assert again.count == 0  # what is unstable is known to the next campaign, and nothing else is
    assert again.reached()[0].probes == again.total - 1


def test_a_compiler_without_native_code_is_refused_in_a_sentence(tmp_path: Path) -> None:
    coverage = Coverage("functions", ["fake"], tmp_path)
    with Workers(coverage=coverage) as workers, pytest.raises(BadInput, match="no native code"):
        workers.version(resolve("fake"))


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadInput, match="functions, blocks, passes"):
        Coverage("lines", [])


def test_libraries_are_those_of_the_compilers_own_package() -> None:
    backend = plugin("onnxruntime").backend
    paths = [
        "/v/site-packages/onnxruntime/capi/onnxruntime_pybind11_state.so",
        "/v/site-packages/numpy/core/x.so",
    ]
    assert [path.name for path, _ in own_libraries(backend, paths)] == ["onnxruntime_pybind11_state.so"]
    tract = plugin("tract").backend
    assert own_libraries(tract, ["/v/site-packages/tract/lib.so", "/usr/lib/libc.so.6"]) == [
        (Path("/v/site-packages/tract/lib.so"), "")
    ]


def test_effects_are_new_once() -> None:
    effects = EffectNumbers()
    assert effects.new(["a", "b"]) == (0, 1)
    assert effects.new(["b", "c"]) == (2,)
    assert effects.names() == ["a", "b", "c"]
