"""`opsieve replay`: a report is replayed on what it names, and what it lacks is said."""

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest
from slow_params import keep_quick

from opsieve.tui.cli import main

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, 4, 4] x) => (float[1, 1, 5, 5] y)
   <int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}> { t = Pad(x, pads) y = MaxPool<kernel_shape = [2, 2]>(t) }"""
REPORT = f"""Pad is folded into MaxPool with ORT_ENABLE_ALL, ORT_DISABLE_ALL is right.
```
{MODEL}
```
"""


def code_of(*words: str) -> int:
    """The exit code of `opsieve replay`."""
    with pytest.raises(SystemExit) as ended:
        main(["replay", *words])
    return int(str(ended.value.code))


def test_a_report_is_replayed_on_what_is_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "issue.md"
    page.write_text(REPORT)
    code = code_of(str(page), "--no-history", "--offline", "--json", "--seed", "3")
    found = json.loads(capsys.readouterr().out)
    verdicts = {result["target"]: result["verdict"] for result in found["results"]}
    assert found["model"] == "block 1 of the report"
    assert set(verdicts) == {"onnxruntime", "onnxruntime:disable_all"}
    assert verdicts["onnxruntime:disable_all"] == "pass"
    assert found["still"] == (verdicts["onnxruntime"] == "fail") == bool(code)


@pytest.mark.parametrize("name", keep_quick(["x" * 70_000, "file"], 1))
def test_an_input_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    page = tmp_path / "issue.md"
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] file) => (float[2] y) { y = Relu(file) }'
    # The long name fits no model, and its values are passed by.
    fed = f"inputs = {{'{name}': np.array([1.0, 2.0], np.float32)}}"
    page.write_text(f"```\nmodel = onnx.parser.parse_model(r'''{text}''')\n{fed}\n```\n")
    code_of(str(page), "--no-history", "--offline", "-t", "reference", "--json")
    inputs = json.loads(capsys.readouterr().out)["results"][0]["inputs"]
    assert ("inputs.npz" in inputs) == (name == "file")


@pytest.mark.slow
def test_an_exported_issue_replays_as_the_failure_that_it_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, issue = tmp_path / "m.onnx", tmp_path / "issue.md"
    constants = "<int64[6] pads = {0, 0, 0, 0, 0, 1}, float[1, 1, 1] x = {-2}>"
    nodes = "{ t = Pad(x, pads) y = MaxPool<kernel_shape = [2]>(t) }"
    text = f'<ir_version: 7, opset_import: ["": 13]> g () => (float[1, 1, 1] y) {constants} {nodes}'
    onnx.save(onnx.parser.parse_model(text), model)
    with pytest.raises(SystemExit):
        main(["export", str(model), "-t", "onnxruntime", "--as", "issue", "-o", str(issue)])
    # The optimised model, which computes something else, stands above the script.
    assert issue.read_text().index("after optimisation") < issue.read_text().index("import onnx.parser")
    assert code_of(str(issue), "--no-history", "--offline", "-t", "onnxruntime") == 1


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("It fails.", [], "holds no model that can be judged"),
        ("```\n<ir_version: 8>\nnothing\n```", [], "holds no model that can be judged"),
        ("onnxruntime==0.0.1 fails\n```\n" + MODEL + "\n```", [], "--yes installs it"),
        pytest.param(REPORT, ["-t", "no-such-compiler"], "no-such-compiler", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_replayed_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], said: str
) -> None:
    page = tmp_path / "issue.md"
    page.write_text(text)
    assert code_of(str(page), "--no-history", *words) == 2
    assert said in capsys.readouterr().err
