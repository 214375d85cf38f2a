"""Compilers of a Dask cluster asked as those of this machine are, for the tests of a reduction.

Programs, values and observations travel as they do to a lane (campaign/lane_messages.py): as bytes, nothing
of opsieve's is pickled. What the cluster cannot answer is asked here, so that the cluster decides how long a
reduction takes and never what comes of it.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.workers import Test, Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.campaign.lane_messages import SentCase, decode_as, encode, read_case, send_case
from opsieve.triage.distributed.cluster import Cluster
from opsieve.triage.distributed.remote_lane import Kept, installed

Further = Callable[[Sequence[ResolvedTarget]], list[Workers]]  # workers that can be asked about these targets


class _SentTest(msgspec.Struct):
    """A `Test`."""

    case: SentCase
    as_is: bool
    again: bool


class _Question(msgspec.Struct):
    """To a worker: what a target makes of tests. `owner` is the reduction that asks, for which compilers are
    kept.
    """

    owner: str
    target: str
    tests: list[_SentTest]
    fresh: bool
    repeat: int
    limits: Limits
    offline: bool


class RemoteWorkers(Workers):
    """Workers that are asked on a cluster; `here` answers in their place when nobody does there."""

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

    def version(self, target: ResolvedTarget) -> str:
        """The version here, which is that of each worker."""
        return self._here.version(target)

    def observe_many(
        self, target: ResolvedTarget, tests: Sequence[Test], *, fresh: bool = False, repeat: int = 0
    ) -> Iterator[Observation]:
        """An observation for each test, in order, all by one worker of the cluster."""
        found = [] if self._given_up.is_set() else self._there(target, tests, fresh, repeat)
        # which may be that machine's alone
        if not found or any(each.outcome == "environment" for each in found):
            found = list(self._here.observe_many(target, tests, fresh=fresh, repeat=repeat))
        yield from found

    def _there(
        self, target: ResolvedTarget, tests: Sequence[Test], fresh: bool, repeat: int
    ) -> list[Observation]:
        """What the cluster answers; nothing where it does not."""
        asked = [
            _SentTest(send_case(Case(each.program, each.inputs)), each.as_is, each.again) for each in tests
        ]
        question = _Question(self._owner, str(target), asked, fresh, repeat, self.limits, self.offline)
        try:
            answer = self._cluster.done(self._given_up, answered_there, encode(question))
            observations: list[Observation] = decode_as(answer, list[Observation])
            return observations
        except EOFError as error:
            self._say(f"a test is run here, for the cluster gives no answer: {shown(str(error), 200)}")
        except (BadInput, OSError) as error:
            if not self._given_up.is_set():  # others hear of it too
                self._given_up.set()
                self._say(f"the tests are run here from now on: {shown(str(error), 200)}")
        return []


@contextmanager
def cluster_workers(
    address: str, resources: Mapping[str, float], lanes: int | None, here: Workers, say: Callable[[str], None]
) -> Iterator[Further]:
    """What gives as many workers on the cluster at an address as it has threads, or `lanes`. BadInput where
    nobody answers or fits.
    """
    owner, given_up = os.urandom(8).hex(), threading.Event()
    with Cluster(address, installed(()), resources, say) as cluster:
        cluster.threads()

        def further(targets: Sequence[ResolvedTarget]) -> list[Workers]:
            cluster.require(installed([str(target) for target in targets], here.offline))
            count = lanes or cluster.threads()
            return [RemoteWorkers(cluster, here, owner, given_up, say) for _ in range(count)]

        try:
            yield further
        finally:
            given_up.set()
            cluster.each(end_workers, owner)


def answered_there(frame: bytes) -> bytes:
    """On a worker: what is asked, observed by compilers that are kept for the next question of the same
    reduction.
    """
    question: _Question = decode_as(frame, _Question)
    workers = _KEPT.take(question.owner) or Workers(question.limits, offline=question.offline)
    try:
        cases = [read_case(each.case) for each in question.tests]
        tests = [
            Test(case.program, case.inputs, each.as_is, each.again)
            for case, each in zip(cases, question.tests, strict=True)
        ]
        answers = workers.observe_many(
            resolve(question.target), tests, fresh=question.fresh, repeat=question.repeat
        )
        answer = encode(list(answers))
    except BaseException:
        workers.close()
        raise
    _KEPT.keep(question.owner, workers)
    return answer


def end_workers(owner: str) -> None:
    """On a worker: end the compilers that are kept for a reduction."""
    _KEPT.end(owner)


_KEPT: Kept[Workers] = Kept(Workers.close)
