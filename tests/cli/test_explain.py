"""`opsieve explain` as a user types it."""

import json
from pathlib import Path

import pytest
from commands import opsieve
from stores import done, filled, finding


def test_a_rule_and_a_verdict_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (("jump", "jump (rule): Pass: behind a discontinuity"), ("flaky", "flaky (verdict)")):
        code, out, err = opsieve("explain", name, "--store", tmp_path / "none", capsys=capsys)
        assert (code, err) == (0, "")
        assert said in out
    code, out, _ = opsieve("explain", "memory", "--json", capsys=capsys)
    assert [each["what"] for each in json.loads(out)["meanings"]] == ["kind", "oracle"]


def test_a_fingerprint_of_a_store_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(tmp_path / "s", [done(0, finding("no kernel", frames=["main", "f"]))])
    code, out, _ = opsieve("explain", "c1", "--store", store, "--json", capsys=capsys)
    (told,) = json.loads(out)["fingerprints"]
    assert (code, bool(told["components"])) == (0, True)
    code, out, _ = opsieve("explain", told["key"], "--store", store, capsys=capsys)
    assert code == 0
    assert told["key"] in out
    assert "counts: " in out


@pytest.mark.parametrize(("name", "said"), [("jmp", "did you mean jump?"), ("qwertz", "is not a verdict")])
def test_a_name_that_means_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    code, out, err = opsieve("explain", name, "--store", tmp_path / "none", capsys=capsys)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
