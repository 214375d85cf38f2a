"""Zygotes forked from a template process: each sees its own release, and all end with their parent or with
the main process.
"""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsieve.backends.workers.inside import wire
from opsieve.backends.workers.zygotes.zygote import Death, Limits, TemplateProcess, Unavailable, Zygote

BACKEND = """
class Compiler:
    def load(self):
        import compiler_under_test
        return compiler_under_test.VERSION

    def prepare(self, request):
        import compiler_under_test
        return lambda values: compiler_under_test.run()

BACKEND = Compiler()
"""
RELEASES = {
    "one": "VERSION = '1.0'\ndef run():\n    raise ValueError('one')\n",
    "two": "VERSION = '2.0'\ndef run():\n    import os; os.abort()\n",
    "broken": "raise ImportError('no such symbol')\n",
    "mute": "import os; os._exit(3)\n",
}


class Releases:
    """A template process of a made-up compiler, and zygotes of its releases."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "backend.py"
        self.file.write_text(BACKEND)
        for name, text in RELEASES.items():
            (folder / name).mkdir()
            (folder / name / "compiler_under_test.py").write_text(text)
        self.location = ("made_up", str(self.file), "BACKEND")
        self.template = TemplateProcess(self.location, Path(sys.executable), dict(os.environ))

    def zygote(self, name: str) -> Zygote:
        return Zygote(
            self.location,
            Path(sys.executable),
            [str(self.folder / name)],
            dict(os.environ),
            None,
            self.template,
        )


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    found = Releases(tmp_path)
    yield found
    found.template.close()
    assert os.listdir(scratch) == []


def ask(zygote: Zygote) -> object:
    """What a new worker of the zygote says of an empty test: the exception's message, or the signal that
    ended it.
    """
    worker = zygote.fork_worker(Limits(seconds=10.0))
    worker.submit_frame(
        [
            wire.encode_frame(
                {"tests": [{"model": 0, "span": 0, "inputs": {}, "options": {}, "repeat": 0}]}, []
            )
        ],
        1,
    )
    answer = worker.read_reply(10.0)
    if isinstance(answer, Death):
        return os.WTERMSIG(answer.status)
    worker.close()
    return answer[0]["message"]


def test_each_zygote_imports_its_own_release(releases: Releases) -> None:
    one, two = releases.zygote("one"), releases.zygote("two")
    assert (one.version, two.version) == ("1.0", "2.0")
    assert ask(one) == "one"
    assert ask(two) == signal.SIGABRT
    assert ask(one) == "one"
    one.close()
    assert not one.is_alive
    assert two.is_alive
    two.close()


def test_a_release_that_cannot_be_imported_harms_no_other(releases: Releases) -> None:
    with pytest.raises(Unavailable, match="no such symbol"):
        releases.zygote("broken")
    with pytest.raises(Unavailable, match="ended while importing"):
        releases.zygote("mute")
    one = releases.zygote("one")
    assert ask(one) == "one"
    one.close()


def test_zygotes_end_with_their_template_process(releases: Releases) -> None:
    one = releases.zygote("one")
    worker = one.fork_worker(Limits())
    watched = [os.pidfd_open(pid) for pid in (one._process.pid, worker.pid)]
    template = releases.template._zygote._process
    template.kill()
    template.wait(timeout=15)
    for ended in watched:
        assert select.select([ended], [], [], 10)[0]
        os.close(ended)
    assert not one.is_alive
    worker.close()
    one.close()
    with pytest.raises(Unavailable):
        releases.zygote("two")


def test_nothing_is_left_when_the_main_process_is_killed(releases: Releases) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from opsieve.backends.workers.zygotes.zygote import Limits, TemplateProcess, Zygote\n"
        "file, release = sys.argv[1:]\n"
        "facts = (('made_up', file, 'BACKEND'), Path(sys.executable))\n"
        "template = TemplateProcess(*facts, dict(os.environ))\n"
        "zygotes = [Zygote(*facts, [release], dict(os.environ), None, template) for _ in range(5)]\n"
        "workers = [zygote.fork_worker(Limits()) for zygote in zygotes]\n"
        "ours = [item._process.pid for item in (template._zygote, *zygotes)]\n"
        "print(*ours, *[worker.pid for worker in workers], flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(releases.file), str(releases.folder / "one")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tempfile.tempdir)},
    )
    assert process.stdout is not None
    watched = [os.pidfd_open(int(pid)) for pid in process.stdout.readline().split()]
    assert len(watched) == 11
    process.kill()
    process.communicate()
    for ended in watched:
        assert select.select([ended], [], [], 10)[0]
        os.close(ended)
