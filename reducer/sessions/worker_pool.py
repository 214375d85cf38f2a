"""Workers of one call, started while the rest of the program is still being imported: start-up is most of a
short reduction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.target import BadTarget
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits, Unavailable
from opsieve.gen.errors import BadInput

if TYPE_CHECKING:
    from opsieve.triage.distributed.remote_workers import Further

# Run first when no target is named
_USUAL = "onnxruntime"


class WorkerPool:
    """Sets of workers, `jobs` in all; the first starts the first target, the reference and the checker ahead.

    `say` gets a sentence about each step that takes long.
    """

    def __init__(
        self, limits: Limits, jobs: int, offline: bool, targets: Sequence[str], say: Callable[[str], None]
    ):
        self._stack = ExitStack()
        self.workers = [
            self._stack.enter_context(Workers(limits, offline=offline, say=say)) for _ in range(jobs)
        ]
        # A thread for each of the target, the checker and the reference: starting one takes seconds.
        pool = ThreadPoolExecutor(3)
        self._stack.callback(pool.shutdown)
        for target in (*_first(targets), resolve("checker"), resolve("reference")):
            pool.submit(_warm, self.workers[0], target)

    def __enter__(self) -> list[Workers]:
        return self.workers

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _warm(workers: Workers, target: ResolvedTarget) -> None:
    """Start the process that serves a target."""
    # Starting ahead hides the import of the compiler behind other work. Errors are reported where the target
    # is used.
    with suppress(Unavailable, BadInput):
        workers.version(target)


def _first(targets: Sequence[str]) -> list[ResolvedTarget]:
    """Return the target that is run first; an empty list if its name is invalid, which is reported later."""
    try:
        return [resolve(targets[0] if targets else _USUAL)]
    except BadTarget:
        return []


@contextmanager
def open_cluster(
    scheduler: str | None,
    resources: Mapping[str, float],
    jobs: int | None,
    here: Workers,
    say: Callable[[str], None],
) -> "Iterator[Further | None]":
    """Yield a function that makes workers on the named cluster, or None."""
    if scheduler is None:
        yield None
        return
    from opsieve.triage.distributed.remote_workers import open_remote_workers

    with open_remote_workers(scheduler, resources, jobs, here, say) as further:
        yield further
