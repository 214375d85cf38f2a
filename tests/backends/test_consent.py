"""What only a file names is not installed without a yes, and the folder that releases run from is the user's
own.
"""

import json
from pathlib import Path

import pytest
from commands import opsieve
from models import X, chain

from opsieve.backends.registry import resolve
from opsieve.backends.releases import consent
from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.releases.releases import ReleaseStore, check_private
from opsieve.gen.case.case import Case, save
from opsieve.gen.errors import BadInput, Unconfirmed

TARGET = "onnxruntime==1.20.1"


@pytest.fixture(autouse=True)
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "releases"))
    monkeypatch.delenv(consent.SWITCH, raising=False)
    return tmp_path / "releases"


def installed(store: Path) -> None:
    (store / "onnxruntime-1.20.1-cp311").mkdir(parents=True)
    facts = {"package": "onnxruntime", "release": "1.20.1", "python": [3, 11, 7]}
    (store / "onnxruntime-1.20.1-cp311" / "opsieve.json").write_text(json.dumps(facts))


def test_a_release_that_a_file_names_wants_a_yes() -> None:
    with pytest.raises(
        Unconfirmed, match=r"the case names onnxruntime==1\.20\.1.*made with.*opsieve 9"
    ) as refused:
        named_by_file(TARGET, recorded={"opsieve": "9"})
    assert refused.value.question.startswith("The case names")
    assert named_by_file("onnxruntime") == "onnxruntime"
    assert named_by_file(TARGET, offline=True) == TARGET  # then nothing is installed
    with consent.give_consent():
        assert named_by_file(TARGET) == TARGET


def test_a_case_with_an_empty_target_is_asked_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Case(chain("Relu"), X, parameters={"target": ""}), tmp_path / "case")
    code, _, err = opsieve("reduce", tmp_path / "case", capsys=capsys)
    assert code == 2
    assert "names an empty target; name one with --target" in err


def test_one_that_is_there_wants_none(empty_store: Path) -> None:
    installed(empty_store)
    assert named_by_file(TARGET) == TARGET


@pytest.mark.parametrize("command", ["reduce", "attribute", "export", "bisect --commits . --good a --bad b"])
def test_a_case_installs_nothing(
    command: str, tmp_path: Path, empty_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Case(chain("Relu"), X, parameters={"target": TARGET}), tmp_path / "case")
    code, _, err = opsieve(*command.split(), tmp_path / "case", capsys=capsys)
    assert code == 2
    assert "the case names onnxruntime==1.20.1, which is not installed here" in err
    assert not empty_store.exists()


def test_install_consents_to_that_release_alone() -> None:
    with consent.give_consent(["onnxruntime==1.20.1:basic", "tvm==0.20.0"]):
        assert named_by_file(f"{TARGET}:all") == f"{TARGET}:all"
        assert named_by_file("tvm==0.20.0")
        for other in ("onnxruntime==1.20", "onnxruntime==1.21.0", "tvm==1.20.1", "openvino==2025.0.0"):
            with pytest.raises(Unconfirmed):
                named_by_file(other)
    with pytest.raises(Unconfirmed):
        named_by_file(TARGET)
    for text, sentence in (("onnxruntime", "--install names a release"), ("yes==1.0", "there is no backend")):
        with pytest.raises(BadInput, match=sentence):
            consent.give_consent([text])


@pytest.mark.slow(seconds=5)
def test_install_on_the_command_line_is_for_what_the_case_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Case(chain("Relu"), X, parameters={"target": "onnxruntime==0.0.1"}), tmp_path / "case")
    words = ("export", tmp_path / "case", "-o", tmp_path)
    for options, sentence in (
        ((), "--yes installs it"),
        (("--install", "onnxruntime==0.0.2"), "--yes installs it"),
    ):
        code, _, err = opsieve(*words, *options, capsys=capsys)
        assert (code, sentence in err) == (2, True)
    code, _, err = opsieve(*words, "--install", "onnxruntime==0.0.1", capsys=capsys)
    # There is no such release: it was looked for.
    assert (code, "not judged: onnxruntime==0.0.1: environment: " in err) == (2, True)


@pytest.mark.parametrize("word", ["install", "yes"])
def test_the_file_of_a_directory_gives_no_consent(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Case(chain("Relu"), X), tmp_path / "case")
    (tmp_path / "opsieve.toml").write_text(f'targets = ["{TARGET}"]\n')
    code, _, err = opsieve("run", "case", capsys=capsys)
    assert (code, f"opsieve.toml names {TARGET}, which is not installed here" in err) == (2, True)
    value = "true" if word == "yes" else f'["{TARGET}"]'
    (tmp_path / "opsieve.toml").write_text(f"[export]\n{word} = {value}\n")
    code, _, err = opsieve("export", "case", capsys=capsys)
    assert (code, "only the command line sets it" in err) == (2, True)


def test_the_folder_of_releases_is_private(empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_private(empty_store)
    assert empty_store.stat().st_mode & 0o777 == 0o700
    empty_store.chmod(0o777)
    check_private(empty_store)
    assert empty_store.stat().st_mode & 0o777 == 0o755
    owner = empty_store.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    if owner == 0:  # root may own what others run, but not where anybody writes
        check_private(empty_store)
        empty_store.chmod(0o777)
    with pytest.raises(BadInput, match="files would be executed"):
        ReleaseStore().environment(resolve("onnxruntime").backend, "1.20.1")
