"""A lane: generates programs, runs them on every target and judges, in a process without access to the store.

    python -m opsieve.triage.campaign.lane_process DESCRIPTOR MEETING [TARGET]...

It speaks `lane_messages` over a socket, and shares imports with the lanes that were given the same MEETING.
It ends as soon as the other side is gone, even in the middle of a test; its workers then end the same way.
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

from opsieve.backends.probing.growing_support import make_growing
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes import shared_zygotes, zygote
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput
from opsieve.triage.campaign import lane_messages, testing
from opsieve.triage.campaign.plan import CampaignPlan, read_plan
from opsieve.triage.campaign.schedule import batch, costs
from opsieve.triage.store.finished_test import Campaign, FinishedTest

# Tests between two answers, at most
PIECE = 32
# Seconds between two answers, about: of slow targets a piece has fewer tests
SLICE = 2.0


class Lane:
    """The state of a lane and its speed. `alone` is called when the other side is gone, even in the middle of
    a test.
    """

    def __init__(self, connection: socket.socket, targets: Sequence[str], alone: Callable[[], None]) -> None:
        self._connection, self._expected, self._alone = connection, targets, alone
        # None marks the end.
        self._given: SimpleQueue[lane_messages.NumberRange | lane_messages.Further | None] = SimpleQueue()
        self._stop = threading.Event()
        # Tests a second, of the latest pieces
        self._rate = 0.0

    def run_loop(self) -> None:
        """Process messages until the other side is gone."""
        # All Workers of a process share their zygotes.
        early = Workers()
        threading.Thread(target=_import_expected, args=(early, self._expected), daemon=True).start()
        begin = lane_messages.receive_message(self._connection)
        assert isinstance(begin, lane_messages.Begin)
        # In a thread, so that a request to stop and the end of the other side are seen during a test.
        threading.Thread(target=self._receive_questions, daemon=True).start()
        with early, Workers(begin.limits) as workers:
            first = begin.first or begin.campaign.targets
            threading.Thread(target=_import_compilers, args=(workers, first), daemon=True).start()
            supports = tuple(
                make_growing(support, workers, resolve(support.target)) for support in begin.supports
            )
            plan = read_plan(begin.campaign.generator, supports)
            lab = ObservationCache(workers)
            while (given := self._given.get()) is not None:
                if isinstance(given, lane_messages.Further):
                    # Run one test on further targets.
                    cases, asked, rest = (
                        {given.number: lane_messages.unpack_case(given.case)},
                        {given.number: given.targets},
                        given.answered,
                    )
                    (done,) = testing.run_tests(
                        begin.campaign,
                        cases,
                        lab,
                        metamorphic=plan.metamorphic,
                        further=plan.further,
                        asked=asked,
                        answered=rest,
                    )
                    check_imports([done], lab.workers)
                    # Observations hold outputs, which add up over a campaign.
                    lab.forget_all()
                    case = lane_messages.pack_case(done.case) if done.case and done.findings else None
                    lane_messages.send_message(
                        self._connection, lane_messages.Answered(lane_messages.leave_case_out(done), case)
                    )
                else:
                    self._run_range(given, begin, plan, lab)

    def _run_range(
        self,
        numbers: lane_messages.NumberRange,
        begin: lane_messages.Begin,
        plan: CampaignPlan,
        lab: ObservationCache,
    ) -> None:
        """Run the tests of a range of numbers, answering piece by piece."""
        at, campaign = numbers.start, begin.campaign
        while at < numbers.stop:
            started = time.monotonic()
            # Small pieces lose little if the lane dies, and show progress.
            upto = min(numbers.stop, at + max(1, min(PIECE, int(SLICE * self._rate))))
            decision = numbers.decision or batch.BatchDecision()
            cases = {
                number: plan.make_case(campaign.seed, number, decision.strategy_shares)
                for number in range(at, upto)
            }
            if begin.scheduled:
                done = run_scheduled(begin, plan, cases, decision, lab)
            else:
                done = testing.run_tests(
                    campaign, cases, lab, metamorphic=plan.metamorphic, further=plan.further
                )
            check_imports(done, lab.workers)
            lab.forget_all()
            self._rate = (upto - at) / (time.monotonic() - started + 1e-9)
            stopped = self._stop.is_set()
            lane_messages.send_message(
                self._connection,
                lane_messages.make_finished(done, upto, self._rate, stopped, cases=begin.needs_cases),
            )
            if stopped:
                return
            at = upto

    def _receive_questions(self) -> None:
        """Put incoming questions into the queue until the other side is gone."""
        while True:
            try:
                message: lane_messages.Message = lane_messages.receive_message(self._connection)
            except (EOFError, OSError):
                self._given.put(None)
                return self._alone()
            if isinstance(message, lane_messages.Stop):
                self._stop.set()
            elif isinstance(message, (lane_messages.NumberRange, lane_messages.Further)):
                self._given.put(message)


def _import_expected(workers: Workers, names: Sequence[str]) -> None:
    """Import the compilers that a campaign on these targets runs first."""
    # They are not targets; starting the campaign reports that.
    with suppress(BadInput):
        places = costs.read_stated([resolve(name) for name in names]).quick if names else ()
        _import_compilers(workers, tuple(names[place] for place in places))


def _import_compilers(workers: Workers, targets: Sequence[str]) -> None:
    """Import compilers while the first programs are made; import errors show up in their first test."""
    for name in targets:
        # Compilers are imported before the first test, so that their start is not counted as its time.
        with suppress(zygote.Unavailable, BadInput):
            workers.version(resolve(name))


def check_imports(tests: Iterable[FinishedTest], workers: Workers) -> None:
    """Raise Unavailable if a target lacked its compiler in a test: then no further test would be useful."""
    lacking = {name for test in tests for name, (word, _) in test.answers.items() if word == "environment"}
    for name in sorted(lacking):
        workers.version(resolve(name))


def choose_targets(campaign: Campaign, case: Case, first: tuple[str, ...]) -> tuple[str, ...]:
    """Choose the targets that run a program first: of the first ones those that take its IR, else all that
    do.
    """
    ir = case.program.ir
    taking = [name for name in campaign.targets if ir in resolve(name).irs]
    # An IR that no first target takes still gets all of those that do.
    return tuple(name for name in taking if name in first) or tuple(taking)


def run_scheduled(
    begin: lane_messages.Begin,
    plan: CampaignPlan,
    cases: dict[int, Case],
    decision: batch.BatchDecision,
    lab: ObservationCache,
) -> list[FinishedTest]:
    """Run tests on the first targets, except for known failures, and add the input of the schedule's
    decisions.
    """
    campaign, asked, left = begin.campaign, {}, {}
    has = {number: batch.list_features(case.program) for number, case in cases.items()}
    for number, case in cases.items():
        names = choose_targets(campaign, case, begin.first)
        found = {
            name: batch.choose_skipped_feature(campaign.seed, number, name, has[number], decision.known)
            for name in names
        }
        left[number] = {name: feature for name, feature in found.items() if feature}
        asked[number] = [name for name in names if name not in left[number]]
    return [
        replace(
            test,
            ir=cases[test.number].program.ir,
            features=has[test.number],
            states=cases[test.number].origin.states,
            left_out=left[test.number],
        )
        for test in testing.run_tests(
            campaign, cases, lab, metamorphic=plan.metamorphic, further=plan.further, asked=asked
        )
    ]


def serve_connection(connection: socket.socket, targets: Sequence[str], alone: Callable[[], None]) -> None:
    """Serve as the lane at this end of a connection, and send errors over it."""
    try:
        Lane(connection, targets, alone).run_loop()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except BadInput as error:
        lane_messages.send_message(connection, lane_messages.Failed(str(error)))
    except zygote.Unavailable as error:
        lane_messages.send_message(
            connection,
            lane_messages.Failed(f"{error}; leave that target out, or install it (see opsieve doctor)"),
        )
    except Exception:  # noqa: BLE001
        # The main process says it
        lane_messages.send_message(
            connection,
            lane_messages.Failed(f"a fault of opsieve ended a lane: {traceback.format_exc()[-2000:]}"),
        )


def main() -> None:
    """Serve the socket whose descriptor is the argument."""
    # an interrupt of the terminal is the main process's to answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shared_zygotes.ZYGOTES.share_as(sys.argv[2])
    serve_connection(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:], lambda: os._exit(0))


if __name__ == "__main__":
    main()
