"""The Python API: what the commands do, for models and arrays in memory; the examples of its page are run."""

import doctest
import inspect
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from models import X, chain
from repository import ROOT
from tui_driving import store_at

import opsieve
from opsieve.gen.case.case import Case, save
from opsieve.tui.cli import Commands
from opsieve.tui.samples import SAMPLES

PAGE = ROOT / "docs" / "reference" / "api.md"
CRASH = "fake:crash@Relu>Clip"
MODEL = onnx.load_model_from_string(chain("Exp", "Relu", "Clip", "Tanh").data)


@pytest.fixture(scope="module", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where results go that nobody gave a place: one folder, for in another one other compilers are
    started.
    """
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.mark.slow(seconds=5)
def test_the_examples_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    flags = doctest.ELLIPSIS
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, "api.md", str(PAGE), 0)
    assert len(test.examples) > 20
    failed = doctest.DocTestRunner(optionflags=flags).run(test).failed
    assert failed == 0, capsys.readouterr().out


def test_the_page_names_every_function() -> None:
    assert [name for name in opsieve.__all__ if name not in PAGE.read_text()] == []
    assert all(inspect.getdoc(getattr(opsieve, name)) for name in opsieve.__all__)
    assert set(opsieve.__all__) <= set(dir(opsieve))


# Each command as functions.
FUNCTIONS: dict[str, list[Any]] = {
    "run": [opsieve.run],
    "reduce": [opsieve.reduce],
    "attribute": [opsieve.attribute],
    "bisect": [opsieve.bisect_releases, opsieve.bisect_commits, opsieve.bisect_source],
    "replay": [opsieve.replay],
    "export": [opsieve.export],
    "import": [opsieve.import_cases],
    "fuzz": [opsieve.fuzz],
    "triage": [opsieve.triage_store, opsieve.triage_logs],
    "corpus add": [opsieve.add_to_corpus],
    "corpus run": [opsieve.replay_corpus],
    "corpus diff": [opsieve.compare_corpus],
    "watch": [opsieve.watch],
    "bugs": [opsieve.list_bugs],
    "bugs replay": [opsieve.replay_bugs],
}
# The option of a command and its argument in Python, where the two differ by more than a plural.
ARGUMENT = {
    "models": "model", "case": "model", "what": "case", "place": "store", "folder": "store", "logs": "path",
    "level": "same", "script": "check", "no-check": "check", "no-attribute": "attribute", "rtol": "tolerance",
    "atol": "tolerance", "ops": "operators", "commits": "repository",
    "releases": "package", "package": "packages", "index": "indexes", "as": "kind", "script-files": "scripts",
    "no-history": "history",
}  # fmt: skip
# The results are objects, so nothing prints or writes them; the four switches are variables of the process.
PRINTED = {
    "json",
    "json-lines",
    "quiet",
    "ci",
    "report",
    "junit",
    "sarif",
    "github",
    "fail-on",
    "page",
    "stats",
}
PRINTED |= {"allow-unjudged", "version", "yes", "install", "env", "no-sandbox", "chance"}
# `reduce --verify` checks a file of a result, and `fuzz --auto-triage` runs commands beside the campaign.
# A full disk ends a campaign of the API at once: its caller decides whether to wait.
ONLY_TYPED = {("reduce", "verify"), ("reduce", "store"), ("fuzz", "auto-triage"), ("fuzz", "patience")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_every_option_of_its_command(name: str) -> None:
    top, _, sub = name.partition(" ")
    command = Commands("opsieve").get_command(click.Context(Commands("opsieve")), top)
    assert command is not None
    command = command.commands[sub] if sub else command  # type: ignore[attr-defined]
    taken = {parameter for each in FUNCTIONS[name] for parameter in inspect.signature(each).parameters}
    missing = []
    for parameter in command.params:
        words = [
            word.lstrip("-") for word in parameter.opts if not word.startswith("-") or word.startswith("--")
        ]
        word = words[0]
        names = {word, f"{word}s", ARGUMENT.get(word, word), ARGUMENT.get(str(parameter.name), word)}
        found = {each.replace("-", "_") for each in names} & taken
        if not found and word not in PRINTED and (name, word) not in ONLY_TYPED:
            missing.append(word)
    assert missing == []


def test_the_import_is_light() -> None:
    code = (
        "import sys, opsieve\nheavy = {'torch', 'tvm', 'onnxruntime', 'textual', 'onnx', 'numpy', 'z3',"
        " 'rich', 'sqlite_utils', 'git', 'click'}\nprint(sorted(heavy &"
        " set(sys.modules)))\nopsieve.run\nprint(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reuse'"):
        opsieve.reuse  # type: ignore[attr-defined] # noqa: B018


class Exported:
    """As torch.onnx.export returns it."""

    model_proto = MODEL


@pytest.mark.parametrize(
    "model", [MODEL, MODEL.SerializeToString(), Exported()], ids=["proto", "bytes", "exported"]
)
def test_a_model_in_memory_is_the_model_in_a_file(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(MODEL.SerializeToString())
    case, there = opsieve.open_case(model, X), opsieve.open_case(path, X)
    assert case.program.operators() == there.program.operators() == ["Exp", "Relu", "Clip", "Tanh"]
    assert np.array_equal(case.inputs["x"], X["x"])
    assert np.array_equal(there.inputs["x"], X["x"])


def test_values_that_are_given_replace_those_of_a_case(tmp_path: Path) -> None:
    save(Case(chain("Relu"), X, {"y": np.maximum(X["x"], 0)}), tmp_path / "case")
    assert opsieve.open_case(tmp_path / "case").expected is not None
    case = opsieve.open_case(tmp_path / "case", {"x": X["x"] + 1}, expected={"y": X["x"]})
    assert np.array_equal(case.inputs["x"], X["x"] + 1)
    assert case.expected is not None
    assert np.array_equal(case.expected["y"], X["x"])


@pytest.mark.parametrize(
    ("model", "inputs", "sentence"),
    [
        (3, X, "a model is a path, an onnx.ModelProto, its bytes, a Case or a module of TVM, not a int"),
        (b"", X, "is empty"),
        (MODEL, {"z": X["x"]}, "which is not an input of the model"),
        (MODEL, {"x": X["x"].astype("float64")}, "the value of the input 'x'"),
        (MODEL, {"x": [X["x"]]}, "the value of the input 'x'"),
        ("nowhere.onnx", X, "nowhere.onnx"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(model: Any, inputs: Any, sentence: str) -> None:
    with pytest.raises(opsieve.BadInput, match=re.escape(sentence)) as found:
        opsieve.run(model, inputs)
    assert "\n" not in str(found.value)


def test_one_target_is_a_list_of_one() -> None:
    with pytest.raises(opsieve.BadInput, match=r"targets=\['onnxruntime'\]"):
        opsieve.run(MODEL, X, "onnxruntime")


def test_a_model_that_the_checker_refuses_is_called_by_its_name() -> None:
    broken = onnx.ModelProto()
    broken.CopyFrom(MODEL)
    broken.graph.node[0].op_type = "Relux"
    with pytest.raises(opsieve.BadInput, match=r"^g is not a valid ONNX model"):
        opsieve.run(broken, X, ["fake"])


@pytest.mark.slow
def test_results_are_where_they_are_wanted_and_nothing_else_is_left(
    tmp_path: Path, temporary_files: Path
) -> None:
    def left() -> set[Path]:
        return {*temporary_files.glob("opsieve-reduced-*"), *temporary_files.glob("opsieve-question-*")}

    before = left()
    given = opsieve.reduce(MODEL, X, [CRASH], output=tmp_path / "results")
    assert Path(given.facts["script"]) == tmp_path / "results" / "repro.py"
    assert opsieve.reduce(MODEL, X, ["fake"]).reduction is None
    assert left() == before
    assert Path(opsieve.reduce(MODEL, X, [CRASH]).facts["output"]).parent.parent == temporary_files


def test_a_thread_reduces_as_the_main_thread_does() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(opsieve.reduce, MODEL, X, [CRASH]).result().facts["nodes_after"] == 2


class Cancelled(Exception):
    """What a caller raises."""


def test_what_a_callback_raises_ends_the_reduction_and_keeps_the_best(tmp_path: Path) -> None:
    def stop(at: Any) -> None:
        if at.nodes < 4:
            raise Cancelled

    with pytest.raises(Cancelled):
        opsieve.reduce(MODEL, X, [CRASH], output=tmp_path / "results", progress=stop)
    assert 2 <= len(opsieve.open_case(tmp_path / "results").program.operators()) < 4
    assert opsieve.reduce(MODEL, X, [CRASH], output=tmp_path / "results").facts["nodes_after"] == 2


def test_a_target_that_cannot_be_asked_is_no_agreement() -> None:
    with pytest.raises(AssertionError, match=r"fake:unsupported@Relu: unsupported: "):
        opsieve.assert_agrees(MODEL, X, ["fake:unsupported@Relu"])


def test_the_other_sessions_are_asked_as_the_commands_ask_them(tmp_path: Path) -> None:
    case = opsieve.open_case(SAMPLES / "pad-maxpool-wrong-value")
    assert opsieve.attribute(case, target="onnxruntime")["passes"] == ["Pad_Fusion"]
    with pytest.raises(opsieve.BadInput, match="passes of fake cannot be switched off"):
        opsieve.attribute(MODEL, X, CRASH)
    options: dict[str, Any] = {"good": "a", "bad": "b", "target": CRASH, "dry_run": True}
    with pytest.raises(opsieve.BadInput, match="not a git repository"):
        opsieve.bisect_commits(MODEL, X, tmp_path, **options)
    with opsieve.open_store(store_at(tmp_path / "store")) as store:
        assert store.counts().clusters == len(store.clusters().rows)
