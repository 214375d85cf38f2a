"""Public reports as people save them: versions, settings, models and inputs are read from the text, and
nothing in it is run.
"""

import base64
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from opsieve.triage.export.program_source import encode_bytes
from opsieve.triage.known.report import extract_facts, parse_report
from opsieve.triage.known.report_models import iter_models
from opsieve.triage.known.report_script import Script

SCRIPT = """import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SIDE = 2 * 2
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIDE])
y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, SIDE])
w = numpy_helper.from_array(np.full((SIDE,), 2.5, dtype=np.float32), "w")

def build():
    nodes = [helper.make_node("Mul", inputs=["x", "w"], outputs=["t"]), helper.make_node("Elu", ["t"], ["y"], alpha=0.5)]
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

onnx.save(build(), "model.onnx")
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
session = ort.InferenceSession("model.onnx", options, disabled_optimizers=["ConstantFolding", "Pad_Fusion"], providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
session.run(None, {"x": -np.ones((1, SIDE), dtype=np.float32)})
"""
TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
MARKDOWN = f"""### Describe the issue
Wrong output. It worked with onnxruntime==1.18.0. ONNX 1.16.0 made the model.

```python
{SCRIPT}```

~~~
{TEXT}
~~~

### ONNX Runtime Version or Commit ID

1.20.1

### Python
3.11. Time: 12.5 s; ratio 1.2.3.4.5
"""


def as_html(text: str) -> str:
    """The same as a page, with the marks that a site puts into code."""
    lines: list[str] = []
    code = False
    for line in text.splitlines():
        if line.startswith(("```", "~~~")):
            lines.append("</pre>" if code else '<pre class="notranslate">')
            code = not code
        else:
            escaped = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            lines.append(f"<span>{escaped}</span>" if code else f"<p>{escaped}</p>")
    return (
        "<!DOCTYPE html><html><head><title>onnxruntime 9.9.9</title></head><body>"
        + "\n".join(lines)
        + "</body></html>"
    )


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_what_a_report_names_is_read(form: str) -> None:
    report = parse_report(MARKDOWN if form == "markdown" else as_html(MARKDOWN))
    facts = extract_facts(report)
    assert list(facts.versions["onnxruntime"]) == ["1.18.0", "1.20.1"]
    assert (list(facts.versions["onnx"]), list(facts.versions["python"])) == (["1.16.0"], ["3.11"])
    assert (facts.levels, facts.providers) == (("extended",), ("CUDA", "CPU"))
    assert facts.disabled == ("ConstantFolding", "Pad_Fusion")
    skipped = ":all,disabled_optimizers=ConstantFolding+Pad_Fusion"
    bases = ("onnxruntime==1.18.0", "onnxruntime==1.20.1", "onnxruntime")
    assert facts.list_targets() == tuple(base + option for base in bases for option in (skipped, ":extended"))

    built, parsed = iter_models(report)
    model = onnx.load_model_from_string(built.data)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Mul", "Elu"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), [2.5] * 4)
    np.testing.assert_array_equal(built.inputs["x"].as_numpy(), -np.ones((1, 4), np.float32))
    assert parsed.text.strip() == TEXT


def test_a_script_that_is_cut_into_blocks_is_one() -> None:
    first, _, second = SCRIPT.partition("def build")
    report = parse_report(f"```\n{first}\n```\nand then\n```\ndef build{second}\n```\n")
    (found,) = iter_models(report)
    assert found.data


def test_the_script_of_an_exported_issue_comes_before_the_optimised_model() -> None:
    script = f"model = onnx.parser.parse_model(r'''{TEXT}''').SerializeToString()\n"
    script += "inputs = {'x': np.array([1.0, -2.0], np.float32)}\nsession.run(None, given)"
    (alone,) = iter_models(parse_report(f"'''A script of its own.'''\n{script}"))
    assert alone.text == TEXT
    first, second = iter_models(parse_report(f"```text\n{TEXT}\n```\n```python\n{script}\n```\n"))
    assert (first.block, second.block) == (2, 1)
    np.testing.assert_array_equal(first.inputs["x"].as_numpy(), np.array([1, -2], np.float32))


@pytest.mark.parametrize("size", [3, 3000])
def test_a_model_and_values_in_base64_are_read(size: int) -> None:
    weights = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    nodes = [onnx.helper.make_node("Relu", ["w"], ["y"])]
    held = [onnx.numpy_helper.from_array(np.sign(weights), "w")]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], [], held)).SerializeToString()
    script = f"MODEL = decode({encode_bytes(model)})\n"
    script += f"INPUTS = {{'x': decode({encode_bytes(weights.tobytes())}, np.float32, ({size},))}}\n"
    (found,) = iter_models(parse_report(f"```\n{script}```\n"))
    assert found.data == model
    np.testing.assert_array_equal(found.inputs["x"].as_numpy(), weights)
    plain = f"model = onnx.load_from_string(base64.b64decode({base64.b64encode(model).decode()!r}))"
    (found,) = iter_models(parse_report(f"```\n{plain}\n```\n"))
    assert found.data == model


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.system('touch SEEN')",
        "open('SEEN', 'w')",
        "x = __import__('os').system('touch SEEN')",
        "x = [c for c in ().__class__.__base__.__subclasses__()]",
        "x = eval('1')",
        "x = np.zeros((1 << 40,))",
        "x = np.full(1 << 30, 1.0)",
        "x = [0] * (1 << 40)",
        "x = 9 ** 9 ** 9",
        "x = np.arange(0, 1e18, 1)",
        "x = np.load('/etc/passwd', allow_pickle=True)",
        "x = np.array([open])",
        "x = " + "-" * 50_000 + "1",
        "x = " + "(" * 300 + ")" * 300,
        "x = " + "+".join(["1"] * 20_000),
        "x = 1 / 0",
        "x = [0][7]",
        "x = np.random.randn(99999, 99999)",
        f"x = decode({base64.b64encode(b'z' + zlib.compress(bytes(100 << 20), 1)).decode()!r})",
        f"x = decode({base64.b64encode(b'z12345').decode()!r})",
        "x = decode('123')",
        "x = decode('PTEyMw==', np.float32, (1 << 40,))",
    ],
)
def test_what_is_no_plain_value_has_none(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = Script(code)
    assert "x" not in script.names
    assert not (tmp_path / "SEEN").exists()


def test_a_value_that_is_lost_is_not_an_older_one() -> None:
    assert "shape" not in Script("shape = [1, 2]\nshape = model_shape()").names
    assert Script("a = [1, 2]\nb, c = a\nd = -np.ones((c,), 'float16')").names["d"].tolist() == [-1, -1]


def test_a_page_without_end_is_read_in_its_bounds() -> None:
    report = parse_report("<html><pre>" + "onnxruntime 1.2.3 " * 100_000)
    assert len(report.prose) <= 400_000
    assert list(extract_facts(report).versions["onnxruntime"]) == ["1.2.3"]
    assert parse_report("```\n" * 10_000).blocks == () or len(parse_report("```\na\n" * 10_000).blocks) <= 200
