"""Use compilers of a Dask cluster like local ones, for the tests of a reduction.

Programs, values and observations travel as they do to a lane (campaign/lane_messages.py): as bytes, without
pickled objects of opsieve. Tests that the cluster fails to answer run here, so the cluster affects how long a
reduction takes and never its result.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from opsieve.backends import observation, registry
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.campaign.lane_messages import SentCase, decode_as, encode_message, pack_case, unpack_case
from opsieve.triage.distributed.cluster import Cluster
from opsieve.triage.distributed.remote_lane import Kept, describe_installed

# Workers that can run these targets.
Further = Callable[[Sequence[registry.ResolvedTarget]], list[Workers]]


class _SentTest(msgspec.Struct):
    """A `Test` in transit."""

    case: SentCase
    as_is: bool
    again: bool


class _Question(msgspec.Struct):
    """To a worker: observe a target on tests. `owner` is the reduction for which compilers are kept."""

    owner: str
    target: str
    tests: list[_SentTest]
    fresh: bool
    repeat: int
    limits: Limits
    offline: bool


class RemoteWorkers(Workers):
    """Workers on a cluster, with `here` as the fallback."""

    def __init__(
        self,
        cluster: Cluster,
        here: Workers,
        owner: str,
        given_up: threading.Event,
        say: Callable[[str], None],
    ):
        super().__init__(here.limits, offline=here.offline, say=say)
        self._cluster, self._here, self._owner, self._given_up = cluster, here, owner, given_up

    def version(self, target: registry.ResolvedTarget) -> str:
        """Return the version here, which is that of each worker."""
        return self._here.version(target)

    def observe_many(
        self, target: registry.ResolvedTarget, tests: Sequence[Test], *, fresh: bool = False, repeat: int = 0
    ) -> Iterator[observation.Observation]:
        """Observe each test, in order, all on one worker of the cluster."""
        found = [] if self._given_up.is_set() else self._observe_remotely(target, tests, fresh, repeat)
        # which may be that machine's alone
        if not found or any(each.outcome == "environment" for each in found):
            found = list(self._here.observe_many(target, tests, fresh=fresh, repeat=repeat))
        yield from found

    def _observe_remotely(
        self, target: registry.ResolvedTarget, tests: Sequence[Test], fresh: bool, repeat: int
    ) -> list[observation.Observation]:
        """Return the cluster's answers, or [] if it fails."""
        asked = [
            _SentTest(pack_case(Case(each.program, each.inputs)), each.as_is, each.again) for each in tests
        ]
        question = _Question(self._owner, str(target), asked, fresh, repeat, self.limits, self.offline)
        try:
            answer = self._cluster.run_task(self._given_up, answer_tests, encode_message(question))
            observations: list[observation.Observation] = decode_as(answer, list[observation.Observation])
            return observations
        except EOFError as error:
            self._say(f"the cluster gives no answer, so a test runs here: {shown(str(error), 200)}")
        except (BadInput, OSError) as error:
            # Others hear of it too
            if not self._given_up.is_set():
                self._given_up.set()
                self._say(f"the tests are run here from now on: {shown(str(error), 200)}")
        return []


@contextmanager
def open_remote_workers(
    address: str, resources: Mapping[str, float], lanes: int | None, here: Workers, say: Callable[[str], None]
) -> Iterator[Further]:
    """Yield a function that makes as many workers on the cluster as it has threads, or `lanes`.

    Raises:
        BadInput: If the scheduler is silent or every worker is unsuitable.
    """
    # Random, since two reductions may use one cluster at the same time.
    owner, given_up = os.urandom(8).hex(), threading.Event()
    with Cluster(address, describe_installed(()), resources, say) as cluster:
        cluster.count_threads()

        def further(targets: Sequence[registry.ResolvedTarget]) -> list[Workers]:
            cluster.require_installed(describe_installed([str(target) for target in targets], here.offline))
            count = lanes or cluster.count_threads()
            return [RemoteWorkers(cluster, here, owner, given_up, say) for _ in range(count)]

        try:
            yield further
        finally:
            given_up.set()
            cluster.run_everywhere(end_workers, owner)


def answer_tests(frame: bytes) -> bytes:
    """Observe tests on a worker, with compilers that are kept for the next question of the same reduction."""
    question: _Question = decode_as(frame, _Question)
    workers = _KEPT.take_one(question.owner) or Workers(question.limits, offline=question.offline)
    try:
        cases = [unpack_case(each.case) for each in question.tests]
        tests = [
            Test(case.program, case.inputs, each.as_is, each.again)
            for case, each in zip(cases, question.tests, strict=True)
        ]
        answers = workers.observe_many(
            registry.resolve(question.target), tests, fresh=question.fresh, repeat=question.repeat
        )
        answer = encode_message(list(answers))
    except BaseException:
        workers.close()
        raise
    _KEPT.keep_one(question.owner, workers)
    return answer


def end_workers(owner: str) -> None:
    """End the compilers on a worker that are kept for a reduction."""
    _KEPT.end_all(owner)


_KEPT: Kept[Workers] = Kept(Workers.close)
