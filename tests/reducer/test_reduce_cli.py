"""The `reduce` command as a user types it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from commands import opsieve
from failing import host
from models import program
from onnx.parser import parse_model
from waiting import wait_until

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, load, save
from opsieve.gen.errors import BadInput, NoFailure
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.irs.onnx.view import Subject
from opsieve.reducer.engine.form import Progress
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.passes.onnx import NODES
from opsieve.reducer.sessions.reduction import Listeners, reduce_failure
from opsieve.reducer.sessions.session import ReductionRequest, Session
from opsieve.triage.fingerprint.fingerprint import make_fingerprint
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure
from opsieve.triage.store.store import Store
from opsieve.tui.cli import SETTINGS
from opsieve.tui.commands.examine.reduce_command import command, main

KEYS = [
    "target",
    "kind",
    "fingerprint",
    "nodes_before",
    "nodes_after",
    "inner_nodes_after",
    "bytes_after",
    "checks",
    "node_checks",
    "invalid_candidates",
    "seconds",
    "same",
    "minimal",
    "slippage",
    "slipped",  # its name before 0.2
    "output",
    "script",
]


@pytest.fixture
def case(tmp_path: Path) -> Path:
    save(host(2, 16, [["Tanh", "Exp"]]), tmp_path / "case")
    return tmp_path / "case"


def reduce(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, [str(item) for item in arguments], standalone_mode=False, **SETTINGS)
    if isinstance(result.exception, NoFailure):
        return result.exception.exit_code, result.stdout, str(result.exception)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout, result.stderr


def test_the_result_is_a_case_with_a_story_that_verify_agrees_with(case: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, printed, talk = reduce(case, "-t", "fake:wrong@Tanh>Exp", "-o", out, "--json")
    facts = json.loads(printed)
    assert code == 0
    assert facts.keys() >= set(KEYS)
    assert (facts["nodes_after"], facts["kind"], facts["same"], facts["minimal"]) == (
        2,
        "mismatch",
        True,
        True,
    )
    assert "mismatch" in talk
    again = load(out)
    assert (out / "case.reduced.onnx").read_bytes() == again.program.model
    story = json.loads((out / "reduction.json").read_text())
    assert (
        len([attempt for attempt in story["attempts"] if attempt["answer"] != "invalid"]) == facts["checks"]
    )
    assert {line["name"] for line in story["certificate"]} >= {
        "nodes",
        "outputs",
        "bypass",
        "dimensions",
        "values",
    }
    assert reduce(out, "--verify")[0] == 0
    assert reduce(case, "-t", "fake:wrong@Tanh>Exp", "--verify")[0] == 1


def test_verify_contradicts_a_story_that_claims_too_much(tmp_path: Path) -> None:
    """A result that somebody else made, or an older version: nodes behind a user's operator, whose types
    nothing tells, were never tried.
    """
    text = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[2, 3] x) => (float[2, 3] y)
        { a = acme.Swirl (x)  b = Relu (a)  y = acme.Swirl (b) }"""
    program = OnnxProgram(parse_model(text).SerializeToString())
    folder = tmp_path / "result"
    save(Case(program, {"x": np.ones((2, 3), np.float32)}, parameters={"target": "fake:crash@Relu"}), folder)
    story = {"target": "fake:crash@Relu", "level": "loose", "minimal": True, "same": True, "nodes_after": 3}
    (folder / "reduction.json").write_text(json.dumps(story))
    code, printed, talk = reduce(folder, "--verify", "--json")
    facts = json.loads(printed)
    assert (code, facts["minimal"]) == (1, False)
    assert "held fixed: a crash" in talk  # at the level of the story, not of this request
    assert {part["part"] for part in facts["parts"] if part["same"]} >= {"a", "y"}
    code, printed, _ = reduce(folder, "-o", tmp_path / "out", "--same", "loose", "--json")
    facts = json.loads(printed)
    assert (code, facts["nodes_after"], facts["minimal"], facts["not_tried"]) == (0, 1, True, [])
    assert facts["census"]["nodes"] == {"parts": 1, "tried": 0, "simplest": 1}
    assert reduce(tmp_path / "out", "--verify")[0] == 0


def test_a_model_that_fails_nowhere_ends_with_3_and_says_what_was_tried(case: Path, tmp_path: Path) -> None:
    code, printed, talk = reduce(case, "-t", "fake", "-o", tmp_path / "out")
    assert (code, printed) == (3, "")
    assert "fake: pass: agrees" in talk
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.onnx"], "cannot read"),
        (["{case}", "-t", "nobody"], "there is no backend"),
        (["{case}", "-t", "fake:wrong@Tanh", "-o", "{case}"], "holds no reduction"),
        (["{case}", "--check", "nowhere.sh", "-o", "{out}"], "cannot be started"),
        (["{case}", "--same", "exactly"], "Invalid value for '--same'"),
        (["{case}", "--seconds", "0"], "0<x<=86400"),
    ],
)
def test_bad_usage_is_one_sentence_and_2(
    case: Path, tmp_path: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [item.format(case=case, out=tmp_path / "out") for item in arguments]
    with pytest.raises(SystemExit) as end:
        main(filled)
    talk = capsys.readouterr().err.strip().split("\n")
    assert end.value.code == 2
    assert sentence in talk[-1]
    assert talk[-1].startswith("reduce: ")


def test_interrupted_it_ends_with_130_and_the_best_so_far_is_there(case: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "from opsieve.tui.commands.examine.reduce_command import main; main()"
    arguments = [str(case), "-t", "fake:hang@Tanh>Exp", "-o", str(out), "--seconds", "1.5"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: b"same" in _journal(out), process)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Interrupted" in talk
    assert load(out).inputs


def _journal(folder: Path) -> bytes:
    path = folder / "attempts.jsonl"
    return path.read_bytes() if path.exists() else b""


def test_neither_textual_nor_a_compiler_is_imported_for_help() -> None:
    code = (
        "import sys; from opsieve.tui.commands.examine.reduce_command import command\n"
        "try: command(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'textual', 'onnxruntime', 'onnx', 'numpy', 'tvm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_script_shows_the_failure_by_itself(tmp_path: Path) -> None:
    # No bug of a released compiler is needed for that: the script's own comparison is what is tried.
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    save(Case(OnnxProgram(model.SerializeToString()), {"x": np.ones(2, np.float32)}), tmp_path / "neg")
    check = tmp_path / "check"
    check.write_text("#!/bin/sh\nexit 0\n")
    check.chmod(0o755)
    code, _, _ = reduce(tmp_path / "neg", "--check", check, "-o", tmp_path / "out")
    assert code == 0
    assert not (tmp_path / "out" / "repro.py").exists()


@pytest.mark.slow(seconds=4)
def test_a_case_of_a_store_is_reduced_on_its_own_target_by_its_folder_or_its_id(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    campaign = Campaign("c", "tests", 0, ("fake:faults=crash@Tanh>Exp",))
    whole, target = load(case), resolve("fake:crash@Tanh>Exp")
    with Workers() as workers, Store(tmp_path / "store") as store:
        judged = judge_program(whole.program, whole.inputs, target, ObservationCache(workers))
        key = make_fingerprint(judged.verdict, judged.observations[0], ["Tanh"])
        found = FoundFailure(str(target), judged.verdict, key, judged.observations)
        store.begin_campaign(campaign)
        store.record_tests(campaign, [FinishedTest(0, whole, {str(target): ("fail", 0.1)}, (found,))])
    code, printed, _ = reduce(tmp_path / "store" / "cases" / key.key / "1", "--json")
    facts = json.loads(printed)
    assert (code, facts["target"], facts["nodes_after"]) == (0, "fake:crash@Tanh>Exp", 2)
    assert facts["output"] == f"{key.key}-1.reduced/case.reduced.onnx"
    assert json.loads(reduce(key.key, "--store", "store", "-o", "other", "--json")[1])["nodes_after"] == 2
    with pytest.raises(BadInput, match="names no cluster"):
        reduce("nobody", "--store", "store")


def test_json_has_its_keys_where_nothing_fails(case: Path, tmp_path: Path) -> None:
    code, printed, _ = reduce(case, "-t", "fake", "-o", tmp_path / "out", "--json")
    facts = json.loads(printed)
    assert code == 3
    assert facts.keys() >= {*KEYS, "message", "replays", "finished"}
    assert (facts["same"], facts["minimal"], facts["output"], facts["nodes_after"]) == (False, False, "", 18)
    assert "fake: pass: agrees" in facts["message"]


class Impatient:
    """A listener that interrupts as soon as anything was tested."""

    def say(self, sentence: str) -> None:
        """Nothing to do."""

    def progress(self, at: Progress) -> None:
        raise KeyboardInterrupt


# The same question, and another one, whose journal begins anew.
@pytest.mark.slow(seconds=4)
@pytest.mark.parametrize("seconds", [30.0, 29.0])
def test_a_kept_best_is_replaced_only_by_something_simpler(
    case: Path, tmp_path: Path, seconds: float
) -> None:
    out = tmp_path / "out"
    assert reduce(case, "-t", "fake:wrong@Tanh>Exp", "-o", out)[0] == 0
    best = load(out).program.data
    (out / "attempts.jsonl").write_bytes((out / "attempts.jsonl").read_bytes().split(b"\n")[0] + b"\n")
    targets = ("fake:wrong@Tanh>Exp",)
    request = ReductionRequest(case, None, None, targets, None, "fingerprint", None, out, 1, 0, seconds)
    with (
        Workers() as workers,
        pytest.raises(KeyboardInterrupt),
        Session(request, [workers], Impatient()) as session,
    ):
        session.reduce()
    assert load(out).program.data == best
    assert load(out).parameters["target"] == targets[0]


def test_an_interrupted_result_says_that_it_is_one(case: Path, tmp_path: Path) -> None:
    class Later(Impatient):
        def progress(self, at: Progress) -> None:
            if at.nodes < 40:
                raise KeyboardInterrupt

    out = tmp_path / "out"
    request = ReductionRequest(
        case, None, None, ("fake:wrong@Tanh>Exp",), None, "fingerprint", None, out, 1, 0, 30.0
    )
    with (
        Workers() as workers,
        pytest.raises(KeyboardInterrupt),
        Session(request, [workers], Later()) as session,
    ):
        session.reduce()
    story = json.loads((out / "reduction.json").read_text())
    assert (story["finished"], story["same"], story["minimal"]) == (False, True, False)
    assert story["nodes_after"] == len(load(out).program.operators()) < 40


@pytest.mark.slow
def test_a_second_bug_is_said(tmp_path: Path) -> None:
    save(host(5, 40, [["Tanh", "Exp"], ["Tanh", "Exp"]]), tmp_path / "two")
    facts = json.loads(
        reduce(tmp_path / "two", "-t", "fake:wrong@Tanh>Exp", "-o", tmp_path / "out", "--json")[1]
    )
    assert (facts["nodes_after"], facts["rest_fails"]) == (2, "same")
    assert (tmp_path / "out" / "other_failures" / "rest" / "model.onnx").is_file()
    save(host(5, 40, [["Tanh", "Exp"]]), tmp_path / "one")
    facts = json.loads(
        reduce(tmp_path / "one", "-t", "fake:wrong@Tanh>Exp", "-o", tmp_path / "out1", "--json")[1]
    )
    assert facts["rest_fails"] == ""


@pytest.mark.parametrize("second", ["wrong@Sin", "unsupported@Sin>Cos/run"])
def test_a_second_bug_of_another_kind_is_said(workers: Workers, second: str) -> None:
    """A wrong result, or what the optimiser itself makes impossible, is no failure to a test that looks for a
    crash.
    """
    found = host(5, 30, [["Tanh", "Exp"], ["Sin", "Cos"]])
    start = Subject(found.program.proto, found.inputs, {})
    premise = find(found, [resolve(f"fake:faults=crash@Tanh>Exp+{second}")], None, workers)
    result = reduce_failure(
        OnnxReduction(), start, premise, [workers], "fingerprint", Journal(""), Listeners(), [NODES]
    )
    assert result.rest_fails == "other"
    assert any(name == "rest" or name.startswith("fake-error-") for name in result.slippage)


def test_a_second_bug_in_the_same_words_is_told_by_the_pass_that_it_needs(workers: Workers) -> None:
    """DivMulFusion and SimplifiedLayerNormFusion of onnxruntime print one sentence; each cure is of one."""
    text = """g (float[4] x) => (float[4] t, float[4] r)
        <float two = {2}, float eps = {0.5}, float[4] w = {1, 1, 1, 1}, float one = {1}> {
        p = Pow (x, two)  v = ReduceMean <axes = [-1], keepdims = 1> (p)  e = Add (v, eps)
        q = Sqrt (e)  n = Div (x, q)  r = Mul (w, n)
        b = Abs (x)  a = Identity (b)  c = Div (one, b)  t = Mul (c, a) }"""
    start = Subject(program(text, opset=17).proto, {"x": np.ones(4, np.float32)}, {})
    premise = find(Case(start.program, start.inputs), [resolve("onnxruntime")], None, workers)
    journal = Journal("")
    result = reduce_failure(
        OnnxReduction(), start, premise, [workers], "fingerprint", journal, Listeners(), [NODES]
    )
    assert result.best.program.operators() == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]
    assert result.rest_fails == "other"


def test_a_model_that_passes_ends_with_3_and_names_each_compiler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sound.onnx"
    path.write_bytes(program("g (float[2] x) => (float[2] y) { y = Relu (x) }", 18, 9).data)
    targets = ("-t", "fake:crash@Exp", "-t", "onnxruntime", "-t", "onnxoptimizer")
    code, out, err = opsieve("reduce", path, *targets, "-o", tmp_path / "reduced", capsys=capsys)
    assert (code, out) == (3, "")
    assert re.fullmatch(
        "opsieve: no failure to work on: fake:crash@Exp: pass.*; onnxruntime: pass.*; onnxoptimizer:"
        " pass.*\n",
        err,
    )
    assert not (tmp_path / "reduced").exists()
