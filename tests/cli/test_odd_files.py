"""A FIFO, a socket or a device where a file or a folder is expected, for each command and option that takes a
path: a sentence, at once.
"""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import opsieve
from models import X, chain

from opsieve.gen.case.case import Case, save

COMMANDS = """
run ODD -t reference
run CASE -t reference --inputs ODD
run CASE -t reference --expected ODD
reduce ODD -t reference
reduce CASE -t reference --inputs ODD
import ODD -o OUT
triage --logs ODD
triage ODD
clusters --store ODD
index --store ODD
mark c1 known --store ODD
show ODD --store CASE
show c1 --store ODD
export ODD --as case -o OUT
metrics ODD
gen --strategy mutate --corpus ODD -o OUT
gen --origin ODD -o OUT
coverage show ODD
bisect ODD -t onnxruntime
attribute ODD -t onnxruntime
corpus run ODD
fuzz --store ODD --tests 1 -t reference
"""


@pytest.fixture
def in_time() -> Iterator[None]:
    """Ends a test that waits for whoever writes into a pipe."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_a_sentence(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Case(chain("Relu"), dict(X)), tmp_path / "case")
    if kind == "pipe":
        os.mkfifo("odd")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("odd")
    else:
        os.symlink("/dev/zero", "odd")
    wrong = []
    for line in COMMANDS.strip().splitlines():
        words = [{"ODD": "odd", "CASE": "case", "OUT": "out"}.get(word, word) for word in line.split()]
        code, out, err = opsieve(*words, capsys=capsys)
        if code != 2 or not 1 <= len(err.strip().splitlines()) <= 2:
            wrong.append(f"{line}: {code}: {out[-200:]} {err[-400:]}")
    assert not wrong, "\n".join(wrong)
