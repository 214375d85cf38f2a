"""Tables of what compilers have: those that come with the package, the nearest of a version, levels of one
wheel, answers of one's own.
"""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from opsieve.backends.probing import support_tables
from opsieve.backends.probing.operator_support import ProbeAnswer
from opsieve.backends.probing.prober import Prober, make_tables, strip_level
from opsieve.backends.probing.support_tables import (
    FOLDER,
    SupportTable,
    compute_distance,
    get_file_name,
    pack_table,
    read_table,
    unpack_table,
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
    assert unpack_table(pack_table(table)) == table


@given(st.binary(max_size=99))
def test_what_is_no_table_is_refused(data: bytes) -> None:
    for hostile in (data, pack_table(SupportTable("a", "1", "", None, ()))[: len(data)]):
        with pytest.raises(ValueError, match="no table of operators"):
            unpack_table(hostile)


def test_every_table_that_comes_with_the_package_can_be_read() -> None:
    paths = sorted(FOLDER.iterdir())
    assert paths
    for path in paths:
        table = read_table(path)
        assert path.name == get_file_name(table)
        assert table.backend in names()
        assert path.stat().st_size < 128 << 10
        told = next(answer for answer in table.answers if answer.signature.startswith("Relu "))
        assert form("Relu", int(told.probe.split()[-2])) is not None


def test_the_nearest_version_is_that_of_the_nearest_numbers() -> None:
    there = ("1.20.1", "1.22.0", "2.0.0")
    nearest = {
        wished: min(there, key=lambda name: compute_distance(name, wished))
        for wished in ("1.19", "1.21.9", "1.99", "3")
    }
    assert nearest == {"1.19": "1.20.1", "1.21.9": "1.20.1", "1.99": "1.22.0", "3": "2.0.0"}


def test_levels_of_one_wheel_share_what_was_answered_and_a_level_is_an_option_of_the_baseline(
    workers: Workers, tmp_path: Path
) -> None:
    assert strip_level(resolve("onnxruntime:disable_all")) == resolve("onnxruntime")
    erf = resolve("fake:unsupported@Erf")
    assert strip_level(erf) == erf
    wanted = Prober(workers, erf, tmp_path).list_wanted(("Erf",), ("float32",))
    list(Prober(workers, erf, tmp_path).run_probes(wanted))
    level = resolve("fake:unsupported@Erf,level=off")
    assert not Prober(workers, level, tmp_path).list_missing(wanted)
    assert Prober(workers, level, tmp_path).get_support(wanted).reasons
    assert Prober(workers, resolve("fake"), tmp_path).list_missing(wanted) == wanted


def test_a_version_that_nobody_probed_begins_with_the_nearest_ones_until_it_is_asked(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Prober(workers, resolve("fake"), tmp_path).list_wanted(("Erf",), ("float32",))[0]
    refused = (
        ProbeAnswer(probe.name, "Erf 13 float32", 1, "unsupported", "no"),
        ProbeAnswer(probe.name, "", 0, "done", ""),
    )
    table = SupportTable("fake", "0.0.1", "2026-11-22", None, refused)
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / get_file_name(table)).write_bytes(pack_table(table))
    monkeypatch.setattr(support_tables, "FOLDER", tmp_path / "shipped")
    prober = Prober(workers, resolve("fake"), tmp_path)
    assert prober.of_another == "fake 0.0.1"
    assert prober.get_support().reasons == {"Erf 13 float32": "no"}
    assert prober.list_missing([probe]) == [probe]
    list(prober.run_probes([probe]))
    assert not prober.get_support().reasons


def test_a_table_is_made_anew_and_written(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "cache"))
    few = Prober(workers, resolve("fake"), tmp_path).list_wanted(("Erf",), ("float32",))
    monkeypatch.setattr(Prober, "list_wanted", lambda self: few)
    told: list[tuple[str, int, int]] = []
    (made,) = make_tables(
        workers, [resolve("fake:level=off")], tmp_path / "out", lambda *how: told.append(how)
    )
    (file,) = (tmp_path / "out").iterdir()
    assert unpack_table(file.read_bytes()) == made
    assert told[-1] == ("fake", len(few), len(few))
    assert not (tmp_path / "cache").exists()
