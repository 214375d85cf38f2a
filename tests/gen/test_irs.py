"""Records of IRs, and programs in TVM's own: read without TVM, how they lie in a case folder."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT
from tvm_programs import RELAX, tir_program

from opsieve.backends.registry import resolve
from opsieve.gen.case.case import Case, load, open_case, program_at, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.ir import IR
from opsieve.gen.irs.onnx.program import onnx_program
from opsieve.gen.irs.registry import all_irs, ir_named, load_named, make_inputs, read_program
from opsieve.gen.irs.relax.generator import generate
from opsieve.gen.irs.relax.policies import POLICIES
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.tree import Function
from opsieve.gen.irs.relax.writing import to_json


def test_what_main_takes_and_gives_is_read_without_tvm() -> None:
    program = read_program(RELAX)
    assert isinstance(program, RelaxProgram)
    assert {name: str(type_) for name, type_ in program.inputs().items()} == {
        "x": "float32[2, 3]",
        "y": "float32[?, ?]",
        "s": "int64[1]",
    }
    assert {name: str(type_) for name, type_ in program.outputs().items()} == {
        "output_0": "float32[2, 3]",
        "output_1": "float32[?, ?]",
        "output_2": "int64[2]",
    }
    assert {"relax.call_tir", "relax.astype", "tirx.exp"} <= set(program.operators())
    assert "main" in program.names()
    assert program.output_dtypes() == {"output_0": "float32", "output_1": "float32", "output_2": "int64"}


def test_inputs_are_made_of_their_types_and_a_shape_is_the_sizes_that_it_stands_for() -> None:
    program = read_program(RELAX)
    values = make_inputs(program, 7)
    assert values["x"].shape == (2, 3)
    assert values["s"].shape == (1,)
    assert 2 <= values["s"][0] <= 4
    assert all(np.array_equal(value, make_inputs(program, 7)[name]) for name, value in values.items())


def test_what_main_takes_keeps_its_names_where_another_function_has_the_same() -> None:
    module = generate(8, POLICIES["general"]()).module
    text = to_json(module)
    for name, function in module.functions:
        if name != "main" and isinstance(function, Function):
            text = text.replace(f'"{function.params[0].name}"', '"x0"')
    program = RelaxProgram(text.encode())
    assert list(program.inputs()) == [param.name for param in from_json(text).main.params] == ["x0", "x1"]


def test_a_module_without_main_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "module.json").write_text(RELAX.read_text().replace('"main"', '"start"'))
    with pytest.raises(BadInput, match=r"'module.json' has no function `main`, .* one of 'rec, start'"):
        open_case(tmp_path / "module.json")


def test_a_tir_function_in_a_json_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "function.json").write_bytes(tir_program().module)
    assert open_case(tmp_path / "function.json").program == tir_program()
    assert program_at(tmp_path / "function.json").ir == "tir"


def test_a_case_of_another_form_comes_back_and_passes_belong_to_its_identity(tmp_path: Path) -> None:
    program = tir_program("tirx.StmtSimplify", "tirx.NarrowDataType:32")
    case = Case(program, make_inputs(program, 0))
    save(case, tmp_path / "case")
    back = load(tmp_path / "case")
    assert back.program == program
    assert back.program.passes == program.passes
    assert back.inputs.keys() == {"A", "B"}
    assert sorted(path.name for path in (tmp_path / "case").iterdir()) == [
        "case.json",
        "module.json",
        "passes.json",
        "test_data_set_0",
    ]
    assert json.loads((tmp_path / "case" / "case.json").read_text())["form"] == "tir"
    assert tir_program().digest != program.digest
    assert tir_program() != program
    assert "tirx.For" in program.operators()


def test_a_module_file_is_opened_as_a_case_and_code_is_not(tmp_path: Path) -> None:
    assert open_case(RELAX).program.ir == "relax"
    (tmp_path / "module.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(BadInput, match="is code, which opsieve does not run"):
        open_case(tmp_path / "module.py")
    with pytest.raises(BadInput, match=r"takes ONNX models; .*is a Relax module"):
        onnx_program(read_program(RELAX))


@pytest.mark.parametrize(
    "passes", ['["a;b"]', '["x:(y)"]', "[1]", '{"a": 1}', "[" * 20000, "[\"__import__('os')\"]", '["x"']
)
def test_passes_that_are_none_are_refused(tmp_path: Path, passes: str) -> None:
    (tmp_path / "module.json").write_bytes(tir_program().module)
    (tmp_path / "passes.json").write_text(passes)
    with pytest.raises(BadInput, match="pass"):
        open_case(tmp_path / "module.json")


REQUIRED = {"name", "suffix", "files", "read", "load", "validator"}


def test_every_field_of_a_record_is_explained() -> None:
    names = {item.name for item in dataclasses.fields(IR)}
    assert set(re.findall(r"^        (\w+): ", IR.__doc__ or "", re.MULTILINE)) == names
    optional = {item.name for item in dataclasses.fields(IR) if item.name not in REQUIRED}
    page = (ROOT / "docs" / "how-to" / "add-an-ir.md").read_text()
    assert {name for name in optional if f"`{name}`" not in page} == set()


def test_records_name_their_programs_and_what_they_refer_to_is_there() -> None:
    for ir in all_irs():
        assert ir_named(ir.name) is ir
        assert resolve(ir.validator)
        for named in filter(None, (ir.evaluator, ir.reduction, ir.rewrites)):
            assert load_named(named)
    with pytest.raises(BadInput, match="there is no IR 'mlir'; there are onnx, relax, tir, torch"):
        ir_named("mlir")
    with pytest.raises(BadInput, match=r"'nowhere:NAME' cannot be loaded .*: mend or reinstall its package"):
        load_named("nowhere:NAME")


def test_a_model_is_read_run_and_saved_without_a_module_of_another_ir(tmp_path: Path) -> None:
    program = """if True:
        import sys
        from pathlib import Path
        from opsieve.backends.registry import resolve
        from opsieve.backends.workers.workers import Workers
        from opsieve.gen.case.case import open_case, save
        case = open_case(Path(sys.argv[1]))
        with Workers() as workers:
            assert workers.observe(resolve("reference"), case.program, case.inputs).outputs
        save(case, Path(sys.argv[2]))
        print([name for name in sys.modules if name.startswith("opsieve.gen.irs.")])
    """
    model = ROOT / "samples" / "if-constant-load-error" / "model.onnx"
    command = [sys.executable, "-c", program, str(model), str(tmp_path / "case")]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "opsieve.gen.irs.onnx.ir" in loaded
    assert not re.search("tvm|relax|tir", loaded)
