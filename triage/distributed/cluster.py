"""Run the tests of a campaign on an existing Dask cluster: programs are made, run and judged there, and
stored here.

Each lane of the pool is a thread here that sends one question at a time as a task. Workers with another
generator or other compilers than this process are left out. Dask replaces lost workers; the tests of a lost
lane are repeated.

https://distributed.dask.org/en/stable/ ; Dask pickles its messages: a scheduler and its workers trust each
other.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from opsieve.gen.errors import BadInput, format_install_command, shown
from opsieve.triage.campaign import lane_messages, lane_spawn
from opsieve.triage.distributed import remote_lane
from opsieve.triage.distributed.remote_lane import Installed
from opsieve.triage.store.finished_test import Campaign

# Seconds
_CONNECT = 10.0
# Seconds between two looks which workers are there: each is a question to the scheduler
_LOOK = 5.0
# What a client raises whose scheduler is gone: it has no connection to ask, no key in the answer.
_GONE = (OSError, TimeoutError, AttributeError, KeyError, RuntimeError)
# Seconds that a campaign waits for a first worker, or for one in place of the last
_WAIT = 30.0


@contextmanager
def open_lanes(
    address: str, campaign: Campaign, resources: Mapping[str, float], say: Callable[[str], None]
) -> Iterator[tuple[int, lane_spawn.Spawn]]:
    """Yield the number of lanes that the cluster can have, and a function that starts one; they end with the
    context.

    Raises:
        BadInput: If the cluster cannot be used.
    """
    with Cluster(address, remote_lane.describe_installed(campaign.targets), resources, say) as cluster:
        try:
            yield cluster.count_threads(), cluster.make_spawn(campaign.id)
        finally:
            cluster.run_everywhere(remote_lane.end_lanes, campaign.id)


class Cluster:
    """A connection to a scheduler, `tcp://...` or `tls://...`; use it as a context manager.

    It uses the workers that have the installation in `here` and these amounts of Dask's `resources`, and
    reports the others with reasons through `say`.

    Raises BadInput if the scheduler is silent, or Dask is missing.
    """

    def __init__(
        self, address: str, here: Installed, resources: Mapping[str, float], say: Callable[[str], None]
    ):
        # Dask's client waits half a minute for such an address, and prints a traceback when it gives up.
        if not re.fullmatch(r"([a-z]+://)?[^/\s]+:\d{1,5}", address):
            raise BadInput(
                f"{shown(address, 100)} is not the address of a scheduler: write tcp://HOST:PORT, which dask"
                " scheduler prints"
            )
        try:
            from distributed import Client
        except ImportError:
            raise BadInput(f"--scheduler needs Dask: {format_install_command('opsieve[cluster]')}") from None
        self.address = address
        self._say = say
        self._known: dict[
            str, str
        ] = {}  # workers that were asked, and why they are left out: "" where they are not
        self._found: list[str] = []
        # When they were found
        self._looked = -math.inf
        self._lock = threading.Lock()
        self._here, self._resources = here, resources
        try:
            self._client: Any = Client(  # type: ignore[no-untyped-call]
                address, timeout=_CONNECT, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise BadInput(
                f"no scheduler answers at {shown(address, 100)} ({said}); start one with: dask scheduler"
            ) from None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close(timeout=_CONNECT)

    def require_installed(self, here: Installed) -> None:
        """Use only workers that have this installation from now on."""
        with self._lock:
            self._here, self._known, self._looked = here, {}, -math.inf

    def count_threads(self) -> int:
        """Count the tests that its workers can do at once.

        Raises:
            BadInput: If no worker is usable.
        """
        fitting = self.list_usable()
        if not fitting:
            why = "; ".join(f"{address}: {why}" for address, why in list(self._known.items())[:3])
            raise BadInput(
                f"no worker of {shown(self.address, 100)} can do these tests:"
                f" {why or 'it has none; start one with dask worker'}"
            )
        return sum(threads for address, threads in self._client.nthreads().items() if address in fitting)

    def list_usable(self) -> list[str]:
        """List the usable workers, at most a few seconds old; new workers are checked."""
        with self._lock:
            if self._found and time.monotonic() - self._looked < _LOOK:
                return self._found
            with self._translate_errors():
                # All of them (-1), whatever the default of Dask's release is.
                workers = self._client.scheduler_info(n_workers=-1)["workers"]
            new = [address for address in workers if address not in self._known]
            for address, has in self._check_workers(new).items():
                why = _explain_lack(has, self._here) or _find_missing_resource(
                    workers[address].get("resources", {}), self._resources
                )
                self._known[address] = why
                if why:
                    self._say(f"worker {address} is left out: {why}")
            self._found = [address for address in workers if self._known.get(address) == ""]
            self._looked = time.monotonic()
            return self._found

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise BadInput if the client can no longer reach its scheduler."""
        try:
            yield
        except _GONE:
            raise BadInput(f"the scheduler at {shown(self.address, 100)} is gone") from None

    def _check_workers(self, workers: Sequence[str]) -> dict[str, Installed | str]:
        """Return the installations of workers, or why they are unknown."""
        if not workers:
            return {}
        asked = list(self._here.versions)
        with self._translate_errors():
            found = self._client.run(
                remote_lane.describe_installed, asked, workers=list(workers), on_error="return"
            )
        return {
            address: answer if isinstance(answer, Installed) else f"{type(answer).__name__}: {answer}"
            for address, answer in found.items()
        }

    def make_spawn(self, campaign: str) -> lane_spawn.Spawn:
        """Return a function that starts a lane of a campaign, for `LanePool`."""

        return lambda: ClusterLane(self, campaign)

    def run_task(self, given_up: threading.Event, function: Callable[..., Any], *given: Any) -> Any:
        """Run a function of a module on one of the workers and return its result.

        Raises:
            BadInput: If every worker is gone.
            EOFError: If it raised an error, its worker was lost repeatedly, or the answer is no longer
            wanted.
        """
        from distributed import TimeoutError as Late

        fitting = self.list_usable()
        if not fitting:
            given_up.wait(_WAIT)
            fitting = self.list_usable()
        if not fitting:
            raise BadInput("no worker of the cluster is left that can do this")
        with self._translate_errors():
            task = self._client.submit(
                function,
                *given,
                workers=fitting,
                allow_other_workers=False,
                # Equal questions are asked again on purpose, and Dask would return the earlier answer.
                pure=False,
                resources=dict(self._resources) or None,
            )
        try:
            # In slices, so that the end of the campaign is noticed while a task runs.
            while not given_up.is_set():
                try:
                    return task.result(timeout=_LOOK)
                except Late:
                    # those that may do it are gone, others may be there
                    if not set(fitting) & set(self.list_usable()):
                        break
            raise EOFError("given up")
        except Exception as error:  # noqa: BLE001
            # Whatever the task or Dask says, there is no answer
            raise EOFError(str(error)) from None
        finally:
            # The scheduler may be gone, which is why the task is cancelled.
            with suppress(*_GONE):
                task.cancel()

    def run_everywhere(self, function: Callable[[str], None], owner: str) -> None:
        """Let each worker end the processes it keeps for a campaign or reduction."""
        # Unreachable workers end by themselves.
        with suppress(*_GONE):
            self._client.run(function, owner, on_error="ignore")


class ClusterLane:
    """The pool's side of a lane on a cluster: a question is a task of a few seconds."""

    def __init__(self, cluster: Cluster, campaign: str):
        self._cluster, self._campaign = cluster, campaign
        self._given_up = threading.Event()
        self._begin = b""

    def send_begin(self, message: lane_messages.Begin) -> None:
        """Keep the message that describes the campaign; it is sent before every task."""
        self._begin = lane_messages.encode_message(message)

    def iter_answers(self, question: lane_messages.Question) -> Iterator[lane_messages.Answer]:
        """Yield a worker's answers.

        Raises:
            BadInput: If every worker is gone.
            EOFError: If the task is lost.
        """
        given = self._campaign, self._begin, lane_messages.encode_message(question)
        for frame in self._cluster.run_task(self._given_up, remote_lane.answer_question, *given):
            # A lane sends answers only
            yield lane_messages.decode_message(frame)  # type: ignore[misc]

    def send_stop(self) -> None:
        """Let the task end by itself."""

    def end_lane(self) -> int:
        """Stop waiting for an answer."""
        self._given_up.set()
        return 0


def _explain_lack(has: Installed | str, here: Installed) -> str:
    """Explain why a worker cannot do the tests; "" if it can."""
    if isinstance(has, str):
        return f"opsieve cannot be asked there ({shown(has, 200)})"
    if has.generator != here.generator:
        return (
            f"its generator is {has.generator}, here it is {here.generator}: install the same opsieve and"
            " onnx"
        )
    for name, why in has.missing.items():
        return f"{name}: {shown(why, 200)}"
    for name, version in here.versions.items():
        if has.versions[name] != version:
            return f"{name} is {has.versions[name]} there and {version} here"
    return ""


def _find_missing_resource(amounts: Mapping[str, float], wanted: Mapping[str, float]) -> str:
    """Name the resource that a worker lacks, or ""."""
    for name, amount in wanted.items():
        if amounts.get(name, 0) < amount:
            return f"it has no {name}={amount:g} (dask worker --resources {name}={amount:g})"
    return ""
