"""A case tried on releases by the workers of a Dask cluster, each of which installs the releases that it is
asked about.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from opsieve.backends.compare import Policy
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.sources.outcome import Evaluate, VersionOutcome, evaluate
from opsieve.gen.case.case import Case, load, save
from opsieve.gen.errors import BadInput, shown
from opsieve.triage.distributed.cluster import Cluster
from opsieve.triage.distributed.remote_lane import Files, files_of, installed, write_files


@contextmanager
def cluster_probes(
    address: str, resources: Mapping[str, float], offline: bool, say: Callable[[str], None]
) -> Iterator[tuple[int, Evaluate]]:
    """How many versions the cluster at an address can try at once, and what tries one. BadInput, also where
    no worker gives an answer.
    """
    given_up = threading.Event()
    with Cluster(address, installed(()), resources, say) as cluster:

        def evaluated(case: Case, target: ResolvedTarget, policy: Policy) -> VersionOutcome:
            with tempfile.TemporaryDirectory() as folder:
                save(case, Path(folder) / "case")
                files = files_of(Path(folder) / "case")
            try:
                found = cluster.done(given_up, outcome_there, files, str(target), policy, offline)
            except EOFError as error:
                raise BadInput(
                    f"the cluster gives no answer for {target.display}: {shown(str(error), 300)}"
                ) from None
            assert isinstance(found, VersionOutcome)
            return found

        try:
            yield cluster.threads(), evaluated
        finally:
            given_up.set()


def outcome_there(files: Files, target: str, policy: Policy, offline: bool) -> VersionOutcome:
    """On a worker: what the case of these files shows on a target."""
    with tempfile.TemporaryDirectory() as folder, Workers(offline=offline) as workers:
        write_files(files, Path(folder) / "case")
        return evaluate(load(Path(folder) / "case"), resolve(target), ObservationCache(workers), policy)
