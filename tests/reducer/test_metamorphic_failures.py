"""Failures on programs that mean the same, from `run` and `fuzz` to the reduced script."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from commands import opsieve
from models import program

FAKE = "fake:wrong@Identity>Relu"
REWRITTEN = f"{FAKE},rewrite=insert-identities"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (
        """g (float[3, 4] x) => (float[3, 4] y) { a = Neg (x)  b = Relu (a)  c = Abs (b)  y = Sigmoid (c) }"""
    )
    path = tmp_path_factory.mktemp("metamorphic") / "chain.onnx"
    path.write_bytes(program(text, 18, 9).data)
    return path


@pytest.mark.slow(seconds=3)
def test_run_finds_it_and_reduce_keeps_it(
    chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "saved"
    code, out, _ = opsieve(
        "run", chain, "--target", FAKE, "--metamorphic", "--save", saved, "--json", capsys=capsys
    )
    results = {found["target"]: found for found in json.loads(out)["results"]}
    failed = [found for found in results.values() if found["verdict"] == "fail"]
    assert (code, [found["target"] for found in failed]) == (1, [REWRITTEN])
    assert failed[0]["kind"] == "metamorphic"
    assert failed[0]["fingerprint"].startswith("fake-metamorphic-")
    # No result is read twice, nothing is constant, and no operator is commutative.
    assert {name.partition("rewrite=")[2] for name in results} == {
        "", "insert-identities", "freeze-inputs", "add-outputs"
    }  # fmt: skip

    (case,) = saved.iterdir()
    reduced = tmp_path / "reduced"
    code, out, _ = opsieve("reduce", case, "-o", reduced, "--json", capsys=capsys)
    facts = json.loads(out)
    assert (code, facts["kind"], facts["target"]) == (0, "metamorphic", REWRITTEN)
    assert [node.op_type for node in onnx.load(reduced / "model.onnx").graph.node] == ["Relu"]
    # The script is for people without opsieve: the program in it is the one that the compiler was given.
    assert "Identity" in (reduced / "repro.py").read_text()
    script = subprocess.run(
        [sys.executable, reduced / "repro.py"], capture_output=True, text=True, check=False, env=os.environ
    )
    assert script.returncode == 1, script.stdout + script.stderr
    code, out, _ = opsieve("run", reduced, "--target", REWRITTEN, "--json", capsys=capsys)
    assert (code, json.loads(out)["results"][0]["kind"]) == (1, "metamorphic")


def test_a_campaign_finds_and_stores_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    arguments = (
        "fuzz",
        "--target",
        "fake:wrong@Identity",
        "--no-probe",
        "--seed",
        "1",
        "--store",
        store,
        "--strategy",
        "isra",
    )
    code, out, _ = opsieve(
        *arguments, "--nodes", "4", "--tests", "16", "--metamorphic", "--json", capsys=capsys
    )
    facts = json.loads(out)
    assert code == 1
    assert facts["failures"]["metamorphic"] >= 1
    _, out, _ = opsieve("clusters", "--store", store, "--json", capsys=capsys)
    assert "fake-metamorphic-" in out
    code, _, err = opsieve(
        "fuzz", "--store", store, "--resume", "--metamorphic", "--tests", "17", capsys=capsys
    )
    assert (code, "--metamorphic" in err) == (2, True)
    code, _, _ = opsieve("fuzz", "--store", store, "--resume", "--tests", "24", "--json", capsys=capsys)
    assert code == 1
