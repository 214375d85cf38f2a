"""Clusters of a log of one version: what lines, callers and looked-up keys tell apart, and what they join."""

import json
from pathlib import Path

import pytest

from opsieve.triage.external.external_logs import read_and_cluster

HOME = "v/lib/python3.11/site-packages/acme"


def record(said: str, *calls: str) -> dict[str, str]:
    """A failure whose calls, innermost last, are `file:line function`."""
    lines = ""
    for call in ("__init__.py:8 compile", *calls):
        place, function = call.split()
        file, line = place.split(":")
        lines += f'  File "{HOME}/{file}", line {line}, in {function}\n    x\n'
    exception, _, message = said.partition(": ")
    trace = f"Traceback (most recent call last):\n{lines}{said}\n"
    return {
        "backend": "acme",
        "phase": "compile",
        "exc_type": exception,
        "message": message,
        "traceback": trace,
    }


def cluster(folder: Path, *records: dict[str, str]) -> list[str]:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    found = read_and_cluster(path).assignments
    assert all(each.cluster.startswith("acme-error-") for each in found)
    return [each.cluster for each in found]


def test_one_sentence_at_two_places_is_two_bugs(tmp_path: Path) -> None:
    said = "ValueError: unsupported layout {} of {}"
    one = [record(said.format(*words), "conv.py:11 lower") for words in (("NCHW", "x_1"), ("linear", "t"))]
    other = [record(said.format(*words), "conv.py:24 lower") for words in (("NCHW", "y"), ("linear", "z_3"))]
    first, second, third, fourth = cluster(tmp_path, *one, *other)
    assert first == second != third == fourth


def test_a_method_of_one_name_in_two_classes_is_two_bugs(tmp_path: Path) -> None:
    said = "NotImplementedError: dilated kernels are not handled"
    first, second = cluster(tmp_path, record(said, "conv.py:9 lower"), record(said, "conv.py:25 lower"))
    assert first != second


def test_lines_say_nothing_where_versions_may_differ(tmp_path: Path) -> None:
    """No call further out is common to two failures."""
    said = "ValueError: no rank is known"
    moved = [record(said, "conv.py:9 lower"), record(said, "conv.py:25 lower")]
    moved[1]["traceback"] = moved[1]["traceback"].replace("line 8", "line 80")
    assert len(set(cluster(tmp_path, *moved))) == 1


CALLERS = ("conv.py:5 lower", "pool.py:4 convert_pool", "pad.py:14 convert_pad")


@pytest.mark.parametrize(
    "said", ["IndexError: list index out of range", "ValueError: expected rank 3 but got 4"]
)
def test_mistakes_of_three_callers_of_a_shared_function_are_three_bugs(tmp_path: Path, said: str) -> None:
    helper = "util.py:12 check"
    records = [record(said, caller, helper) for caller in CALLERS for _ in range(2)]
    assert len(set(cluster(tmp_path, *records))) == 3
    many = [
        record(said, f"f{number}.py:3 f{number}", "util.py:12 slice_of")
        for number in range(5)
        for _ in range(2)
    ]
    assert len(set(cluster(tmp_path, *many))) == 1


@pytest.mark.parametrize(
    "helpers",
    [["util.py:12 check_rank"], ["util.py:17 require", "util.py:12 check_that"], ["util.py:12 expectRank"]],
)
def test_a_check_that_fails_is_a_mistake_of_whoever_asked_for_it(tmp_path: Path, helpers: list[str]) -> None:
    said = "ValueError: expected rank 3 but got 4"
    records = [record(said, f"f{number}.py:3 f{number}", *helpers) for number in range(5) for _ in range(2)]
    assert len(set(cluster(tmp_path, *records))) == 5
    # In the checking function itself something else failed.
    slip = "AttributeError: 'Shape' object has no attribute 'rnk'"
    records = [record(slip, f"f{number}.py:3 f{number}", *helpers) for number in range(5) for _ in range(2)]
    assert len(set(cluster(tmp_path, *records))) == 1


@pytest.mark.parametrize(
    "said",
    [
        "AttributeError: '{}' object has no attribute 'same_parent_'",
        "TypeError: {}() got an unexpected keyword argument 'dialect'",
        "TypeError: {}() missing 1 required positional argument: 'axis'",
    ],
)
def test_what_a_line_asks_for_in_vain_is_one_bug_for_each_caller_and_class(tmp_path: Path, said: str) -> None:
    records = [
        record(said.format(what), f"{caller}.py:3 {caller}", "simplify.py:9 flat")
        for what, caller in (("Mul", "a"), ("And", "a"), ("Mul", "b"), ("Or", "c"), ("Or", "c"), ("Add", "b"))
    ]
    assert len(set(cluster(tmp_path, *records))) == 1


def chained(first: dict[str, str], link: str, last: dict[str, str]) -> dict[str, str]:
    trace = f"{first['traceback']}\n{link}\n\n{last['traceback']}"
    return {**last, "traceback": trace}


DURING = "During handling of the above exception, another exception occurred:"
CAUSE = "The above exception was the direct cause of the following exception:"


def test_what_a_handler_calls_fails_on_its_own(tmp_path: Path) -> None:
    """A look-up that missed its cache is no part of the bug in what fills the cache."""
    calls = ("lexer.py:30 get_lexer", "lexer.py:60 make_lexer", "lexer.py:90 has_newline")
    said = "ValueError: unsupported combination"
    plain = record(said, *calls)
    missed = [
        chained(record(f"KeyError: {key}", calls[0]), DURING, record(said, *calls)) for key in ("'W'", "'V'")
    ]
    assert len(set(cluster(tmp_path, plain, *missed))) == 1
    # In one function, but Python raised it, and not a statement `raise`.
    again = chained(record("KeyError: 'W'", calls[0]), DURING, record("TypeError: f() got no x", calls[0]))
    first, second = cluster(tmp_path, record("TypeError: f() got no x", calls[0]), again)
    assert first == second


@pytest.mark.parametrize("link", [DURING, CAUSE])
def test_an_exception_that_replaces_another_has_its_cause(tmp_path: Path, link: str) -> None:
    direct = record("AttributeError: 'Rule' object has no attribute 'nme'", "tree.py:9 build")
    outer = record('VisitError: Error in rule "expansion": no attribute', "visit.py:7 visit")
    outer["traceback"] = outer["traceback"].replace("    x\nVisit", "    raise VisitError(rule)\nVisit")
    inner = record(
        "AttributeError: 'Rule' object has no attribute 'nme'", "visit.py:5 visit", "tree.py:9 build"
    )
    inner["traceback"] = inner["traceback"].replace(
        '  File "' + HOME + '/__init__.py", line 8, in compile\n    x\n', ""
    )
    other = record(
        "AttributeError: 'Rule' object has no attribute 'nme'", "visit.py:5 visit", "tree.py:20 walk"
    )
    other["traceback"] = other["traceback"].replace(
        '  File "' + HOME + '/__init__.py", line 8, in compile\n    x\n', ""
    )
    found = cluster(tmp_path, direct, chained(inner, link, outer), chained(other, link, outer))
    assert found[0] == found[1] != found[2]


def test_a_text_of_placeholders_says_nothing_of_who_called(tmp_path: Path) -> None:
    records = [record("E: 3 4: 5", f"f{number}.py:3 f{number}", "util.py:12 report") for number in range(8)]
    assert len(set(cluster(tmp_path, *records))) == 8


def test_one_call_of_one_statement_is_one_bug_whatever_is_further_out(tmp_path: Path) -> None:
    inner = ("shape.py:50 infer", "shape.py:22 unsqueeze")
    records = [
        record("IndexError: list index out of range", *outer, *inner) for outer in ((), ("sub.py:3 f",))
    ]
    assert len(set(cluster(tmp_path, *records))) == 1


def test_a_key_that_the_compiler_looked_up_names_the_bug(tmp_path: Path) -> None:
    helper = "util.py:12 attribute"
    keys = [
        record(f"KeyError: '{key}'", caller, helper)
        for key, caller in zip(("mode", "pads"), CALLERS[:2], strict=True)
    ]
    assert len(set(cluster(tmp_path, *keys))) == 2
    direct = [
        record(f"KeyError: '{key}'", f"conv.py:{line} lower") for key, line in (("mode", 3), ("pads", 5))
    ]
    assert len(set(cluster(tmp_path, *direct))) == 2


@pytest.mark.parametrize(
    "keys",
    [
        ("(<Kind.ADD: 1>, 'f32')", "(<Kind.MUL: 2>, 'bool')", "(<Kind.MOD: 5>, 'i64')"),
        ("<Kind.POW: 4>", "<Kind.SUB: 3>", "<Kind.MOD: 5>"),
        ("(2, 3)", "(14, 0)", "(1, 1)"),
        ("'x_1'", "'weight'", "'conv'"),
        ("dtype('float32')", "dtype('int8')", "<class 'int'>"),
    ],
)
def test_keys_that_the_program_chose_do_not_split_a_bug(tmp_path: Path, keys: tuple[str, ...]) -> None:
    records = [record(f"KeyError: {key}", "passes.py:34 codegen", "util.py:26 kernel") for key in keys]
    assert len(set(cluster(tmp_path, *records))) == 1


@pytest.mark.parametrize(
    "said",
    [
        "PassError: pass '{}' failed on main: 'weight'",
        "RuntimeError: An error occurred when running the '{}' pass after the following passes: []",
        "PassError: while running pass {}: no shape",
    ],
)
def test_a_runner_of_passes_that_hides_the_cause_names_the_pass(tmp_path: Path, said: str) -> None:
    records = [
        record(said.format(name), "passes.py:28 run") for name in ("fuse_conv", "fold_const", "fuse_conv")
    ]
    first, second, third = cluster(tmp_path, *records)
    assert first == third != second


def test_a_container_that_raises_by_itself_is_a_place(tmp_path: Path) -> None:
    said = "ValueError: this table has no order"
    callers = ("items.py:19 append", "items.py:83 raw_append")
    first, second = cluster(tmp_path, *(record(said, call, "table.py:9 __getitem__") for call in callers))
    assert first == second


def test_steps_that_are_named_like_checks_are_places(tmp_path: Path) -> None:
    said = "ValueError: cannot handle <Dumper object at 0x7f>"
    steps = ("emit.py:115 emit", "emit.py:228 expect_document_root", "emit.py:256 expect_node")
    calls = (
        (*steps, "emit.py:390 expect_mapping"),
        (*steps, "emit.py:401 expect_key", "emit.py:9 check_key"),
    )
    first, second, third, fourth = cluster(tmp_path, *(record(said, *each) for each in calls * 2))
    assert first == third != second == fourth


def test_a_visitor_that_calls_itself_keeps_the_frames_that_it_called(tmp_path: Path) -> None:
    """A deep program is no endless recursion."""
    visits = ["cse.py:30 visit_region", "cse.py:41 visit_block"]
    said = "TypeError: no effects are known"
    calls = ("traits.py:66 effects", "traits.py:80 effects")
    flat, deep, other = (
        record(said, *visits * turns, "cse.py:50 simplify", call)
        for turns, call in ((1, calls[0]), (5, calls[0]), (5, calls[1]))
    )
    first, second, third = cluster(tmp_path, flat, deep, other)
    assert first == second != third


@pytest.mark.parametrize(
    ("said", "raiser"),
    [
        ("ParseError: expected a keyword", "lexer.py:9 raise_error"),
        ("ParseError: expected a keyword", "parser.py:9 _parse_error"),
        ("ParseError: expected a keyword", "parser.py:9 throwUnexpectedToken"),
        ("IndexError: list index out of range", "inputs.py:9 __getitem__"),
    ],
)
def test_a_function_that_only_raises_is_no_place_of_a_bug(tmp_path: Path, said: str, raiser: str) -> None:
    callers = ("ops.py:10 parse_if", "ops.py:50 parse_for")
    first, second, third = cluster(
        tmp_path, *(record(said, call, raiser) for call in (callers[0], callers[0], callers[1]))
    )
    assert first == second != third


def test_messages_of_one_statement_that_begin_alike_are_one_text(tmp_path: Path) -> None:
    said = "ValueError: no effects known for {}"
    whole = "module { " + " ".join(f"op{i}(%{i})" for i in range(40)) + " }"
    first, second = cluster(
        tmp_path,
        *(record(said.format(what), "traits.py:66 effects") for what in (whole, "load %m at %i, %j")),
    )
    assert first == second
    nodes = ("Name(name='theta', ctx='load')", "Const(value=0)", "Call(node=Name(name='f'), args=[])")
    found = cluster(
        tmp_path, *(record(f"ValueError: cannot handle {node}", "fold.py:8 visit_node") for node in nodes)
    )
    assert len(set(found)) == 1


@pytest.mark.parametrize("folder", ["/home/u/src/acme", "/home/u/acme-main/acme"])
def test_callers_of_a_library_are_the_compilers_own_in_an_editable_install_too(
    tmp_path: Path, folder: str
) -> None:
    library = (
        '  File "v/lib/python3.11/site-packages/onnx/helper.py", line 120, in make_node\n    raise E(x)\n'
    )
    records = [record("ValueError: bad node", call) for call in ("conv.py:9 lower", "pool.py:20 lower")]
    for each in records:
        each["traceback"] = (
            each["traceback"].replace(HOME, folder).replace("ValueError", library + "ValueError", 1)
        )
    first, second = cluster(tmp_path, *records)
    assert first != second


def test_a_traceback_without_the_compilers_frames_tells_nothing(tmp_path: Path) -> None:
    """JAX removes its own; what is left is the program that called it."""
    note = (
        "--------------------\nFor simplicity, JAX has removed its internal frames from the traceback of the"
    )
    records = [record("ValueError: input 0 cannot be lowered") for _ in range(2)]
    for number, each in enumerate(records):
        own = f'  File "/home/u/run.py", line {number + 10}, in main{number}\n    jax.jit(f)(x)\n'
        each["traceback"] = (
            f"Traceback (most recent call last):\n{own}ValueError: input 0 cannot be lowered\n{note}"
            " following exception. Set JAX_TRACEBACK_FILTERING=off to include these.\n"
        )
    first, second = cluster(tmp_path, *records)
    assert first == second


@pytest.mark.parametrize(
    ("said", "bugs"),
    [
        ("AttributeError: 'NoneType' object has no attribute 'add_use'", 2),
        # A method of Python's own types: the statement asks for the right thing.
        ("AttributeError: 'Name' object has no attribute 'startswith'", 2),
        ("AttributeError: 'Name' object has no attribute 'add_use'", 1),
        # A function looks up by itself what it calls.
        ("TypeError: 'NoneType' object is not callable", 1),
    ],
)
def test_a_wrong_value_was_passed_by_a_caller(tmp_path: Path, said: str, bugs: int) -> None:
    place = "core.py:99 set_operands"
    callers = ("core.py:52 clone", "core.py:97 create")
    wrong = [record(said, call, place) for call in callers for _ in range(2)]
    assert len(set(cluster(tmp_path, *wrong))) == bugs


def test_callers_that_each_pass_a_class_of_their_own_are_wrong_themselves(tmp_path: Path) -> None:
    said = "AttributeError: '{}' object has no attribute 'symbol'"
    calls = {
        "While": "build.py:228 visit_while",
        "Do": "build.py:224 visit_do",
        "For": "build.py:282 visit_for",
    }
    own = [record(said.format(kind), call, "build.py:157 add") for kind, call in calls.items()]
    assert len(set(cluster(tmp_path, *own * 2))) == 3
    mixed = [record(said.format(kind), call, "build.py:157 add") for kind in calls for call in calls.values()]
    assert len(set(cluster(tmp_path, *mixed))) == 1


def test_who_called_a_dispatching_method_passed_the_wrong_value(tmp_path: Path) -> None:
    said = "AttributeError: 'NoneType' object has no attribute 'fields'"
    dispatch = ("visitor.py:42 visit", "visitor.py:46 generic_visit")
    one, other = ([record(said, caller, *dispatch)] * 2 for caller in ("a.py:5 lower", "b.py:7 fold"))
    keys = cluster(tmp_path, *one, *other)
    assert keys[0] == keys[1] != keys[2] == keys[3]
