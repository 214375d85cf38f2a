"""Tables of what compilers have: those that come with the package, the nearest of a version, levels of one
wheel, answers of one's own.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsieve.backends.probing import support_tables
from opsieve.backends.probing.operator_support import ProbeAnswer
from opsieve.backends.probing.prober import Prober, make_tables, wheel
from opsieve.backends.probing.support_tables import (
    FOLDER,
    SupportTable,
    distance,
    file_name,
    packed,
    read,
    unpacked,
)
from opsieve.backends.registry import names, resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.declarations.catalogue import form

ANSWERS = st.builds(
    ProbeAnswer, st.text(max_size=9), st.text(max_size=9), st.integers(0, 8), st.text(max_size=9), st.text()
)


@given(st.lists(ANSWERS, max_size=9))
def test_a_table_is_read_back(answers: list[ProbeAnswer]) -> None:
    table = SupportTable("onnxruntime", "1.2.3", "2026-11-22", ("float32",), tuple(answers))
    assert unpacked(packed(table)) == table


@given(st.binary(max_size=99))
def test_what_is_no_table_is_refused(data: bytes) -> None:
    for hostile in (data, packed(SupportTable("a", "1", "", None, ()))[: len(data)]):
        with pytest.raises(ValueError, match="no table of operators"):
            unpacked(hostile)


def test_every_table_that_comes_with_the_package_can_be_read() -> None:
    paths = sorted(FOLDER.iterdir())
    assert paths
    for path in paths:
        table = read(path)
        assert path.name == file_name(table)
        assert table.backend in names()
        assert path.stat().st_size < 128 << 10
        told = next(answer for answer in table.answers if answer.signature.startswith("Relu "))
        assert form("Relu", int(told.probe.split()[-2])) is not None


def test_the_nearest_version_is_that_of_the_nearest_numbers() -> None:
    there = ("1.20.1", "1.22.0", "2.0.0")
    nearest = {
        wished: min(there, key=lambda name: distance(name, wished))
        for wished in ("1.19", "1.21.9", "1.99", "3")
    }
    assert nearest == {"1.19": "1.20.1", "1.21.9": "1.20.1", "1.99": "1.22.0", "3": "2.0.0"}


def test_levels_of_one_wheel_share_what_was_answered_and_a_level_is_an_option_of_the_baseline(
    workers: Workers, tmp_path: Path
) -> None:
    assert wheel(resolve("onnxruntime:disable_all")) == resolve("onnxruntime")
    erf = resolve("fake:unsupported@Erf")
    assert wheel(erf) == erf
    wanted = Prober(workers, erf, tmp_path).wanted(("Erf",), ("float32",))
    list(Prober(workers, erf, tmp_path).run(wanted))
    level = resolve("fake:unsupported@Erf,level=off")
    assert not Prober(workers, level, tmp_path).missing(wanted)
    assert Prober(workers, level, tmp_path).support(wanted).reasons
    assert Prober(workers, resolve("fake"), tmp_path).missing(wanted) == wanted


def test_a_version_that_nobody_probed_begins_with_the_nearest_ones_until_it_is_asked(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Prober(workers, resolve("fake"), tmp_path).wanted(("Erf",), ("float32",))[0]
    refused = (
        ProbeAnswer(probe.name, "Erf 13 float32", 1, "unsupported", "no"),
        ProbeAnswer(probe.name, "", 0, "done", ""),
    )
    table = SupportTable("fake", "0.0.1", "2026-11-22", None, refused)
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / file_name(table)).write_bytes(packed(table))
    monkeypatch.setattr(support_tables, "FOLDER", tmp_path / "shipped")
    prober = Prober(workers, resolve("fake"), tmp_path)
    assert prober.of_another == "fake 0.0.1"
    assert prober.support().reasons == {"Erf 13 float32": "no"}
    assert prober.missing([probe]) == [probe]
    list(prober.run([probe]))
    assert not prober.support().reasons


def test_a_table_is_made_anew_and_written(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "cache"))
    few = Prober(workers, resolve("fake"), tmp_path).wanted(("Erf",), ("float32",))
    monkeypatch.setattr(Prober, "wanted", lambda self: few)
    told: list[tuple[str, int, int]] = []
    (made,) = make_tables(
        workers, [resolve("fake:level=off")], tmp_path / "out", lambda *how: told.append(how)
    )
    (file,) = (tmp_path / "out").iterdir()
    assert unpacked(file.read_bytes()) == made
    assert told[-1] == ("fake", len(few), len(few))
    assert not (tmp_path / "cache").exists()
