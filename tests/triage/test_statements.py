"""Failures of one statement in a compiler's source, told in different words: one cluster, in a log and in a
store.
"""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st
from stores import done, filled

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.verdict import Verdict
from opsieve.triage.clustering.clusters import VARIES, find_common_text, get_statement
from opsieve.triage.external.external_logs import read_and_cluster
from opsieve.triage.fingerprint.component import Component, ComponentName, make_component
from opsieve.triage.fingerprint.fingerprint import Fingerprint, make_fingerprint
from opsieve.triage.store.finished_test import FoundFailure
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store

HEAD = "Traceback (most recent call last):\n"
FRONTEND = "v/lib/python3.11/site-packages/tvm/relax/frontend/onnx/onnx_frontend.py"
OP = "v/lib/python3.11/site-packages/tvm/relax/op/manipulate.py"


def record(message: str, *frames: str, exception: str = "ValueError", output: str = "") -> dict[str, str]:
    lines = "".join(f"  {frame}\n    x\n" for frame in frames)
    return {
        "backend": "tvm", "phase": "import", "exc_type": exception, "message": message, "output": output,
        "traceback": f"{HEAD}{lines}{exception}: {message}\n",
    }  # fmt: skip


def at(line: int, function: str, file: str = FRONTEND) -> str:
    return f'File "{file}", line {line}, in {function}'


def clusters(folder: Path, *records: dict[str, str]) -> list[str]:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return [each.cluster for each in read_and_cluster(path).assignments]


CALL = at(90, "reshape", OP)
# what was called raised
BRIDGE = at(9, "tvm_ffi.core.Function.__call__", "python/tvm_ffi/cython/function.pxi")


@pytest.mark.parametrize(
    "messages",
    [("Check failed: the LHS b has no known shape", "Check failed: the LHS weight has no known shape"), ("the RHS lv2 of the product has rank 3", "the RHS gv of the product has rank 3"), ("Mismatched type on argument #1, expected `ffi.Array` but got `ffi.SmallStr`", "Mismatched type on argument #1, expected `ffi.Array` but got `ffi.String`"), ("Mismatched type, got N11onnxruntime6TensorE there", "Mismatched type, got N11onnxruntime9TensorSeqE there"), ('input 0 has [name: "perm"\ntype: INTS\n] which cannot be lowered', "input 0 has [] which cannot be lowered"), ("expected 3 but got 4 for (Selu)", "expected 3 but got 4 for n7 (MaxPool)"), ("Cannot use a relax.expr.Var as a shape", "Cannot use a relax.expr.Constant as a shape"),],
)  # fmt: skip
def test_names_of_values_and_types_do_not_split_a_bug(tmp_path: Path, messages: tuple[str, str]) -> None:
    found = clusters(tmp_path, *(record(message, at(5, "_impl_v13"), CALL) for message in messages))
    assert len(set(found)) == 1


def test_a_helper_reached_by_two_callers_is_one_place(tmp_path: Path) -> None:
    helper = at(40, "_normalize_axes")
    records = [
        record("Slice axis 3 is out of range", at(700, "_impl_v13"), helper),
        record("Hardmax axis 3 is out of range", at(900, "_impl_v1"), at(50, "_extent"), helper),
    ]
    assert len(set(clusters(tmp_path, *records))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record("no Erf kernel here", CALL), record("no Gelu kernel here", CALL)),  # operators do not vary
        (record("no shape is known", CALL), record("an axis is twice in the list", CALL)),
        (record("the LHS data is bad here", CALL), record("the LHS weight is bad here", at(91, "reshape", OP))),
        (record("the LHS data is bad here", at(5, "f"), CALL, BRIDGE),
         record("the LHS weight is bad here", at(5, "g", FRONTEND.replace("onnx_f", "f")), CALL, BRIDGE)),
    ],
)  # fmt: skip
def test_other_texts_lines_operators_and_callers_are_other_bugs(
    tmp_path: Path, one: dict[str, str], other: dict[str, str]
) -> None:
    assert len(set(clusters(tmp_path, one, other))) == 2


def test_what_raises_by_itself_is_one_place_whoever_called(tmp_path: Path) -> None:
    other = FRONTEND.replace("onnx_f", "f")
    records = [
        record("the LHS data is bad here", at(5, "f"), CALL),
        record("the LHS weight is bad here", at(5, "g", other), CALL),
    ]
    assert len(set(clusters(tmp_path, *records))) == 1
    said = "'int' object has no attribute 'inputs'"  # a caller's mistake maybe, until three call
    slips = [
        record(said, at(line, name, other.replace("f", name)), CALL, exception="AttributeError")
        for line, name in ((7, "abs"), (8, "size"), (9, "exp"))
    ]
    assert len(set(clusters(tmp_path, *slips[:2]))) == 2
    assert len(set(clusters(tmp_path, *slips))) == 1


def test_one_raise_has_one_text_however_much_of_a_program_it_shows(tmp_path: Path) -> None:
    dumps = ["x", "FLOAT 2 by 3 of node_one in graph main with y and z as results and w beside"]
    found = clusters(tmp_path, *(record(f"unexpected attributes {text} of node", CALL) for text in dumps))
    assert len(set(found)) == 1


def test_what_the_interpreter_says_of_a_value_may_be_a_callers_mistake_until_three_call(
    tmp_path: Path,
) -> None:
    said, helper = "'int' object has no attribute 'inputs'", at(40, "_get_input")
    records = [
        record(said, at(line, name), helper, exception="AttributeError")
        for line, name in ((7, "abs"), (8, "size"), (9, "exp"))
    ]
    assert len(set(clusters(tmp_path, *records[:2]))) == 2
    assert len(set(clusters(tmp_path, *records))) == 1


def test_a_death_on_a_line_is_one_bug_whoever_called(tmp_path: Path) -> None:
    def died(caller: str) -> dict[str, object]:
        dump = (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n "
            f' File "{FRONTEND}", line 40 in new_dim\n  File "{OP}", line 3 in {caller}\n'
        )
        return {"backend": "tvm", "phase": "import", "message": "SIGSEGV", "signal": 11, "output": dump}

    assert len(set(clusters(tmp_path, died("resize"), died("slice")))) == 1  # type: ignore[arg-type]


def test_a_nameless_function_is_known_by_the_only_operator_or_by_its_line(tmp_path: Path) -> None:
    said, one, other = "inputs of this kind are not handled", at(5, "_impl_v13"), at(905, "_impl_v13")
    records = [
        {**record(said, frame), "op": op}
        for frame, op in ((one, "MaxPool"), (one, "AveragePool"), (other, "Erf"))
    ]
    first, second, third = clusters(tmp_path, *records)
    assert first == second != third


def test_the_root_of_a_chain_counts_in_a_log(tmp_path: Path) -> None:
    """The outer exception says only that a pass failed."""

    def chained(cause: str) -> dict[str, str]:
        inner = (
            f"{HEAD}  {at(40, 'fold')}\n    x\n{cause}\n\nThe above exception was the direct cause of the"
            " following exception:\n\n"
        )
        outer = record("a pass failed", at(7, "run_passes"), exception="PassError")
        return {**outer, "traceback": inner + outer["traceback"]}

    assert (
        len(set(clusters(tmp_path, chained("KeyError: 'a'"), chained("ValueError: no shape is there")))) == 2
    )


def test_a_log_beside_the_message_tells_where_a_process_died(tmp_path: Path) -> None:
    def died(function: str) -> dict[str, object]:
        dump = (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n "
            f' File "{FRONTEND}", line 40 in {function}\n'
        )
        return {"backend": "tvm", "phase": "import", "message": "SIGSEGV", "signal": 11, "output": dump}

    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(json.dumps(died(name)) + "\n" for name in ("_parse_attr", "_parse_input", "_parse_attr"))
    )
    first, second, third = (each.cluster for each in read_and_cluster(path).assignments)
    assert first == third != second


def failure(message: str, line: int = 40) -> FoundFailure:
    frames = (Frame("python", "reshape", OP, line),)
    seen = Observation("tvm", "", "error", "compile", exception="ValueError", message=message, frames=frames)
    verdict = Verdict("fail", "", "error", "compile", message)
    return FoundFailure("onnxruntime", verdict, make_fingerprint(verdict, seen, ["Relu"]), (seen,))


def test_a_store_joins_them_and_says_why(tmp_path: Path) -> None:
    words = ["data", "weight", "bias"]
    tests = [done(at, failure(f"the operand {word} has no known shape")) for at, word in enumerate(words)]
    store = filled(tmp_path / "s", [*tests, done(3, failure("the operand other has no known shape", 41))])
    with Queries(store) as queries:
        assert {row.id: row.members for row in queries.clusters().rows} == {"c1": 3, "c4": 1}
        assert VARIES in queries.fingerprints("c1")[1].why
    (store / "index.sqlite").unlink()
    with Store(store) as writer:
        writer.adopt_cases()
    with Queries(store) as queries:
        assert {row.id: row.members for row in queries.clusters().rows} == {"c1": 3, "c4": 1}


def of(message: str) -> list[Component]:
    return [make_component(ComponentName.MESSAGE, message, True, "said")]


WORDS = st.lists(
    st.sampled_from(["the", "shape", "of", "data", "is", "wrong", "Relu", "<n>", "w"]), min_size=1, max_size=9
)


@given(WORDS, WORDS)
@example(["the", "Relu", "the"], ["Relu", "the", "the"])
def test_what_two_messages_share_does_not_depend_on_their_order(one: list[str], other: list[str]) -> None:
    here, there = (
        find_common_text(of(" ".join(one)), of(" ".join(other))),
        find_common_text(of(" ".join(other)), of(" ".join(one))),
    )
    assert here == there
    assert find_common_text(of(" ".join(one)), of(" ".join(one))) == " ".join(one)


def test_only_errors_with_a_known_statement_have_one() -> None:
    found: Fingerprint = failure("no room").fingerprint
    assert get_statement(found.components).endswith("manipulate.py:40")
    assert (
        get_statement([part for part in found.components if part.name is not ComponentName.STATEMENT]) == ""
    )
