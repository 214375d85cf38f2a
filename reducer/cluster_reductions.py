"""Cases of a store reduced on the workers of a Dask cluster: a case travels there, what is left of it comes
back.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from opsieve.gen.errors import BadInput
from opsieve.reducer.case_child import ChildEnd, ChildTask, ended
from opsieve.reducer.store_session import RESULT
from opsieve.triage.distributed.cluster import Cluster
from opsieve.triage.distributed.remote_lane import installed
from opsieve.triage.distributed.sent_files import Files, files_of, write_files


class ClusterReducer:
    """Reduces cases on a cluster, as `case_child.ended` does here."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def __call__(self, case: Path, output: Path, task: ChildTask, given_up: threading.Event) -> ChildEnd:
        """Reduce the case in a folder on a worker, and write what comes back into another one."""
        try:
            given = files_of(case, RESULT), files_of(output, RESULT) if output.is_dir() else {}
            end, left = self._cluster.done(given_up, reduce_there, *given, task)
            write_files(left, output)
        except (BadInput, EOFError) as error:
            if given_up.is_set():
                return ChildEnd(130, "", "", False)
            return ChildEnd(2, "", str(error), True)
        assert isinstance(end, ChildEnd)
        return end


def reduce_there(case: Files, kept: Files, task: ChildTask) -> tuple[ChildEnd, dict[str, bytes]]:
    """On a worker: the case of these files, begun with what was `kept` of an earlier turn; what is left of
    it.
    """
    with tempfile.TemporaryDirectory() as folder:
        place, output = Path(folder) / "case", Path(folder) / "reduced"
        for where, files in ((place, case), (output, kept)):
            write_files(files, where)
        end = ended(place, output, task, threading.Event())
        return end, files_of(output, RESULT) if output.is_dir() else {}


@contextmanager
def cluster_reducer(
    address: str, targets: Sequence[str], resources: Mapping[str, float], say: Callable[[str], None]
) -> Iterator[tuple[int, ClusterReducer]]:
    """How many cases the cluster at an address can reduce at once, and what does it. BadInput."""
    with Cluster(address, installed(targets), resources, say) as cluster:
        yield cluster.threads(), ClusterReducer(cluster)
