"""Probes in a small C library: what is reached is noted once, whatever the process then does."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opsieve.backends.coverage import machine_code, tracer
from opsieve.backends.coverage.elf import Library, Unreadable
from opsieve.backends.coverage.points import add_unstable, leaders, points_of, unstable
from opsieve.backends.coverage.sources import Names

SOURCE = """
#include <string.h>
static volatile int sink;
int twice(int x) { return 2 * x; }
int sign(int x) { if (x < 0) { sink = 1; return -1; } sink = 2; return x > 0; }
void die(int x) { twice(x); *(volatile int *)0 = x; }
void stop(void) { __asm__ volatile("int3"); }
const char *where(int x) { return x ? "/project/src/one/first.cc" : "/project/src/two/second.cc"; }
"""
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc") or "64" not in __import__("platform").machine(),
    reason="needs a C compiler on x86-64 Linux",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "small.c").write_text(SOURCE)
    made = folder / "libsmall.so"
    # The frames of its own that a linker adds (crtstuff) are of no interest: -nostartfiles.
    flags = [
        "-O1",
        "-shared",
        "-fPIC",
        "-nostartfiles",
        "-fno-inline",
        "-fasynchronous-unwind-tables",
        "-Wl,--build-id",
    ]
    subprocess.run(["cc", *flags, "small.c", "-o", made.name], cwd=folder, check=True)
    return made


def traced(library: Path, cache: Path, do: str, granularity: str = "functions") -> tuple[Any, list[str]]:
    """What the text `do` left in `answer` in a process of its own, and the names of the probes' functions."""
    points = points_of(library, granularity, cache)
    names = Names(Library(library))
    told = {"library": str(library), "points": str(points.file), "count": len(points.addresses), "do": do}
    script = Path(__file__).with_name("traced.py")
    run = subprocess.run(
        [sys.executable, script, tracer.__file__, json.dumps(told)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout), [names.symbol(names.function(int(at))) for at in points.addresses]


def test_a_function_is_noted_when_it_is_first_reached_and_costs_nothing_then(
    library: Path, tmp_path: Path
) -> None:
    do = (
        "probes.plant(); library.twice(3); library.sign(4); library.twice(5); answer = [numbers(),"
        " probes.counts[1]]"
    )
    (reached, traps), names = traced(library, tmp_path, do)
    assert sorted(names[at] for at in reached) == ["sign", "twice"]
    assert traps == 2


def test_what_a_crashed_child_reached_is_known(library: Path, tmp_path: Path) -> None:
    answer, names = traced(library, tmp_path, "probes.plant(); answer = child(lambda: library.die(1))")
    assert sorted(names[at] for at in answer["reached"]) == ["die", "twice"]
    assert answer["status"] & 127 == signal.SIGSEGV


def test_the_next_child_meets_no_probe_that_the_campaign_has_passed(library: Path, tmp_path: Path) -> None:
    do = "probes.plant(); first = child(lambda: library.twice(1)); left = probes.plant()\n"
    do += "answer = [left, told['count'], child(lambda: (library.twice(1), library.sign(1)))['reached']]"
    (left, count, reached), names = traced(library, tmp_path, do)
    assert left == count - 1
    assert [names[at] for at in reached] == ["sign"]


def test_only_the_first_process_that_reaches_a_probe_is_told_that_it_is_new(
    library: Path, tmp_path: Path
) -> None:
    do = (
        "probes.plant()\nfor _ in range(2):\n    child(lambda: library.twice(1))\n    new = [note >="
        " tracer.NEW for note in probes.notes()]\n"
    )
    do += "    answer = (answer if 'answer' in globals() else []) + [new]"
    answer, _ = traced(library, tmp_path, do)
    assert answer == [[True], [False]]


def test_all_that_a_run_reaches_can_be_asked_for_again_and_again(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("capstone")
    do = (
        "answer = []\nfor _ in range(3):\n    probes.begin_again(); library.sign(1); answer.append(numbers())"
    )
    answer, _ = traced(library, tmp_path, do, "blocks")
    assert answer[0] == answer[1] == answer[2]
    assert len(answer[0]) > 1


def test_blocks_tell_the_two_ways_through_a_function_apart(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("capstone")
    do = "answer = []\nfor x in (1, -1):\n    probes.begin_again(); library.sign(x); answer.append(numbers())"
    (positive, negative), _ = traced(library, tmp_path, do, "blocks")
    assert set(positive) - set(negative)
    assert set(negative) - set(positive)


def test_a_trap_of_the_program_itself_still_kills_it(library: Path, tmp_path: Path) -> None:
    answer, _ = traced(library, tmp_path, "probes.plant(); answer = child(library.stop)")
    assert answer["status"] & 127 == signal.SIGTRAP
    assert answer["foreign"] == 1
    assert answer["reached"] == []  # where an int3 stood already is no probe


def test_a_handler_that_was_there_before_still_gets_its_traps(library: Path, tmp_path: Path) -> None:
    do = (
        "import signal; seen = []; signal.signal(signal.SIGTRAP, lambda *_: seen.append(1)); probes.arm();"
        " probes.plant()\n"
    )
    do += "library.stop(); answer = [seen, probes.foreign]"
    answer, _ = traced(library, tmp_path, do)
    assert answer == [[1], 1]


def test_taken_away_probes_are_reached_unseen(library: Path, tmp_path: Path) -> None:
    answer, _ = traced(
        library, tmp_path, "probes.plant(); probes.clear(); library.twice(1); answer = numbers()"
    )
    assert answer == []


def test_the_machine_code_is_that_of_its_source_as_far_as_one_compiler_goes() -> None:
    """Another compiler may make other code of it; whether that behaves alike is what the other tests ask."""
    if not shutil.which("gcc") or not shutil.which("objcopy"):
        pytest.skip("needs gcc and binutils")
    for name, code in machine_code.compile_functions().items():
        assert (len(code) > 0) == (len(getattr(tracer, name.upper())) > 0)


def test_source_files_are_told_by_the_texts_that_a_function_loads(library: Path) -> None:
    of = Library(library)
    names = Names(of)
    by_name = {name: at for at, name in of.symbols.items()}
    assert names.source(by_name["where"]) in ("/project/src/one/first.cc", "/project/src/two/second.cc")
    assert names.source(by_name["twice"]) == ""


def test_points_are_kept_by_build_id(library: Path, tmp_path: Path) -> None:
    first = points_of(library, "functions", tmp_path)
    moved = tmp_path / "elsewhere.so"
    shutil.copy(library, moved)
    assert points_of(moved, "functions", tmp_path).file == first.file
    assert list(first.addresses) == sorted(first.addresses)


def test_unstable_probes_are_kept_and_added_to(library: Path, tmp_path: Path) -> None:
    points = points_of(library, "functions", tmp_path)
    assert list(unstable(points)) == []
    add_unstable(points, np.array([2]))
    add_unstable(points, np.array([0, 2]))
    assert list(unstable(points)) == [0, 2]


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + b"\0" * 12 + b"\x3e\0" + b"\xff" * 60]
)
def test_what_is_no_library_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(content)
    with pytest.raises(Unreadable, match=r"x\.so"):
        points_of(tmp_path / "x.so", "functions", tmp_path)


def test_leaders_are_the_entry_the_targets_and_what_follows_a_jump() -> None:
    code = [
        (10, 2, "cmp", "eax, 1"),
        (12, 2, "je", "0x12"),
        (14, 2, "inc", "eax"),
        (16, 2, "nop", ""),
        (18, 1, "ret", ""),
    ]
    assert leaders(iter(code), 10, 19) == [10, 14, 18]
    assert leaders(iter(code[:-1]), 10, 19) == [10]  # not swept to its end
