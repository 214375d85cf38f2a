"""A lane: makes programs, runs them on every target and judges, in a process of its own that knows nothing of
the store.

    python -m opsieve.triage.campaign.lane_process DESCRIPTOR MEETING [TARGET]...

Speaks `lane_messages` over a socket, and shares what is imported with the lanes that were given the same
MEETING. It ends as soon as the other side is gone, whatever it is at; its workers then see the same of it.
"""

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

from opsieve.backends.probing.growing_support import growing
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.shared_zygotes import ZYGOTES
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.triage.campaign.lane_messages import (
    Answered,
    Begin,
    Failed,
    Further,
    Message,
    NumberRange,
    Stop,
    finished,
    leave_case_out,
    read_case,
    receive,
    send,
    send_case,
)
from opsieve.triage.campaign.plan import CampaignPlan, read_plan
from opsieve.triage.campaign.schedule.batch import BatchDecision, features
from opsieve.triage.campaign.schedule.costs import stated
from opsieve.triage.campaign.schedule.known_failures import left_out
from opsieve.triage.campaign.testing import do_tests
from opsieve.triage.store.finished_test import Campaign, FinishedTest

PIECE = 32  # tests between two answers, at most
SLICE = 2.0  # seconds between two answers, about: of slow targets a piece has fewer tests


class Lane:
    """What a lane has been given, and how fast it is. `alone` is called when the other side is gone, whatever
    the lane is at.
    """

    def __init__(self, connection: socket.socket, targets: Sequence[str], alone: Callable[[], None]) -> None:
        self._connection, self._expected, self._alone = connection, targets, alone
        self._given: SimpleQueue[NumberRange | Further | None] = SimpleQueue()  # None: no more will come
        self._stop = threading.Event()
        self._rate = 0.0  # tests a second, of the latest pieces

    def work(self) -> None:
        """Do what comes, until nobody is there to ask for it."""
        early = Workers()  # all Workers of a process share what they have imported
        threading.Thread(target=_start_expected, args=(early, self._expected), daemon=True).start()
        begin = receive(self._connection)
        assert isinstance(begin, Begin)
        threading.Thread(target=self._listen, daemon=True).start()
        with early, Workers(begin.limits) as workers:
            first = begin.first or begin.campaign.targets
            threading.Thread(target=_start_compilers, args=(workers, first), daemon=True).start()
            supports = tuple(growing(support, workers, resolve(support.target)) for support in begin.supports)
            plan = read_plan(begin.campaign.generator, supports)
            lab = ObservationCache(workers)
            while (given := self._given.get()) is not None:
                if isinstance(given, Further):
                    self._ask(given, begin, plan, lab)
                else:
                    self._do(given, begin, plan, lab)

    def _do(self, numbers: NumberRange, begin: Begin, plan: CampaignPlan, lab: ObservationCache) -> None:
        """Tests of a row of numbers, answered piece by piece."""
        at, campaign = numbers.start, begin.campaign
        while at < numbers.stop:
            started = time.monotonic()
            upto = min(numbers.stop, at + max(1, min(PIECE, int(SLICE * self._rate))))
            decision = numbers.decision or BatchDecision()
            cases = {
                number: plan.case(campaign.seed, number, decision.of_strategies) for number in range(at, upto)
            }
            if begin.scheduled:
                done = scheduled_tests(begin, plan, cases, decision, lab)
            else:
                done = do_tests(campaign, cases, lab, metamorphic=plan.metamorphic, further=plan.further)
            check_imports(done, lab.workers)
            lab.forget()
            self._rate = (upto - at) / (time.monotonic() - started + 1e-9)
            stopped = self._stop.is_set()
            send(self._connection, finished(done, upto, self._rate, stopped, cases=begin.cases_wanted))
            if stopped:
                return
            at = upto

    def _ask(self, given: Further, begin: Begin, plan: CampaignPlan, lab: ObservationCache) -> None:
        """One test, on further targets that were chosen for it."""
        cases, asked, rest = (
            {given.number: read_case(given.case)},
            {given.number: given.targets},
            given.answered,
        )
        (done,) = do_tests(
            begin.campaign,
            cases,
            lab,
            metamorphic=plan.metamorphic,
            further=plan.further,
            asked=asked,
            answered=rest,
        )
        check_imports([done], lab.workers)
        lab.forget()
        case = send_case(done.case) if done.case and done.findings else None
        send(self._connection, Answered(leave_case_out(done), case))

    def _listen(self) -> None:
        """Put what is asked for into the queue, until the other side is gone."""
        while True:
            try:
                message: Message = receive(self._connection)
            except (EOFError, OSError):
                self._given.put(None)
                return self._alone()
            if isinstance(message, Stop):
                self._stop.set()
            elif isinstance(message, (NumberRange, Further)):
                self._given.put(message)


def _start_expected(workers: Workers, names: Sequence[str]) -> None:
    """Have the compilers be imported that a campaign on these targets asks first."""
    with suppress(BadInput):  # they are no targets: whoever begins the campaign says it
        places = stated([resolve(name) for name in names]).quick if names else ()
        _start_compilers(workers, tuple(names[place] for place in places))


def _start_compilers(workers: Workers, targets: Sequence[str]) -> None:
    """Have compilers be imported while the first programs are made; one that cannot be imported answers so
    when it is asked.
    """
    for name in targets:
        with suppress(Unavailable, BadInput):
            workers.version(resolve(name))


def check_imports(tests: Iterable[FinishedTest], workers: Workers) -> None:
    """Unavailable when what a target lacked for a test is the compiler: it was not imported before, and no
    test would tell anything.
    """
    lacking = {name for test in tests for name, (word, _) in test.answers.items() if word == "environment"}
    for name in sorted(lacking):
        workers.version(resolve(name))


def takers(campaign: Campaign, case: Case, first: tuple[str, ...]) -> tuple[str, ...]:
    """The targets to ask about a program first: of those that are asked first the ones that take it, of the
    others where none of them does.
    """
    ir = case.program.ir
    taking = [name for name in campaign.targets if ir in resolve(name).irs]
    return tuple(name for name in taking if name in first) or tuple(taking)


def scheduled_tests(
    begin: Begin, plan: CampaignPlan, cases: dict[int, Case], decision: BatchDecision, lab: ObservationCache
) -> list[FinishedTest]:
    """Tests on the targets that are asked first, but for what these are known to fail at, with what a
    schedule decides by.
    """
    campaign, asked, left = begin.campaign, {}, {}
    has = {number: features(case.program) for number, case in cases.items()}
    for number, case in cases.items():
        names = takers(campaign, case, begin.first)
        found = {name: left_out(campaign.seed, number, name, has[number], decision.known) for name in names}
        left[number] = {name: feature for name, feature in found.items() if feature}
        asked[number] = [name for name in names if name not in left[number]]
    return [
        replace(
            test,
            ir=cases[test.number].program.ir,
            features=has[test.number],
            left_out=left[test.number],
        )
        for test in do_tests(
            campaign, cases, lab, metamorphic=plan.metamorphic, further=plan.further, asked=asked
        )
    ]


def serve(connection: socket.socket, targets: Sequence[str], alone: Callable[[], None]) -> None:
    """Be the lane at this end of a connection; what keeps it from going on it says there."""
    try:
        Lane(connection, targets, alone).work()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except BadInput as error:
        send(connection, Failed(str(error)))
    except Unavailable as error:
        send(connection, Failed(f"{error}; leave that target out, or install it (see opsieve doctor)"))
    except Exception:  # noqa: BLE001 - the main process says it
        send(connection, Failed(f"a fault of opsieve ended a lane: {traceback.format_exc()[-2000:]}"))


def main() -> None:
    """Serve the socket whose descriptor is the argument, and end with it."""
    # an interrupt of the terminal is the main process's to answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ZYGOTES.meet(sys.argv[2])
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:], lambda: os._exit(0))


if __name__ == "__main__":
    main()
