"""Every hostile input ends in one sentence, within bounded time and memory, and nothing outside its folder is
read.
"""

import json
import subprocess
import sys

import hostile
import hostile_inputs
import pytest

from opsieve.gen.case.case import open_case

# One process for all: a crash, a hang or a leak of any of them shows here and not in the test runner.
_READ = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from opsieve.gen.errors import BadInput
from opsieve.gen.case.case import open_case
from opsieve.gen.irs.onnx.model_file import check
for line in sys.stdin:
    path = json.loads(line)
    try:
        answer = ["checker", check(open_case(Path(path)).program.model)]
    except BadInput as error:
        answer = ["bad input", str(error)]
    except BaseException as error:
        answer = ["escaped", repr(error)]
    print(json.dumps(answer))
status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent, as it was when it forked
print(json.dumps(int(status.partition("VmHWM:")[2].split()[0])))
"""


@pytest.fixture(scope="module")
def answers(hostile_corpus):
    stream = "".join(json.dumps(str(path)) + "\n" for path, _ in hostile_corpus)
    done = subprocess.run(
        [sys.executable, "-c", _READ], input=stream, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    *found, peak = map(json.loads, done.stdout.splitlines())
    return [(why, *answer) for (_, why), answer in zip(hostile_corpus, found, strict=True)], peak


def test_there_are_enough_of_them(answers):
    found, _ = answers
    assert len(found) >= 400
    assert sum("flipped" in why or "truncated" in why for why, *_ in found) >= 200


def test_each_ends_in_one_sentence(answers):
    found, _ = answers
    assert [item for item in found if item[1] == "escaped"] == []
    assert [item for item in found if not item[2]] == []
    assert [item for item in found if len(item[2]) >= 400 or not item[2].isprintable()] == []


def test_the_checker_is_needed_only_for_what_python_cannot_know(answers):
    found, _ = answers
    assert {
        why for why, kind, _ in found if kind == "checker" and "flipped" not in why and "truncated" not in why
    } == set()


def test_memory_stays_bounded(answers):
    _, peak = answers
    assert peak < 600 << 10  # in KiB; importing onnx and numpy takes about 100 MB of it


def test_the_corpus_is_the_same_at_every_call(hostile_corpus, tmp_path):
    again = [(str(path.relative_to(tmp_path)), why) for path, why in hostile.corpus(tmp_path)]
    assert len(again) == len(hostile_corpus)
    for (path, why), (there, what) in zip(hostile_corpus, again, strict=True):
        assert what == why
        assert str(path).endswith(f"/{there}")


def test_functions_in_each_other_without_end_are_no_fault(tmp_path):
    (make,) = (make for what, make in hostile_inputs.models() if "3000 functions" in what)
    assert open_case(make(tmp_path)).program.model
