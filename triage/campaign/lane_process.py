"""A lane: makes programs, runs them on every target and judges, in a process of its own that knows nothing of the store.

    python -m opsieve.triage.campaign.lane_process DESCRIPTOR

Speaks `lane_messages` over a socket. It ends as soon as the other side is gone, whatever it is at; its workers then see the same of it.
"""

import os
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from opsieve.backends.registry import resolve
from opsieve.backends.workers.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case
from opsieve.gen.model.bad_input import BadInput
from opsieve.triage.campaign.lane_messages import (
    Answered,
    Begin,
    Failed,
    Further,
    Message,
    NumberRange,
    Stop,
    finished,
    read_case,
    receive,
    send,
    sent_test,
)
from opsieve.triage.campaign.plan import CampaignPlan, read_plan
from opsieve.triage.campaign.schedule.features import features
from opsieve.triage.campaign.testing import do_tests
from opsieve.triage.store.store import Campaign, case_of

PIECE = 32  # tests between two answers, at most
SLICE = 2.0  # seconds between two answers, about: of slow targets a piece has fewer tests


class Lane:
    """What a lane has been given, and how fast it is."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._given: SimpleQueue[NumberRange | Further] = SimpleQueue()
        self._stop = threading.Event()
        self._rate = 0.0  # tests a second, of the latest pieces

    def work(self) -> None:
        """Do what comes, until nobody is there to ask for it."""
        begin = receive(self._connection)
        assert isinstance(begin, Begin)
        threading.Thread(target=self._listen, daemon=True).start()
        plan = read_plan(begin.campaign.generator, begin.supports)
        with Workers(begin.limits) as workers:
            lab = ObservationCache(workers)
            while True:
                given = self._given.get()
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
            cases = {number: plan.case(campaign.seed, number) for number in range(at, upto)}
            asked = {number: takers(campaign, case, begin.first) for number, case in cases.items()}
            done = do_tests(
                campaign, cases, lab, metamorphic=plan.metamorphic, asked=asked if begin.scheduled else None
            )
            if begin.scheduled:
                done = [replace(test, **_decided_by(case_of(test))) for test in done]
            lab.forget()
            self._rate = (upto - at) / (time.monotonic() - started + 1e-9)
            stopped = self._stop.is_set()
            send(self._connection, finished(done, upto, self._rate, stopped, cases=begin.scheduled))
            if stopped:
                return
            at = upto

    def _ask(self, given: Further, begin: Begin, plan: CampaignPlan, lab: ObservationCache) -> None:
        """One test, on targets that were chosen for it."""
        cases, asked = {given.number: read_case(given.case)}, {given.number: given.targets}
        (done,) = do_tests(begin.campaign, cases, lab, metamorphic=plan.metamorphic, asked=asked)
        lab.forget()
        send(self._connection, Answered(sent_test(done)))

    def _listen(self) -> None:
        """Put what is asked for into the queue; end the process when the other side is gone."""
        while True:
            try:
                message: Message = receive(self._connection)
            except (EOFError, OSError):
                os._exit(0)
            if isinstance(message, Stop):
                self._stop.set()
            elif isinstance(message, (NumberRange, Further)):
                self._given.put(message)


def takers(campaign: Campaign, case: Case, first: tuple[str, ...]) -> tuple[str, ...]:
    """The targets to ask about a program first: of those that are asked first the ones that take it, of the others where none of them does."""
    form = case.program.form
    taking = [name for name in campaign.targets if form in resolve(name).forms]
    return tuple(name for name in taking if name in first) or tuple(taking)


def _decided_by(case: Case) -> dict[str, Any]:
    """What a schedule decides by."""
    return {"form": case.program.form, "features": features(case.program)}


def main() -> None:
    """Serve the socket whose descriptor is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of the terminal is the main process's to answer
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        Lane(connection).work()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except BadInput as error:
        send(connection, Failed(str(error)))
    except Exception:  # noqa: BLE001 - the main process says it
        send(connection, Failed(f"a fault of opsieve ended a lane: {traceback.format_exc()[-2000:]}"))


if __name__ == "__main__":
    main()
