"""docs/how-to/add-a-backend.md, typed as it stands: the backend of a user's own package, its model and its
test.
"""

import os
import subprocess
import sys
from pathlib import Path

from plugged import blocks, installed, session
from repository import ROOT


def test_the_backend_of_the_page_passes_its_test_and_shows_the_crash(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "add-a-backend.md"
    backend, _, model, test = blocks(page, "python")
    package = installed(tmp_path, backend, *blocks(page, "toml"))
    (package / "make_model.py").write_text(f"import onnx\n{model}")
    (package / "test_it.py").write_text(test)
    (package / "pytest.ini").touch()  # else pytest looks for settings in the folders above
    for words in (["make_model.py"], ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=package,
            env={**os.environ, "PYTHONPATH": str(package)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (shown,) = session(package, "run model.onnx --target oopt --target oopt:optimise=off")
    assert "crash at compile" in shown
    assert "pass        oopt:optimise=off" in shown
