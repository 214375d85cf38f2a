"""Case folders of TVM modules from a stranger: nothing in them runs in this process, and what cannot be read
is said in a sentence.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slow_params import keep_quick
from tvm_programs import RELAX, tir_program

from opsieve.gen.case.case import Case, load, open_case, save
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.registry import make_inputs
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.tvm.nodes import MalformedGraph
from opsieve.gen.irs.tvm.program import TvmProgram

Graph = dict[str, Any]


def module() -> Graph:
    graph: Graph = json.loads(RELAX.read_text())
    return graph


def renamed(name: str) -> Graph:
    """The module with a name of the stranger's for every variable and function."""
    graph = module()
    for node in graph["nodes"]:
        if node["type"] == "ffi.String" and node["data"] in ("x", "lv", "exp1", "num_input"):
            node["data"] = name
    return graph


def bomb() -> Graph:
    """Twenty nodes that unfold to 2**20 * 64 of them."""
    nodes: list[Graph] = [{"type": "int", "data": 1}]
    nodes += [{"type": "ffi.Array", "data": [place] * 8} for place in range(20)]
    return {"root_index": 20, "nodes": nodes}


def deep() -> Graph:
    nodes: list[Graph] = [{"type": "int", "data": 1}]
    nodes += [{"type": "ffi.Array", "data": [place]} for place in range(5000)]
    return {"root_index": 5000, "nodes": nodes}


def with_node(**node: Any) -> Graph:
    return {"root_index": 0, "nodes": [node]}


CODE = "import os; open(os.environ['OPSIEVE_MARK'], 'w').write('ran')\n"
CALL = "x = __import__('os').system('touch mark')"
MODULES: dict[str, Callable[[], Any]] = {
    "a name that is code": lambda: renamed(CALL),
    "a name that ends a string": lambda: renamed("x'''\n" + CODE),
    "a name that is a page long": lambda: renamed("x" * 1_000_000),
    "a name with a null byte": lambda: renamed("x\0y"),
    "a name with an escape of the terminal": lambda: renamed("\x1b[2J"),
    "a small graph that is huge": bomb,
    "a graph without an end": deep,
    "a node that holds itself": lambda: with_node(type="ffi.Array", data=[0]),
    "a node that is nowhere": lambda: with_node(type="ffi.Array", data=[-1]),
    "an index that is a text": lambda: with_node(type="ffi.Array", data=["0"]),
    "a type that runs": lambda: with_node(type="ffi.Function", data="os.system"),
    "a module of nothing": lambda: with_node(type="ir.IRModule", data={}),
    "functions that are none": lambda: with_node(type="ir.IRModule", data={"functions": 0}),
    "a root that is not there": lambda: {"root_index": 7, "nodes": []},
    "no graph": lambda: ["relax"],
    "a tensor that says it is larger": lambda: with_node(type="ffi.Tensor", data="AAAA"),
}
RAW = {
    "no JSON": b"from tvm.script import relax\n" + CODE.encode(),
    "brackets without end": b"[" * 100_000,
    "no UTF-8": b'{"nodes": "\xff\xfe"}',
    "an endless number": b'{"root_index": 1e999, "nodes": [' + b"1" * 5000 + b"]}",
    "nothing": b"",
}


def looked_at(case: Case) -> None:
    """All that the main process asks of a program."""
    program = case.program
    assert isinstance(program, TvmProgram)
    make_inputs(program, 0)
    text = (
        f"{program.text()}{list(program.names())}{program.operators()}{list(program.edges())}{program.digest}"
    )
    assert text
    assert program.outputs() is not None
    assert isinstance(program.is_plain, bool)


def hostile(folder: Path, data: bytes) -> Path:
    save(Case(tir_program(), make_inputs(tir_program(), 0)), folder)
    (folder / "case.json").write_text((folder / "case.json").read_text().replace('"tir"', '"relax"'))
    (folder / "module.json").write_bytes(data)
    (folder / "module.py").write_text(CODE)
    (folder / "conftest.py").write_text(CODE)
    (folder / "tvm.py").write_text(CODE)
    return folder


@pytest.mark.parametrize("name", [*MODULES, *RAW])
def test_nothing_of_a_strangers_module_runs_here(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("OPSIEVE_MARK", str(mark))
    monkeypatch.chdir(tmp_path)
    loaded = "tvm" in sys.modules  # another test of this process may have loaded it
    data = RAW[name] if name in RAW else json.dumps(MODULES[name]()).encode()
    folder = hostile(tmp_path / "case", data)
    for attempt in (load, open_case, lambda path: open_case(path / "module.json")):
        try:
            looked_at(attempt(folder))
        except BadInput as error:
            sentence = str(error)
            assert len(sentence) < 1000
            assert sentence.isprintable()
    assert not mark.exists()
    assert ("tvm" in sys.modules) == loaded


@pytest.mark.parametrize("data", keep_quick([{}, "x"], 1), ids=["no-fields", "text"])
def test_a_node_without_its_fields_is_refused_or_not_needed(data: Any) -> None:
    reasons = []
    for place, node in enumerate(module()["nodes"]):
        if isinstance(node.get("data"), dict):
            graph = module()
            graph["nodes"][place] = {"type": node["type"], "data": data}
            try:
                from_json(json.dumps(graph))
            except MalformedGraph as error:
                reasons.append(str(error))
    assert len(reasons) > 100
    assert max(map(len, reasons)) < 500


def test_a_name_that_is_code_is_no_plain_module_and_so_is_never_read_back() -> None:
    whole = open_case(RELAX).program
    assert isinstance(whole, TvmProgram)
    assert whole.is_plain
    for name in (CALL, "f(x)", "x\n", 'x"', "x\\", "x#", "x[0]", "{x}", "x=1", "ünïcode"):
        program = type(whole)(json.dumps(renamed(name)).encode())
        assert not program.is_plain, name


def test_the_printing_beside_a_module_is_never_opened(tmp_path: Path) -> None:
    folder = hostile(tmp_path / "case", RELAX.read_bytes())
    (folder / "module.py").unlink()
    os.mkfifo(folder / "module.py")  # who opens it waits for ever
    for path in (folder / "test_data_set_0").iterdir():
        path.unlink()
    with pytest.raises(BadInput, match="input_0"):
        load(folder)


@pytest.mark.parametrize("form", ['"../onnx"', '"tvm"', '["relax"]', "1", '"__class__"', '"RELAX"'])
def test_an_ir_that_is_none_is_refused(tmp_path: Path, form: str) -> None:
    folder = hostile(tmp_path / "case", RELAX.read_bytes())
    text = (folder / "case.json").read_text()
    (folder / "case.json").write_text(text.replace('"relax"', form))
    with pytest.raises(BadInput, match=r"there is no IR|case description"):
        load(folder)


def test_a_module_that_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    folder = hostile(tmp_path / "case", b"")
    for make in (
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.mkdir(),
    ):
        (folder / "module.json").unlink()
        make(folder / "module.json")
        with pytest.raises(BadInput):
            load(folder)
        if (folder / "module.json").is_dir():
            (folder / "module.json").rmdir()
