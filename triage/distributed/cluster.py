"""An existing Dask cluster that does the tests of a campaign: programs are made, run and judged there, the
store has one writer here.

Each lane of the pool is a thread here that sends one question at a time as a task. Workers that do not have
the same generator and the same compilers as this process are left out. A worker that is lost is Dask's to
replace; what its lane had begun is done again.

https://distributed.dask.org/en/stable/ ; Dask pickles what it sends: a scheduler and its workers trust each
other.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from opsieve.gen.errors import BadInput, shown
from opsieve.triage.campaign.lane_messages import Answer, Begin, Question, decode, encode
from opsieve.triage.campaign.lane_spawn import Spawn
from opsieve.triage.distributed import remote_lane
from opsieve.triage.distributed.remote_lane import Installed
from opsieve.triage.store.finished_test import Campaign

_CONNECT = 10.0  # seconds
_LOOK = 5.0  # seconds between two looks which workers are there: each is a question to the scheduler
# What a client raises whose scheduler is gone: it has no connection to ask, no key in the answer.
_GONE = (OSError, TimeoutError, AttributeError, KeyError, RuntimeError)
_WAIT = 30.0  # seconds that a campaign waits for a first worker, or for one in place of the last


@contextmanager
def cluster_lanes(
    address: str, campaign: Campaign, resources: Mapping[str, float], say: Callable[[str], None]
) -> Iterator[tuple[int, Spawn]]:
    """How many lanes of a campaign the cluster at an address can have, and what starts one; they end with the
    context. BadInput.
    """
    with Cluster(address, remote_lane.installed(campaign.targets), resources, say) as cluster:
        try:
            yield cluster.threads(), cluster.spawn(campaign.id)
        finally:
            cluster.each(remote_lane.end_lanes, campaign.id)


class Cluster:
    """A connection to a scheduler, `tcp://...` or `tls://...`; use it as a context manager.

    Of its workers those serve that have what is installed `here` and these amounts of Dask's `resources`;
    `say` hears which are left out, and why. BadInput where nobody answers, or Dask is not installed.
    """

    def __init__(
        self, address: str, here: Installed, resources: Mapping[str, float], say: Callable[[str], None]
    ):
        try:
            from distributed import Client
        except ImportError:
            raise BadInput("--scheduler needs Dask: pip install 'opsieve[cluster]'") from None
        self.address = address
        self._say = say
        self._known: dict[
            str, str
        ] = {}  # workers that were asked, and why they are left out: "" where they are not
        self._found: list[str] = []
        self._looked = -math.inf  # when they were found
        self._lock = threading.Lock()
        self._here, self._resources = here, resources
        try:
            self._client: Any = Client(address, timeout=_CONNECT, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, TypeError) as error:
            said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise BadInput(
                f"no scheduler answers at {shown(address, 100)} ({said}); start one with: dask scheduler"
            ) from None

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close(timeout=_CONNECT)

    def require(self, here: Installed) -> None:
        """From now on keep to workers that have what is installed here of further targets."""
        with self._lock:
            self._here, self._known, self._looked = here, {}, -math.inf

    def threads(self) -> int:
        """How many tests its workers can do at once. BadInput when there is none that can."""
        fitting = self.fitting()
        if not fitting:
            why = "; ".join(f"{address}: {why}" for address, why in list(self._known.items())[:3])
            raise BadInput(
                f"no worker of {shown(self.address, 100)} can do these tests:"
                f" {why or 'it has none; start one with dask worker'}"
            )
        return sum(threads for address, threads in self._client.nthreads().items() if address in fitting)

    def fitting(self) -> list[str]:
        """The workers that have what is needed, as of a look within the last seconds; those that came since
        the one before are asked.
        """
        with self._lock:
            if self._found and time.monotonic() - self._looked < _LOOK:
                return self._found
            with self._reached():
                workers = self._client.scheduler_info(n_workers=-1)["workers"]
            new = [address for address in workers if address not in self._known]
            for address, has in self._installed(new).items():
                why = _lacks(has, self._here) or _short_of(
                    workers[address].get("resources", {}), self._resources
                )
                self._known[address] = why
                if why:
                    self._say(f"worker {address} is left out: {why}")
            self._found = [address for address in workers if self._known.get(address) == ""]
            self._looked = time.monotonic()
            return self._found

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """BadInput where the client cannot reach its scheduler any more."""
        try:
            yield
        except _GONE:
            raise BadInput(f"the scheduler at {shown(self.address, 100)} is gone") from None

    def _installed(self, workers: Sequence[str]) -> dict[str, Installed | str]:
        """What workers have, or why they cannot tell."""
        if not workers:
            return {}
        asked = list(self._here.versions)
        with self._reached():
            found = self._client.run(remote_lane.installed, asked, workers=list(workers), on_error="return")
        return {
            address: answer if isinstance(answer, Installed) else f"{type(answer).__name__}: {answer}"
            for address, answer in found.items()
        }

    def spawn(self, campaign: str) -> Spawn:
        """What starts a lane of a campaign, as `LanePool` wants it."""

        return lambda: ClusterLane(self, campaign)

    def done(self, given_up: threading.Event, function: Callable[..., Any], *given: Any) -> Any:
        """What a function of a module gives on one of the workers. BadInput when no worker is left; EOFError
        when it raised an error, when its worker was lost again and again, or nobody wants the answer any
        more.
        """
        from distributed import TimeoutError as Late

        fitting = self.fitting()
        if not fitting:
            given_up.wait(_WAIT)
            fitting = self.fitting()
        if not fitting:
            raise BadInput("no worker of the cluster is left that can do this")
        with self._reached():
            task = self._client.submit(
                function,
                *given,
                workers=fitting,
                allow_other_workers=False,
                pure=False,
                resources=dict(self._resources) or None,
            )
        try:
            while not given_up.is_set():
                try:
                    return task.result(timeout=_LOOK)
                except Late:
                    # those that may do it are gone, others may be there
                    if not set(fitting) & set(self.fitting()):
                        break
            raise EOFError("given up")
        except Exception as error:  # noqa: BLE001 - whatever the task or Dask says, there is no answer
            raise EOFError(str(error)) from None
        finally:
            with suppress(*_GONE):
                task.cancel()

    def each(self, function: Callable[[str], None], owner: str) -> None:
        """Have each worker end what it keeps for a campaign or reduction."""
        with suppress(*_GONE):  # what cannot be reached ends by itself
            self._client.run(function, owner, on_error="ignore")


class ClusterLane:
    """The pool's side of a lane on a cluster: a question is a task, which is a few seconds long."""

    def __init__(self, cluster: Cluster, campaign: str):
        self._cluster, self._campaign = cluster, campaign
        self._given_up = threading.Event()
        self._begin = b""

    def begin(self, message: Begin) -> None:
        """Keep the message that every task is sent first: whose tests it does."""
        self._begin = encode(message)

    def ask(self, question: Question) -> Iterator[Answer]:
        """What a worker answers. BadInput when none is left, EOFError when the task is lost."""
        given = self._campaign, self._begin, encode(question)
        for frame in self._cluster.done(self._given_up, remote_lane.answers, *given):
            yield decode(frame)  # type: ignore[misc]  # a lane sends answers only

    def stop(self) -> None:
        """Let the task end by itself."""

    def end(self) -> int:
        """Wait for no answer any more."""
        self._given_up.set()
        return 0


def _lacks(has: Installed | str, here: Installed) -> str:
    """Why a worker cannot do the tests; "" when it can."""
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


def _short_of(amounts: Mapping[str, float], wanted: Mapping[str, float]) -> str:
    """Which resource a worker lacks; "" when none."""
    for name, amount in wanted.items():
        if amounts.get(name, 0) < amount:
            return f"it has no {name}={amount:g} (dask worker --resources {name}={amount:g})"
    return ""
