"""The files of a case as they travel to a worker of a cluster and back."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.durable import write_file
from opsieve.gen.model.files import read_file

_MOST = 256 << 20  # bytes of the files of a case

Files = Mapping[str, bytes]


def files_of(folder: Path, but: str = "") -> dict[str, bytes]:
    """The files of a case by their path in it, without links and folders called `but`. BadInput where they
    are too large to be sent.
    """
    found: dict[str, bytes] = {}
    room = _MOST
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != but]
        for path in (Path(place) / name for name in names):
            if path.is_symlink() or not path.is_file():
                continue
            data = found[path.relative_to(folder).as_posix()] = read_file(path, room)
            room -= len(data)
            if room <= 0:
                raise BadInput(f"{shown(folder, 200)} is too large to be sent to a cluster")
    return found


def write_files(files: Files, folder: Path) -> None:
    """Write files into a folder. BadInput for a path that leaves it."""
    for name, data in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BadInput("the other side sent a path that leaves the folder")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / name, data)
