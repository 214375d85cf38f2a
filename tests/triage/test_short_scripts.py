"""Short scripts of issues, run in a process of their own, and whether a text is exact."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from exported import exported, model
from onnx import TensorProto, helper, parser

from opsieve.backends.registry import resolve
from opsieve.gen.model.text import ModelText, print_model
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


@pytest.mark.parametrize(
    ("kind", "data"), [("FLOAT16", b"\x00<"), ("BFLOAT16", b"\x80?"), ("FLOAT8E4M3FN", b"8")]
)
def test_a_text_is_exact_only_where_it_stores_narrow_floats_as_the_model_does(kind: str, data: bytes) -> None:
    """The parser writes them as the bits of an integer, which a compiler may read as their value."""
    stored = model()
    stored.graph.initializer.append(
        helper.make_tensor("w", TensorProto.DataType.Value(kind), [1], data, raw=True)
    )
    text = print_model(stored.SerializeToString())
    assert not text.exact
    assert print_model(parser.parse_model(text.text).SerializeToString()).exact


@pytest.mark.parametrize(("ir", "passes"), [("relax", ("FuseOps:1",)), ("tir", ("tirx.NarrowDataType:32",))])
@pytest.mark.parametrize("text", ["def main(): ...", 'R.call_packed("opsieve.copy_into")'])
def test_a_module_that_does_not_compile_needs_no_function_that_runs_it(
    ir: str, passes: tuple[str, ...], text: str
) -> None:
    target = resolve("tvm")
    program = SimpleNamespace(ir=ir, passes=passes, data=text.encode())
    brief = target.backend.brief  # type: ignore[attr-defined]  # of TVM's backend
    imports, lines = brief(target.options, set(), program, "compile")
    source = "\n".join([*imports, *lines])
    ast.parse(source)
    assert all(line.startswith(("import ", "from ")) for line in imports)
    assert re.search(r"module = \S*(FuseOps|NarrowDataType)\S*\)\(module\)", source)
    assert ("def copy_into" in source) == ("copy_into" in text and ir == "relax")
    assert "inputs" not in source
    assert len(lines) <= 14
    assert brief(target.options, set(), program, "run") == ([], [])
