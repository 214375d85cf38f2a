"""Test a case on releases with the workers of a Dask cluster, which install the releases that they need."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from opsieve.backends import compare, registry
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.bisect.sources.outcome import Evaluate, VersionOutcome, evaluate
from opsieve.gen.case.case import Case, load, save
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.distributed.cluster import Cluster
from opsieve.triage.distributed.remote_lane import Files, describe_installed, pack_files, write_files


@contextmanager
def open_cluster_probes(
    address: str,
    resources: Mapping[str, float],
    limits: Limits,
    offline: bool,
    say: Callable[[str], None],
) -> Iterator[tuple[int, Evaluate]]:
    """Yield how many versions the cluster can try at once, and a function that tries one.

    Raises:
        BadInput: Also if every worker stays silent.
    """
    # Set at the end, so that no thread waits for a worker that is not needed any more.
    given_up = threading.Event()
    # Without targets, because every worker installs the releases itself.
    with Cluster(address, describe_installed(()), resources, say) as cluster:

        def evaluated(case: Case, target: registry.ResolvedTarget, policy: compare.Policy) -> VersionOutcome:
            # As files: a case travels in the form in which it is stored, and nothing is pickled.
            with tempfile.TemporaryDirectory() as folder:
                save(case, Path(folder) / "case")
                files = pack_files(Path(folder) / "case")
            try:
                found = cluster.run_task(
                    given_up, evaluate_files, files, str(target), policy, limits, offline
                )
            except EOFError as error:
                raise BadInput(
                    f"the cluster gives no answer for {target.display}: {shown(str(error), 300)}"
                ) from None
            assert isinstance(found, VersionOutcome)
            return found

        try:
            yield cluster.count_threads(), evaluated
        finally:
            given_up.set()


def evaluate_files(
    files: Files, target: str, policy: compare.Policy, limits: Limits, offline: bool
) -> VersionOutcome:
    """Evaluate the case in these files on a target; runs on a worker."""
    with tempfile.TemporaryDirectory() as folder, Workers(limits, offline=offline) as workers:
        write_files(files, Path(folder) / "case")
        return evaluate(
            load(Path(folder) / "case"), registry.resolve(target), ObservationCache(workers), policy
        )
