"""Cache observations from workers: each run happens once, and many at a time when they are known
beforehand.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.workers.observe import derive_observation
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.errors import BadInput
from opsieve.gen.model.program import Program


class ObservationCache:
    """Observations by program and inputs object.

    `prefetch` runs many in batches; `observe` uses known ones. A `fresh` or repeated run always happens.
    `forget_all` empties the cache between groups of models.
    """

    def __init__(self, workers: Workers):
        self.workers = workers
        self._known: dict[tuple[ResolvedTarget, Program, int], Observation] = {}
        # Keeps the inputs alive whose identity is a key
        self._kept: list[Test] = []
        # whose threads start when they are needed, and end with this object
        self._pool = ThreadPoolExecutor(2)

    def prefetch(self, wanted: Iterable[tuple[ResolvedTarget, Sequence[Test]]]) -> None:
        """Run all these tests now, two targets at a time."""

        def observe_all(item: tuple[ResolvedTarget, Sequence[Test]]) -> None:
            target, tests = item[0], list(item[1])
            for test, observation in zip(tests, self.workers.observe_many(target, tests), strict=True):
                self._remember(target, test, observation)

        asked = list(wanted)
        # No threads for that
        if len(asked) == 1:
            observe_all(asked[0])
            return
        under_way = [self._pool.submit(observe_all, item) for item in asked]
        wait(under_way)
        for done in under_way:
            done.result()

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        """Observe the program on the target; `fresh` runs in a new fork."""
        key = (target, program, id(inputs))
        if not fresh and not repeat and key in self._known:
            return self._known[key]
        observation = self.workers.observe(target, program, inputs, fresh=fresh, repeat=repeat)
        if not fresh and not repeat:
            self._remember(target, Test(program, inputs), observation)
        return observation

    def share_observation(self, target: ResolvedTarget, other: ResolvedTarget, test: Test) -> bool:
        """Whether the target's result is known, possibly from `other`, its host, whose outputs it
        passes on.
        """
        if (target, test.program, id(test.inputs)) in self._known:
            return True
        observation = self._known.get((other, test.program, id(test.inputs)))
        if observation is None or observation.outputs is None:
            return False
        try:
            version = self.workers.version(target)
        except (Unavailable, BadInput):
            # The first run reports it.
            return False
        self._remember(target, test, derive_observation(observation, target, version))
        return True

    def forget_all(self) -> None:
        """Drop every observation."""
        self._known.clear()
        self._kept.clear()

    def _remember(self, target: ResolvedTarget, test: Test, observation: Observation) -> None:
        self._known[target, test.program, id(test.inputs)] = observation
        self._kept.append(test)
