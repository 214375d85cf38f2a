"""Short scripts of issues, run in a process of their own, and whether a text is exact."""

import ast
import base64
import builtins
import re
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from exported import exported, model
from hypothesis import given, strategies as st
from onnx import TensorProto, helper, parser
from repository import SAMPLES

from opsieve.backends.compilers.tvm_script import write_list
from opsieve.backends.registry import resolve
from opsieve.gen.case.case import open_case
from opsieve.gen.model.text import ModelText, print_model
from opsieve.triage.export.export_input import ExportedFailure
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
@pytest.mark.parametrize("exact", [True, False])
def test_a_module_that_does_not_compile_needs_no_function_that_runs_it(
    ir: str, passes: tuple[str, ...], text: str, exact: bool
) -> None:
    target = resolve("tvm")
    program = SimpleNamespace(ir=ir, passes=passes, data=text.encode(), script_is_exact=exact)
    brief = target.backend.brief  # type: ignore[attr-defined]  # of TVM's backend
    imports, lines = brief(target.options, set(), program, "compile")
    source = "\n".join([*imports, *lines])
    ast.parse(source)
    assert all(line.startswith(("import ", "from ")) for line in imports)
    assert re.search(r"module = \S*(FuseOps|NarrowDataType)\S*\)\(module\)", source)
    assert ("def copy_into" in source) == ("copy_into" in text and ir == "relax")
    assert ("from_source(model)" in source, "load_json(model)" in source) == (exact, not exact)
    assert "inputs" not in source
    assert len(lines) <= 14


def test_a_module_that_a_pass_breaks_is_not_compiled() -> None:
    made, text = read_sample("tvm-fuse-tir-function-error")
    message = "what FuseTIR leaves is not well-formed: why"
    seen = replace(made.observation, exception="opsieve.NotWellFormed", message=message)
    source = write_short_script(replace(made, observation=seen), text)
    assert source.endswith("relax.analysis.well_formed(module)  # what a pass leaves has to be\n")
    # Without a pass to blame it is compiled.
    seen = replace(seen, message="the module is not well-formed: why")
    assert "relax.build(" in write_short_script(replace(made, observation=seen), text)


def test_a_module_that_fails_when_it_runs_is_fed_tensors() -> None:
    made, text = read_sample("tvm-branch-storage-crash")
    made = replace(made, observation=replace(made.observation, stage="run"))
    assert 'outputs = {"output_0": machine["main"]().numpy()}' in write_short_script(made, text)
    # A module of TIR is run by the statements of its longer script.
    made, text = read_sample("tvm-vectorize-one-error")
    source = write_short_script(replace(made, observation=replace(made.observation, stage="run")), text)
    ast.parse(source)
    assert "\noutputs = {name: tensor.numpy()" in source
    assert "def run" not in source


def test_a_module_without_exact_text_is_given_as_its_deflated_json() -> None:
    made, _ = read_sample("tvm-permuted-layout-error")
    source = write_short_script(made, ModelText("...", False))
    packed = re.search(r"base64.b64decode\(\(\n(.*?)\n\)\)", source, re.DOTALL)
    assert packed is not None
    text = "".join(re.findall(r"'(.*)'", packed[1]))
    assert zlib.decompress(base64.b64decode(text)) == made.case.program.data
    assert "tvm.ir.load_json(model)" in source
    large, _ = read_sample("tvm-fuse-tir-buffers-error")
    assert write_short_script(large, ModelText("...", False)) == ""


def read_sample(name: str) -> tuple[ExportedFailure, ModelText]:
    case = open_case(SAMPLES / name)
    made = replace(exported("tvm", "error"), case=case, expected={})
    return made, ModelText((SAMPLES / name / "module.py").read_text(), True)


def test_constants_of_equal_items_are_written_as_products() -> None:
    assert write_list([[[1.0] * 4] * 3]) == "[[[1.0] * 4] * 3]"
    assert write_list([1.0, 1.0, 2.0]) == "[1.0, 1.0, 2.0]"
    assert write_list([0.0, -0.0, 0.0]) == "[0.0, -0.0, 0.0]"
    assert write_list([[], []]) == "[[], []]"
    assert write_list(True) == "True"


@given(st.recursive(st.sampled_from([0, 1, -0.0, 0.5, True]), lambda items: st.lists(items, max_size=4)))
def test_a_written_constant_has_the_value(value: object) -> None:
    # repr, as -0.0 is equal to 0 and True to 1
    assert repr(eval(write_list(value))) == repr(value)  # noqa: S307  # our own text


def test_a_size_that_is_inferred_wrongly_is_compared_with_the_value(tmp_path: Path) -> None:
    case = open_case(SAMPLES / "onnxruntime-symbolic-slice-size-error")
    made = replace(exported("onnxruntime-symbolic-shapes", "error"), case=case, expected={})
    message = "'y' is declared with the shape [0] and has [1]"
    seen = replace(made.observation, stage="run", exception="a.BrokenModel", message=message)
    source = write_short_script(replace(made, observation=seen), print_model(case.program.data))
    assert len(source.splitlines()) <= 24, source
    assert "opsieve" not in source
    (tmp_path / "repro.py").write_text(source)
    done = subprocess.run(
        [sys.executable, tmp_path / "repro.py"], capture_output=True, text=True, check=False
    )
    assert "AssertionError: ([0], (1,))" in done.stderr, done.stderr


# Lines of a script that a maintainer reads in half a minute
_LONGEST = 30


def test_the_script_in_the_readme_of_a_sample_has_at_most_thirty_lines() -> None:
    """Longer are only models that were not reduced, and modules whose own text leaves no room."""
    for folder in sorted(path.parent for path in SAMPLES.glob("*/case.json")):
        blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
        lines = max((block.splitlines() for block in blocks), key=len, default=[])
        if len(lines) > _LONGEST:
            program = open_case(folder).program
            text = re.search(r"model = r\'\'\'(.*?)\'\'\'", "\n".join(lines), re.DOTALL)
            is_long = text is not None and len(text[1].splitlines()) > _LONGEST - 10
            assert is_long or len(program.operators()) > 10, folder.name
        assert "opsieve" not in "\n".join(line for line in lines if line.startswith(("import", "from")))
        assert list_undefined("\n".join(lines)) == set(), folder.name


def list_undefined(source: str) -> set[str]:
    """List the names that a script reads without defining them: it would always raise an error."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    made |= {
        node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler))
    }
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} - made - set(dir(builtins))


@pytest.mark.parametrize(
    ("target", "line", "is_read"),
    [
        ("onnxoptimizer", "after = onnxoptimizer.optimize(model, None, False)", False),
        ("tvm", "module = from_onnx(model, shape_dict=shapes, keep_params_in_input=False)", False),
        ("openvino", "compiled = core.compile_model(core.read_model(model), ", True),
    ],
)
def test_a_script_keeps_the_parsed_model_if_the_compiler_takes_one(
    target: str, line: str, is_read: bool
) -> None:
    made = exported(target)
    source = write_short_script(made, print_model(made.model))
    assert line in source
    assert ("load_model_from_string" in source) == is_read
    assert ("SerializeToString()\ninputs" in source) == is_read
    assert list_undefined(source) == set()
