"""What asks onnx's C++ about a strange model, beside workers, can reach nothing: files, network,
processes.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from opsieve.backends.workers.inside import landlock
from opsieve.backends.workers.sandbox.helper_walls import drop_rights


def denied(act: Callable[[], object]) -> bool:
    """Whether a child that gave up all it can is refused `act`."""
    child = os.fork()
    if not child:
        try:
            drop_rights()
            act()
        except OSError:
            os._exit(7)
        except BaseException:  # noqa: BLE001 a child of fork must not go on as the test
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.skipif(
    not landlock.get_version() or os.uname().machine != "x86_64", reason="the kernel has no means for it"
)
def test_a_helper_reaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("x")
    acts: tuple[Callable[[], object], ...] = (
        (tmp_path / "secret").read_text,
        lambda: (tmp_path / "new").write_text("x"),
        lambda: os.listdir("/"),
        lambda: socket.socket(socket.AF_INET),
        lambda: socket.socket(socket.AF_UNIX),
        os.fork,
        lambda: os.kill(os.getppid(), 0),
        lambda: os.execv("/bin/true", ["true"]),
    )
    assert [denied(act) for act in acts] == [True] * len(acts)
    monkeypatch.setenv("OPSIEVE_SANDBOX", "off")
    assert not denied((tmp_path / "secret").read_text)
