"""Short scripts of issues, run in a process of their own."""

import subprocess
import sys
from pathlib import Path

from exported import exported

from opsieve.gen.model.text import ModelText
from opsieve.triage.export.issue import write_issue
from opsieve.triage.export.short_script import write_short_script


def test_a_small_model_without_exact_text_has_a_short_script_with_its_bytes(tmp_path: Path) -> None:
    """Onnx prints some values as dots; the issue shows the model beside the script."""
    made, text = exported(right=(0.0, 3.0)), ModelText("g (float[2] x) => ...", False)
    source = write_short_script(made, text)
    assert len(source.splitlines()) <= 22, source
    assert text.text in write_issue(made, text)
    (tmp_path / "repro.py").write_text(source)
    done = subprocess.run(
        [sys.executable, tmp_path / "repro.py"], capture_output=True, text=True, check=False
    )
    assert "AssertionError" in done.stderr
