"""Cases of a store reduced on the workers of a Dask cluster: a case travels there, what is left of it comes back."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from opsieve.gen.model.bad_input import BadInput, shown
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import read_file
from opsieve.reducer.case_child import ChildEnd, ChildTask, ended
from opsieve.reducer.store_session import RESULT
from opsieve.triage.cluster.cluster import Cluster
from opsieve.triage.cluster.remote_lane import installed

_MOST = 256 << 20  # bytes of the files of a case

Files = Mapping[str, bytes]


class ClusterReducer:
    """Reduces cases on a cluster, as `case_child.ended` does here."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    def __call__(self, case: Path, output: Path, task: ChildTask, given_up: threading.Event) -> ChildEnd:
        """Reduce the case in a folder on a worker, and write what comes back into another one."""
        try:
            given = files_of(case), files_of(output) if output.is_dir() else {}
            end, left = self._cluster.done(given_up, reduce_there, *given, task)
        except (BadInput, EOFError) as error:
            if given_up.is_set():
                return ChildEnd(130, "", "", False)
            return ChildEnd(2, "", str(error), True)
        for name, data in left.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                return ChildEnd(2, "", "the worker sent a path that leaves the folder", True)
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(output / name, data)
        assert isinstance(end, ChildEnd)
        return end


def reduce_there(case: Files, kept: Files, task: ChildTask) -> tuple[ChildEnd, dict[str, bytes]]:
    """On a worker: the case of these files, begun with what was `kept` of an earlier turn; what is left of it."""
    with tempfile.TemporaryDirectory() as folder:
        place, output = Path(folder) / "case", Path(folder) / "reduced"
        for where, files in ((place, case), (output, kept)):
            for name, data in files.items():
                (where / name).parent.mkdir(parents=True, exist_ok=True)
                (where / name).write_bytes(data)
        end = ended(place, output, task, threading.Event())
        return end, files_of(output) if output.is_dir() else {}


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a case by their path in it, without links and what was made of the case. BadInput where they are too large to be sent."""
    found: dict[str, bytes] = {}
    room = _MOST
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != RESULT]
        for path in (Path(place) / name for name in names):
            if path.is_symlink() or not path.is_file():
                continue
            data = found[path.relative_to(folder).as_posix()] = read_file(path, room)
            room -= len(data)
            if room <= 0:
                raise BadInput(f"{shown(folder, 200)} is too large to be sent to a cluster")
    return found


@contextmanager
def cluster_reducer(
    address: str, targets: Sequence[str], resources: Mapping[str, float], say: Callable[[str], None]
) -> Iterator[tuple[int, ClusterReducer]]:
    """How many cases the cluster at an address can reduce at once, and what does it. BadInput."""
    with Cluster(address, installed(targets), resources, say) as cluster:
        yield cluster.threads(), ClusterReducer(cluster)
