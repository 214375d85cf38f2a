"""Whether a compiler lies beside opsieve, and its version, learnt without importing it."""

import sys
from importlib import metadata
from pathlib import Path

import pytest
from models import X, chain

from opsieve.backends.registry import resolve
from opsieve.backends.releases.interpreters import find_missing_module, installed_version
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.shared_zygotes import SharedZygotes


def test_it_is_read_of_the_environment_only_where_the_backend_says_that_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = "onnxruntime" in sys.modules
    assert installed_version(resolve("onnxruntime:disable_all")) == metadata.version("onnxruntime")
    assert ("onnxruntime" in sys.modules) == loaded
    for other in ("onnxruntime==1.20.0", f"onnxruntime@{tmp_path}", "fake", "reference"):
        assert installed_version(resolve(other)) == ""
    (
        tmp_path / "onnxruntime"
    ).mkdir()  # a tree that hides the installed package: what workers import is another matter
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    assert installed_version(resolve("onnxruntime")) == ""
    monkeypatch.setattr(resolve("onnxruntime").backend, "package", "no-such-distribution")
    assert installed_version(resolve("onnxruntime")) == ""


def test_a_compiler_that_is_missing_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    zygotes = SharedZygotes()
    monkeypatch.setattr(zygotes, "take_zygote", lambda *_: pytest.fail("a process was started"))
    with Workers(zygotes=zygotes) as workers:
        observation = workers.observe(resolve("tinygrad"), chain("Relu"), X)
    assert observation.outcome == "environment"
    assert "cannot be imported here: ModuleNotFoundError: No module named 'tinygrad'" in observation.message
    assert "pip install 'opsieve[tinygrad]'" in observation.message


def test_only_what_an_extra_installs_can_be_missing_before_its_import() -> None:
    for target in ("onnxruntime", "tvm", "onnxsim", "fake", "reference"):
        assert find_missing_module(resolve(target).facts) == ""
