"""The version of a compiler beside opsieve, read without importing it."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from opsieve.backends.registry import resolve
from opsieve.backends.releases.installed import installed_version


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
