"""`make fuzz-self` finds what it is there for."""

from pathlib import Path

import pytest
import self_fuzz
from test_readers import READERS, Reader

from opsieve.gen.errors import BadInput


def faulty(at: Path) -> None:
    text = (at / "f").read_bytes()
    if len(text) < 3:
        raise ZeroDivisionError("ours")
    if len(text) > 9:
        raise BadInput("two\nlines")


def test_what_is_no_sentence_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sound").mkdir()
    (tmp_path / "sound" / "f").write_bytes(b"sound")
    monkeypatch.setitem(READERS, "faulty", Reader(lambda at: None, "f", (), faulty))
    found = [
        self_fuzz.answered("faulty", tmp_path / "sound", Path("f"), content, "0", tmp_path)
        for content in (b"fine", b"", b"much too long")
    ]
    assert [item and item.what.partition(" at ")[0] for item in found] == [
        None,
        "ZeroDivisionError",
        "no sentence",
    ]


def test_a_seed_gives_the_same_file(tmp_path: Path) -> None:
    READERS["case.json"].make(tmp_path)
    sound = (tmp_path / "case" / "case.json").read_bytes()
    made = {self_fuzz.content_of(READERS["case.json"], sound, f"0 {at}") for at in range(30)}
    assert len(made) > 20
    assert made == {self_fuzz.content_of(READERS["case.json"], sound, f"0 {at}") for at in range(30)}
