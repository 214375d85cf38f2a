"""Exported files: what scripts say of fixed, broken and missing compilers, and that no text leaves its place
in any of them.
"""

import ast
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exported import exported, model
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt
from onnx import parser
from slow_params import keep_quick

from opsieve.backends.compilers.transformers import source as transformed_source
from opsieve.backends.observation import Frame
from opsieve.backends.workers.questions.programs import print_program
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import load, open_case
from opsieve.gen.errors import BadInput
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.tvm.program import TvmProgram
from opsieve.gen.model.text import ModelText, print_model
from opsieve.triage.export.export_input import ExpectedOutput, ExportedFailure
from opsieve.triage.export.exports import KINDS, export_failure
from opsieve.triage.export.issue import escape_text, fence_text, write_issue
from opsieve.triage.export.script import list_requirements, write_script
from opsieve.triage.export.short_script import write_short_script
from opsieve.triage.known.issues import ProbableIssue
from opsieve.triage.store.artifacts import read_artifacts
from opsieve.triage.store.rows import BlamedCommit
from opsieve.tui.samples import SAMPLES

NOTHING = ModelText("", False)
CODE = "open('CANARY', 'w').write('x')"
# Each is tried as the name of a value, a node and a graph, and as what the compiler says.
EVIL = (
    '"', "'", '"""', "'''", "\\", "\\\\", '\\"', "\\'''", '"\\', "\\N{BELL}", "\\x41", "\\u202e", "{}", "{0}",
    "%s", "%(x)s", f'"""\n{CODE}\n"""', f"'''\n{CODE}\n'''", f"')\n{CODE}\n('", f'")\n{CODE}\n("',
    f"#\n{CODE}", f"\\\n{CODE}", f"\r{CODE}", f"\r\n{CODE}\r\n", f"\x0c{CODE}", f"\x0b{CODE}", f"\x85{CODE}",
    f"\u2028{CODE}", f"\u2029{CODE}", f"\x1c{CODE}", f"' + {CODE} + '", f"{{{CODE}}}", f"*/ {CODE} /*",
    f"); {CODE} #", "\x00", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "\x08\x08\x08",
    "\u202etxt.exe", "\u2066hidden\u2069", "\u200bzero", "\ufeff", "\U000e0041tag", "```\n# Heading\n```",
    "`````", "~~~\n<script>alert(1)</script>\n~~~", "<!-- ", "--> <b>x</b>", "<details><summary>",
    "![x](http://evil.example/x.png)", "[x](javascript:alert(1))", "@everyone #1 evil.example",
    "| a | b |\n|---|---|", "$(touch CANARY)", "`touch CANARY`", "'; DROP TABLE failures; --",
    "../../../../CANARY", "a" * 1_000_000, "`" * 5000, "\n" * 1000, "é\u0301𝕏",
)  # fmt: skip


def shape(source: str) -> str:
    """What a script does, its texts and numbers aside."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = 0
    return ast.dump(tree)


@cache
def harmless_shape(test: bool) -> str:
    return shape(write_script(evil_exhibit("harmless"), ModelText("harmless", False), test))


@cache
def harmless_values_shape() -> str:
    return shape(
        write_script(exported("onnxruntime", "mismatch", None, (1.0, 2.0)), ModelText("harmless", False))
    )


def evil_exhibit(name: str, target: str = "reference", **more: object) -> ExportedFailure:
    proto = model(name, f"{name}.", name, name)
    return exported(target, "mismatch", proto, (5.0, 5.0), name, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", keep_quick(["script", "pytest"], 1))
def test_no_text_leaves_its_literal(kind: str) -> None:
    for name in EVIL:
        source = write_script(evil_exhibit(name), ModelText(name, False), kind == "pytest")
        assert source.isascii(), ascii(name)
        assert all(c.isprintable() or c == "\n" for c in source), ascii(name)
        assert shape(source) == harmless_shape(kind == "pytest"), ascii(name)
        assert "CANARY" not in ast.unparse(ast.parse(source).body[1:4]), ascii(name)  # imports


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_at_all_leaves_its_literal(name: str, said: str) -> None:
    shown = ModelText(said, False)
    proto = model(name, f"{name}.", said, said)
    source = write_script(exported("onnxruntime", "mismatch", proto, (1.0, 2.0), said), shown)
    assert source.isascii()
    assert shape(source) == harmless_values_shape()
    values = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    assert name in values  # and it is told


def run_all(folder: Path, names: list[str]) -> dict[str, int]:
    """Run scripts in one process; their exit codes."""
    code = (
        "import contextlib, io, json, runpy, sys\n"
        "codes = {}\n"
        "for name in json.load(sys.stdin):\n"
        "    said = io.StringIO()\n"
        "    with contextlib.redirect_stdout(said):\n"
        "        codes[name] = runpy.run_path(name)['main']()\n"
        "    line = said.getvalue()\n"
        "    assert line.count('\\n') == 1 and line[:-1].isascii() and line[:-1].isprintable(), ascii(line)\n"
        "print('CODES' + json.dumps(codes))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    codes: dict[str, int] = json.loads(done.stdout.rpartition("CODES")[2])
    return codes


def test_nothing_of_a_hostile_model_is_executed(tmp_path: Path) -> None:
    names = []
    for number, name in enumerate(EVIL):
        made = evil_exhibit(name)
        # The real text of the model where it is short, so that exact ones are tried too.
        shown = print_model(made.model) if number % 6 == 0 else NOTHING
        (tmp_path / f"{number}.py").write_text(write_script(made, shown))
        names.append(f"{number}.py")
    before = set(tmp_path.iterdir())
    assert set(run_all(tmp_path, names).values()) == {1}  # the values that they ask for are wrong
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "__pycache__"}


def outside_fences(text: str) -> str:
    tokens = MarkdownIt("commonmark").parse(text)
    assert {token.type for token in tokens} <= {"heading_open", "heading_close", "inline", "paragraph_open", "paragraph_close", "fence", "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"}  # fmt: skip
    for token in tokens:
        assert {child.type for child in token.children or ()} <= {"text", "softbreak", "code_inline", "strong_open", "strong_close"}  # fmt: skip
    return "\n".join(token.content for token in tokens if token.type != "fence")


@cache
def harmless_prose(name: str) -> str:
    return outside_fences(write_issue(evil_exhibit(name, "onnxruntime"), ModelText(name, False)))


def test_an_issue_shows_everything_and_runs_nothing() -> None:
    for name in EVIL:
        text = write_issue(evil_exhibit(name, "onnxruntime"), ModelText(name, False))
        assert text.isascii(), ascii(name)
        assert all(c.isprintable() or c == "\n" for c in text), ascii(name)
        assert len(text) < 65_536, ascii(name)
        if len(name) < 4000:  # a longer script is attached
            assert outside_fences(text) in map(harmless_prose, ("harmless", "harmless" * 100)), ascii(name)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_a_fence_holds(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(fence_text(escape_text(text)) + "\n\nafter")
    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert tokens[0].content == escape_text(text) + "\n"


@pytest.mark.parametrize(
    "target", ["onnxruntime", "tvm", "onnxsim", "onnxslim", "onnxoptimizer", "onnxscript", "fake"]
)
def test_every_project_gets_its_own_headings(target: str) -> None:
    text = write_issue(exported(target), ModelText("the graph", False))
    wanted = {"onnxruntime": "### ONNX Runtime API", "tvm": "### Actual behavior", "onnxsim": "**Model**"}
    wanted |= {"onnxslim": "**Expected behavior**"}
    assert wanted.get(target, "### To reproduce") in text
    assert "the graph" in text
    assert "base64.b64decode(" in text


@pytest.mark.parametrize("target", ["onnxruntime", "tvm", "onnxsim", "onnxslim", "openvino"])
def test_the_symptom_does_not_stand_under_what_is_expected(target: str) -> None:
    """Of every project whose form has a heading for what is expected (TVM, onnxslim)."""
    text = write_issue(exported(target), ModelText("the graph", False))
    under = re.split(r"\n(?:###|\*\*)", text)
    for section in under:
        if section.strip().lower().startswith("expected"):
            assert "wrong values" not in section.lower()


def write(folder: Path, made: ExportedFailure, test: bool = False) -> Path:
    path = folder / ("test_repro.py" if test else "repro.py")
    path.write_text(write_script(made, print_model(made.model), test))
    return path


def run(path: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, path.name], capture_output=True, text=True, cwd=path.parent, check=False
    )
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    return done.returncode, done.stdout


def compiler(folder: Path, source: str) -> None:
    """What the script imports as onnxruntime instead of the real one."""
    (folder / "onnxruntime.py").write_text(source)


def test_exit_codes_tell_fixed_wrong_and_missing(tmp_path: Path) -> None:
    code, said = run(write(tmp_path, exported(right=(0.0, 2.0))))
    assert (code, said[:15]) == (0, "no failure here")
    code, said = run(write(tmp_path, exported(right=(0.5, 2.0))))
    assert code == 1
    assert said.startswith("BUG: AssertionError: Not equal to tolerance")
    assert "output 'y' Mismatched elements: 1 / 2 (50%)" in said
    assert "(onnxruntime " in said
    compiler(tmp_path, "raise ImportError('not there')")
    assert run(write(tmp_path, exported()))[0] == 2
    compiler(tmp_path, "raise ValueError('broken')")
    assert run(write(tmp_path, exported(kind="error", right=())))[1].startswith("BUG: ValueError: broken")


@pytest.mark.parametrize(
    ("kind", "source", "told"),
    keep_quick(
        [
            ("crash", "import os; os.kill(os.getpid(), 11)", "the process died of signal 11"),
            ("crash", "import os; os._exit(3)", "the process ended by itself with exit code 3"),
            ("hang", "import time; time.sleep(60)", "no answer within 2 s"),
            ("memory", "def __getattr__(name): return bytearray(1 << 34)", "MemoryError"),
        ],
        1,
    ),
)
def test_a_compiler_that_takes_its_process_along(kind: str, source: str, told: str, tmp_path: Path) -> None:
    compiler(tmp_path, source)
    made = exported(kind=kind, right=(), seconds=2.0 if kind == "hang" else 60.0)  # type: ignore[arg-type]
    code, said = run(write(tmp_path, made))
    assert code == 1
    assert told in said
    if kind == "memory":
        (tmp_path / "onnxruntime.py").unlink()
        assert run(write(tmp_path, exported(kind=kind, seconds=60.0)))[0] == 0


def test_what_shows_sometimes_is_asked_often(tmp_path: Path) -> None:
    compiler(tmp_path, "import pathlib\np = pathlib.Path('n')\nn = p.stat().st_size if p.exists() else 0\np.write_bytes(bytes(n + 1))\nassert n != 3\nraise RuntimeError\n")  # fmt: skip
    source = write_script(exported(kind="error", right=(), runs=7), NOTHING)
    assert "RUNS = 7" in source
    compiler(
        tmp_path,
        "import os; os.kill(os.getpid(), 9) if os.path.exists('n') else open('n', 'w').close()\nraise"
        " ImportError",
    )
    made = exported(kind="nondeterminism")
    assert "in two runs" in write_script(made, NOTHING)


def test_a_test_for_pytest_fails_while_the_bug_lives(tmp_path: Path) -> None:
    def by_pytest() -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "."]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        ).stdout

    for name, right in (("lives", (0.5, 2.0)), ("fixed", (0.0, 2.0))):
        write(tmp_path, exported(right=right), test=True).rename(tmp_path / f"test_{name}.py")
    told = by_pytest()
    assert "FAILED test_lives.py" in told
    assert "PASSED test_fixed.py" in told
    compiler(tmp_path, "raise ImportError")
    assert "2 skipped" in by_pytest()


SCRIPTED = (
    "onnxruntime:basic", "onnxruntime:disabled_optimizers=ConstantFolding+Pad_Fusion", "tvm", "tvm:zero",
    "tvm:target", "onnxoptimizer", "onnxoptimizer:eliminate_identity", "onnxsim",
    "onnxsim:passes=off,folding=off", "onnxscript", "onnxscript:fold", "onnxscript:rewrite",
    "onnxscript:inline=off", "onnxslim", "onnxslim:skip=constant_folding", "reference",
    "onnx-version-converter:18", "onnx-inliner", "onnx-inliner:schema", "onnxruntime-transformers",
    "onnxruntime-saved:extended",
)  # fmt: skip


@pytest.mark.slow
def test_every_backend_runs_by_its_own_lines(tmp_path: Path) -> None:
    text = print_model(exported().model)
    for target in SCRIPTED:
        for right, mark in (((0.0, 2.0), "right"), ((0.5, 2.0), "wrong")):
            source = write_script(exported(target, right=right), text)
            assert "opsieve" not in source.replace("Written by opsieve", "")
            (tmp_path / f"{target}-{mark}.py").write_text(source)
    codes = run_all(tmp_path, [f"{target}-{mark}.py" for target in SCRIPTED for mark in ("right", "wrong")])
    assert codes == {
        f"{target}-{mark}.py": int(mark == "wrong") for target in SCRIPTED for mark in ("right", "wrong")
    }


def test_a_transformer_is_not_blamed_for_what_onnxruntime_refuses_anyway() -> None:
    """Erf in float64 has no kernel, transformed or not: the question cannot be asked, which an ImportError
    tells the script.
    """
    erf = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (double[2] x) => (double[2] y) { y = Erf(x) }'
    )
    space: dict[str, Any] = {"np": np, "onnx": onnx}
    text = transformed_source.source(
        "onnxoptimizer", {"optimise": "on", "passes": "", "fixpoint": "off"}, ["float64"]
    )
    exec(text, space)  # noqa: S102  written by the code under test
    with pytest.raises(ImportError, match=r"refuses the original model: .*Erf"):
        space["run"](erf.SerializeToString(), {"x": np.ones(2)})


@pytest.mark.slow
def test_a_backend_without_lines_is_run_by_opsieve(tmp_path: Path) -> None:
    made = exported("fake:wrong@Relu")
    assert list_requirements(made)[0].partition("=")[0] == "opsieve"
    assert run(write(tmp_path, made))[0] == 1


def test_what_a_script_cannot_show_is_said() -> None:
    with pytest.raises(BadInput, match="slowdown"):
        write_script(exported(kind="slowdown"), NOTHING)


def test_an_archive_is_a_case_and_always_the_same(tmp_path: Path, workers: Workers) -> None:
    made = exported()
    data = export_failure(made, "case", workers).data
    assert data == export_failure(made, "case", workers).data
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        file.extractall(tmp_path)
        assert all(name.startswith("case/") and ".." not in name for name in file.namelist())
    case = load(tmp_path / "case")
    assert case.parameters["target"] == "onnxruntime"
    assert case.program.model == made.case.program.model
    assert run(tmp_path / "case" / "repro.py")[0] == 0


def test_kinds_of_files(workers: Workers) -> None:
    names = [export_failure(exported(), kind, workers).name for kind in KINDS]
    assert names == ["repro.py", "issue.md", "test_repro.py", "case.zip"]


def test_a_text_is_exact_or_says_that_it_is_not(workers: Workers) -> None:
    assert print_model(model().SerializeToString()) == print_program(
        OnnxProgram(model().SerializeToString()), workers
    )
    assert print_model(model().SerializeToString()).exact
    for name in ("x'''", "\\", "é", "\u202e"):
        told = print_model(model(name, node=name).SerializeToString())
        assert not told.exact
    assert print_program(OnnxProgram(b"no model"), workers) == NOTHING
    remarked = model()
    remarked.graph.node[0].doc_string = "the text does not tell it"
    assert not print_model(remarked.SerializeToString()).exact


def test_values_in_scripts_have_their_bytes(tmp_path: Path) -> None:
    # A large model is deflated, and comes out whole.
    proto = model()
    proto.doc_string = "remark" * 5000
    made = exported(proto=proto)
    source = write_script(made, NOTHING)
    space: dict[str, object] = {}
    exec(compile(source.partition("def run(")[0], "repro.py", "exec"), space)  # noqa: S102  written by the code under test
    assert space["MODEL"] == made.model
    assert np.array_equal(space["INPUTS"]["x"], made.case.inputs["x"])  # type: ignore[index]


@pytest.mark.parametrize(("right", "code"), [((0.0, 2.0), 0), ((0.0, 3.0), 1)])
def test_the_short_script_of_an_issue_fails_while_the_bug_is_there(
    tmp_path: Path, right: tuple[float, ...], code: int
) -> None:
    made = exported(right=right)
    source = write_short_script(made, print_model(made.model))
    assert len(source.splitlines()) < 40
    assert source in write_issue(made, print_model(made.model))
    (tmp_path / "repro.py").write_text(source)
    done = subprocess.run(
        [sys.executable, tmp_path / "repro.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert ("AssertionError" in done.stderr) == bool(code)


@pytest.mark.parametrize(
    ("what", "wanted", "code"), [("shape", (1, 2), 1), ("shape", (2,), 0), ("dtype", (2,), 1)]
)
def test_a_wrong_shape_or_type_has_a_short_script(
    tmp_path: Path, what: Any, wanted: tuple[int, ...], code: int
) -> None:
    made = exported()
    assert made.verdict.mismatch is not None
    verdict = replace(made.verdict, mismatch=replace(made.verdict.mismatch, what=what))
    right = ExpectedOutput(np.zeros(wanted), "float32" if what == "shape" else "float64")
    wrong = replace(made, verdict=verdict, expected={"y": right})
    assert write_issue(wrong, print_model(made.model)).startswith(
        f"# Wrong {'shape' if what == 'shape' else 'element type'} with Relu"
    )
    source = write_short_script(wrong, print_model(made.model))
    (tmp_path / "repro.py").write_text(source)
    done = subprocess.run(
        [sys.executable, tmp_path / "repro.py"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "AssertionError" in done.stderr) == (code, bool(code)), done.stderr


def test_names_stay_literals_in_a_short_script() -> None:
    def shape(name: str) -> list[type]:
        source = write_short_script(evil_exhibit(name, "onnxruntime"), ModelText("graph", True))
        return [type(node) for node in ast.walk(ast.parse(source))]

    allowed = ([ast.Module], shape("harmless"))  # a long name has no short script
    assert [ascii(name) for name in EVIL if shape(name) not in allowed] == []


BROKEN = {
    "checker": "onnx.checker accepts the original and refuses the transformed model: why",
    "declared": "the transformed model declares 'y' as float16 where the original has float",
    "load": "onnxruntime loads the original and not the transformed model: why",
    "inputs": "the transformed model wants inputs that the original has not: 'y'",
}


@pytest.mark.parametrize(
    ("target", "failed", "lines", "has"),
    [
        ("onnxruntime", "run", 18, "session = ort.InferenceSession(model, providers=['CPUEx"),
        (
            "onnxruntime:basic",
            "run",
            20,
            "options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC",
        ),
        ("onnxoptimizer", "compile", 13, "after = onnxoptimizer.optimize("),
        ("onnxscript", "checker", 15, "onnx.checker.check_model(after, full_check=True)"),
        ("onnxsim", "inputs", 15, "assert all(item.name in was for item in after.graph.input)"),
        ("onnxruntime-saved", "load", 26, "after = onnx.load(saving.optimized_model_filepath)"),
        ("onnxslim", "run", 22, "after = onnxslim.slim("),
        ("tvm:zero", "run", 27, '    module = relax.get_pipeline("zero")(module)'),
        ("onnxruntime-transformers", "compile", 17, "'sympy'"),
        ("onnxruntime-symbolic-shapes", "compile", 14, "SymbolicShapeInference.infer_shapes(before"),
        ("onnxruntime-float16:all", "checker", 16, "force_fp16_initializers=True"),
        ("onnxconverter-float16", "declared", 17, "assert list(after.graph.output) == list(was)"),
        ("onnxruntime-quantization:each", "load", 30, "per_channel=True)"),
        ("onnxruntime-quantization:dynamic", "compile", 15, "quantization.quantize_dynamic(before"),
        ("tinygrad", "run", 22, 'os.environ.update(DEV="PYTHON", NOOPT="0")'),
        ("tract", "run", 21, "outputs = {'y': results[0].to_numpy()}"),
        ("tract", "compile", 15, ".into_runnable()"),
        ("tvm", "run", 26, "outputs = {name: value.numpy() for name, value in zip(['y'], [result])}"),
    ],
)
def test_a_short_script_holds_what_the_failure_needs(target: str, failed: str, lines: int, has: str) -> None:
    made = exported(target, "mismatch" if failed == "run" else "error")
    seen = replace(made.observation, stage="run" if failed == "run" else "compile")
    if failed in BROKEN:
        seen = replace(seen, exception="a.BrokenModel", message=BROKEN[failed])
    source = write_short_script(replace(made, observation=seen), print_model(made.model))
    ast.parse(source)
    assert has in source
    assert len(source.splitlines()) <= lines, source
    assert ("assert_allclose" in source) == (failed == "run")


def test_an_issue_of_a_module_is_about_a_module_not_about_a_model_of_onnx() -> None:
    case, made = open_case(SAMPLES / "tvm-cse-block-error", None, None, 0), exported("tvm", "error")
    raised = replace(made.observation, stage="compile", exception="builtins.TypeError", message="why")
    verdict = replace(made.verdict, stage="compile")
    made = replace(made, case=case, observation=raised, verdict=verdict)
    assert isinstance(case.program, TvmProgram)
    text = ModelText("@I.ir_module\nclass Module: ...", True)
    source = write_short_script(made, text)
    ast.parse(source)
    assert "CommonSubexprElim()(module)" in source
    assert len(source.splitlines()) <= 50, source
    assert "onnx" not in source
    whole = write_issue(made, text)
    assert whole.startswith("# [Bug] tirx.CommonSubexprElim: TypeError on a valid module with 19 nodes")
    assert source.strip() in whole
    assert "model" not in outside_fences(whole)
    assert "onnx" not in outside_fences(whole)
    assert "reference evaluator" not in write_script(replace(made, source="reference:float64"), text)


def test_an_environment_of_a_release_has_the_versions_that_its_script_installs() -> None:
    assert "1.20.1" in write_issue(exported("onnxruntime==1.20.1"), NOTHING).split("# pip install ")[0]
    made = exported("onnxoptimizer==0.3.13")
    text = write_issue(made, print_model(made.model))
    pinned = next(item for item in list_requirements(made) if item.startswith("numpy=="))
    version, _, limit = pinned.removeprefix("numpy==").partition("; ")
    assert f"numpy {version}\n" in text.partition("### Environment")[2]
    assert f", numpy {version}," in write_script(made, NOTHING)
    assert limit == 'python_version < "3.13"' or sys.version_info >= (3, 13)


@pytest.mark.parametrize("target", ["onnxscript", "onnxoptimizer", "tvm"])
def test_the_script_of_an_installed_compiler_installs_the_versions_that_ran(target: str) -> None:
    versions = dict(item.split("==") for item in list_requirements(exported(target)) if "==" in item)
    assert versions.pop("numpy") == np.__version__
    # The version of the compiler itself is that of the observation, which is made up here.
    ran = {name: version for name, version in versions.items() if version != "1.2.3"}
    assert ran == {name: importlib.metadata.version(name) for name in ran}


def test_an_issue_speaks_to_people_without_opsieve() -> None:
    made = replace(
        exported(),
        passes=("Pad_Fusion",),
        first_bad="1.20.0",
        regression="Fails since 1.20.0 (last good: 1.19.2).",
    )
    text = write_issue(made, print_model(made.model))
    assert text.startswith("# Pad_Fusion: wrong values with Relu since 1.20.0 (onnxruntime 1.2.3)\n")
    for word in ("reference:float64", "stage", "cannot be asked", "base64"):
        assert word not in text
    # The values that are expected, and what the compiler gives instead
    assert "Expected, by ONNX's reference evaluator in float64:\n\n```text\ny = np.array([0.0, 2.0]," in text
    assert text.count("it is wrong") == 1
    outputs = replace(made.observation, outputs={"y": np.array([0, 1], np.float32)})
    text = write_issue(replace(made, observation=outputs), print_model(made.model))
    assert "Actual:\n\n```text\ny = np.array([0.0, 1.0], np.float32)\n```" in text
    outputs = replace(made.observation, outputs={"y": -np.array([0, np.nan], np.float32)})
    assert "decode(" not in write_issue(replace(made, observation=outputs), print_model(made.model))
    agree = "onnxruntime:disable_all"
    for target, says in (("tvm", True), ("onnxruntime", False)):
        seen = exported(target)
        verdict = replace(seen.verdict, reason=f"wrong; a and {agree} agree", oracles=("a", agree))
        text = write_issue(replace(seen, verdict=verdict), print_model(seen.model))
        assert ("in float64 and by onnxruntime without optimisation:" in text) == says


def test_a_title_says_what_fails_and_nothing_of_opsieve_stands_in_an_issue() -> None:
    made = exported(kind="error", text=f"{'head ' * 100}{'x' * 30} the telling end")
    raised = replace(made, observation=replace(made.observation, exception="builtins.TypeError"))
    text = write_issue(raised, print_model(made.model))
    assert text.startswith("# TypeError on a valid model with Relu once optimised: head head ")
    assert "the telling end" in text
    said = "Non-zero [axis](//x) of @someone's #3 is not 7 <b>"
    text = write_issue(
        replace(raised, observation=replace(raised.observation, message=said)), print_model(made.model)
    )
    assert ": Non-zero (axis)(path) of someone's 3 is not 7 b (" in text.split("\n")[0]
    broken = "opsieve.backends.compilers.worker_common.BrokenModel"
    text = write_issue(
        replace(made, observation=replace(made.observation, exception=broken)), print_model(made.model)
    )
    assert text.startswith("# Output model is invalid with Relu once optimised: head head")
    assert "exception" not in outside_fences(text)
    assert "Expected: a model as valid as the original" in text
    assert "BrokenModel" not in text
    unformed = replace(raised.observation, exception="opsieve.backends.compilers.tvm.NotWellFormed")
    text = write_issue(replace(raised, observation=unformed), print_model(made.model))
    assert text.startswith("# Output model is invalid with Relu once optimised: head head")
    assert "NotWellFormed" not in text
    seen = replace(made.observation, outcome="crash", signal=11)
    died = replace(made, verdict=replace(made.verdict, kind="crash"), observation=seen)
    assert write_issue(died, print_model(made.model)).startswith("# SIGSEGV with Relu")
    names = ("Py_RunMain", "onnx::optimization::FuseRelu::run(Node*)", "std::vector<int>::at")
    frames = tuple(Frame("native", name, module="libonnx.so") for name in names)
    text = write_issue(
        replace(died, observation=replace(seen, frames=frames)),
        print_model(made.model),
        "the graph `a` after",
    )
    assert text.startswith("# SIGSEGV in FuseRelu::run with Relu")
    assert "The model after optimisation:\n\n```text\nthe graph `a` after\n```" in text


def test_an_issue_names_the_public_one_that_it_may_be() -> None:
    known = ProbableIssue(
        "o/r#7", "https://github.com/o/r/issues/7", "@all", "open", 9, ("it quotes the message: <b>",)
    )
    text = write_issue(replace(exported(), probably=(known,)), ModelText("the graph", False))
    assert "Possibly the same as https://github.com/o/r/issues/7: it quotes the message: ?b?." in text
    evil = replace(known, url="https://github.com/o/r/issues/7#](javascript:1)")
    assert "Possibly the same as o?r?7:" in write_issue(
        replace(exported(), probably=(evil,)), ModelText("the graph", False)
    )


@pytest.mark.parametrize(
    ("share", "head", "tail"), [(1.0, "Commit:", ""), (0.713, "Likely commits", ", 71%")]
)
def test_an_issue_names_the_commits_behind_it(share: float, head: str, tail: str) -> None:
    commit = BlamedCommit("1637f22d39ab", "Extend Pad Fusion for AveragePool (#21556) @all <b>", share)
    made = replace(exported(), regression="Fails since 1.19.0 (last good: 1.18.1).", commits=(commit,))
    text = write_issue(made, ModelText("the graph", False))
    assert head in text
    assert f"- 1637f22d39ab Extend Pad Fusion for AveragePool (pull request 21556) ?all ?b?{tail}\n" in text


def test_the_commits_of_a_search_or_of_a_ranking_are_read_from_beside_the_case(tmp_path: Path) -> None:
    ranked = [
        {"sha": "a" * 40, "subject": "One (#1)", "probability": 0.7},
        {"sha": "b" * 40, "subject": "Two", "probability": 0.1},
    ]
    facts = {"releases": {"history": {"ranked": [*ranked, "x", {"probability": "high"}]}}}
    (tmp_path / "culprit.json").write_text(json.dumps(facts))
    assert read_artifacts(tmp_path).commits == (BlamedCommit("a" * 12, "One (#1)", 0.7),)
    facts["commits"] = {"culprits": [{"sha": "c" * 40, "subject": "Three"}]}
    (tmp_path / "culprit.json").write_text(json.dumps(facts))
    assert read_artifacts(tmp_path).commits == (BlamedCommit("c" * 12, "Three", 1.0),)
    (tmp_path / "culprit.json").write_text(
        '{"releases": {"history": {"ranked": {"0": 1}}}, "commits": {"culprits": [3]}}'
    )
    assert read_artifacts(tmp_path).commits == ()
