"""Public issues that people exported: read, kept, and found again from what a cluster shows."""

import json
from pathlib import Path

import pytest
from commands import opsieve
from stores import done, filled, finding

from opsieve.gen.errors import BadInput
from opsieve.triage.fingerprint.component import Component, ComponentName, make_component
from opsieve.triage.known.issues import (
    ClusterSignature,
    KnownIssue,
    ProbableIssue,
    add_issues,
    decode_issues,
    encode_issues,
    read_export,
    read_issues,
)
from opsieve.triage.known.matching import IssueIndex, find_probable
from opsieve.triage.store.queries import Queries

URL = "https://github.com/microsoft/onnxruntime/issues/{}"
FILLER = [
    ("Pad is slow", "It takes 3 ms longer than before."),
    ("MaxPool with dilations", "Load model failed: the model could not be read. MaxPool gives an error."),
    ("How do I build for Android?", "Load model failed on a phone."),
    ("Softmax is wrong on float16", "Values differ by 2 from the reference."),
]


def issue(number: int, title: str, text: str, repository: str = "microsoft/onnxruntime") -> KnownIssue:
    return KnownIssue(repository, number, title, URL.format(number), "open", f"{title} {text}")


def index(*issues: KnownIssue) -> IssueIndex:
    return IssueIndex([*(issue(at, *each) for at, each in enumerate(FILLER, 1)), *issues])


def cluster(
    kind: str = "error", *parts: Component, operators: str = "", guilty: str = "", version: str = "1.20.1"
) -> ClusterSignature:
    return ClusterSignature(
        1,
        "onnxruntime",
        kind,
        "a title",
        (parts,),
        frozenset(operators.split()),
        guilty,
        frozenset([version]),
    )


def part(name: ComponentName, *items: str) -> Component:
    return make_component(name, items if len(items) > 1 else items[0], True, "")


def names(found: tuple[ProbableIssue, ...]) -> list[str]:
    return [each.name.partition("#")[2] for each in found]


def test_a_quoted_message_proves_an_issue_and_a_sentence_that_many_have_does_not() -> None:
    quoting = issue(
        70,
        "Cannot load",
        "2024 [E:onnxruntime] axis 3 of Split_9 has a duplicate entry in `axes`, got [1, 1] (1.20.1)",
    )
    said = part(ComponentName.MESSAGE, "axis <n> of <name> has a duplicate entry in axes, got <shape>")
    (found,) = find_probable(cluster("error", said), index(quoting))
    assert found.name == "microsoft/onnxruntime#70"
    assert found.reasons == (
        "it quotes the message: has a duplicate entry in axes",
        "it names the version 1.20.1",
    )
    common = part(ComponentName.MESSAGE, "Load model failed: <name>")
    assert not find_probable(cluster("error", common), index(quoting))
    many = [issue(100 + at, f"Title {at}", "axes has a duplicate entry in it") for at in range(6)]
    other = part(ComponentName.MESSAGE, "axes has a duplicate entry in <name>")
    assert not find_probable(cluster("error", other), index(*many))
    assert names(find_probable(cluster("error", other), index(*many[:3]))) == ["100", "101", "102"]


def test_half_a_message_proves_nothing() -> None:
    begun = issue(70, "Cannot load", "axis of the node has a duplicate entry, whatever that is")
    said = (
        "has a duplicate entry: <name> while the planner of memory was about to reuse the buffer of another"
        " tensor"
    )
    assert not find_probable(cluster("error", part(ComponentName.MESSAGE, said)), index(begun))


def test_the_most_of_a_long_sentence_is_enough_where_its_ends_are_left_out() -> None:
    quoting = issue(
        70, 'A fusion breaks the graph: "sum of input arg count is not equal to size of input defs"', ""
    )
    sentence = (
        "This is an invalid model. The sum of input arg count is not equal to size of input defs in node"
        " (<name>)"
    )
    said = part(ComponentName.MESSAGE, f"[ONNXRuntimeError] : 1 : FAIL : {sentence}")
    assert names(find_probable(cluster("error", said), index(quoting))) == ["70"]
    less = issue(
        71, "Two counts", "This is an invalid model. The count is not equal to size of input defs in node x"
    )
    assert not find_probable(cluster("error", said), index(less))
    # nine words are quoted whole
    short = part(ComponentName.MESSAGE, "the count of axes is not equal to the rank")
    assert not find_probable(cluster("error", short), index(issue(72, "axes is not equal to the rank", "")))


def test_functions_of_the_stack_prove_an_issue() -> None:
    stack = issue(70, "Dies", "#0 onnxruntime::Unsqueeze::PrepareCompute() #1 onnxruntime::ReplaceShape(...)")
    frames = part(ComponentName.FRAMES, "onnxruntime::Unsqueeze::PrepareCompute", "onnxruntime::ReplaceShape")
    assert names(find_probable(cluster("crash", frames), index(stack))) == ["70"]
    other = part(ComponentName.FRAMES, "onnxruntime::Unsqueeze::PrepareCompute", "onnxruntime::SomethingElse")
    assert not find_probable(cluster("crash", other), index(stack))
    assert not find_probable(cluster("crash", part(ComponentName.FRAMES, "main", "run")), index(stack))


def test_wrong_results_are_known_by_the_pass_with_the_operators_or_by_the_title() -> None:
    fused = issue(70, "Fusion breaks pooling", "PadFusion takes the Pad before MaxPool away: wrong values")
    titled = issue(71, "AveragePool behind Pad gives incorrect results", "Since 1.19.")
    small = cluster("mismatch", operators="Pad MaxPool", guilty="Pad_Fusion")
    assert names(find_probable(small, index(fused, titled))) == ["70"]
    assert names(find_probable(cluster("mismatch", operators="Pad AveragePool"), index(fused, titled))) == [
        "71"
    ]
    # of another kind
    assert not find_probable(cluster("crash", operators="Pad AveragePool"), index(fused, titled))
    assert not find_probable(cluster("mismatch", operators="Pad AveragePool Conv"), index(fused, titled))
    assert not find_probable(cluster("error", operators="Pad AveragePool"), index(fused, titled))
    large = cluster("mismatch", operators="Pad AveragePool Add Mul Sub")
    assert not find_probable(large, index(fused, titled))


def test_one_operator_has_many_bugs_so_its_title_needs_an_attribute() -> None:
    ceil = issue(70, "MaxPool differs", "wrong with ceil_mode = 1")
    plain = issue(71, "MaxPool is wrong", "on a large image")
    assert not find_probable(cluster("mismatch", operators="MaxPool"), index(ceil, plain))
    attributes = part(ComponentName.ATTRIBUTES, "MaxPool.ceil_mode=1", "MaxPool.strides=n")
    assert names(find_probable(cluster("mismatch", attributes, operators="MaxPool"), index(ceil, plain))) == [
        "70"
    ]


def test_what_a_compiler_puts_before_every_message_proves_nothing() -> None:
    other = issue(
        70,
        "T",
        "Non-zero status code returned while running Pad node. Status Message: the sizes do not match",
    )
    same = issue(71, "T", "Status Message: axes must be larger than one")
    text = (
        "Non-zero status code returned while running Pad node. Status Message: axes must be larger than one"
    )
    said = part(ComponentName.MESSAGE, text)
    assert names(find_probable(cluster("error", said), index(other, same))) == ["71"]


def test_the_condition_of_a_failed_check_is_known_without_what_follows_it() -> None:
    said = (
        "Check failed: (steps[i] < <n> ? (last <= first) : (first <= last)) is false: : Input [Begin=<n>] is"
        " invalid for axis=<n>"
    )
    same = issue(
        70, "Legalize: Check failed: (steps[i] < 0 ? (last <= first) : (first <= last)) is false", "fails"
    )
    other = issue(
        71, "Legalize: Check failed: (steps[i] < 0 ? (last <= next) : (next <= last)) is false", "fails"
    )
    assert names(find_probable(cluster("error", part(ComponentName.MESSAGE, said)), index(same, other))) == [
        "70"
    ]
    short = part(
        ComponentName.MESSAGE,
        "Check failed: (n.defined()) is false: Found null pointer node while traversing",
    )
    assert not find_probable(
        cluster("error", short), index(issue(70, "Check failed: (n.defined()) is false", "x"))
    )


def test_an_issue_of_another_compiler_is_not_named() -> None:
    said = part(ComponentName.MESSAGE, "axes has a duplicate entry in <name>")
    text = "axes has a duplicate entry in the list"
    assert not find_probable(cluster("error", said), index(issue(70, "T", text, "apache/tvm")))
    assert find_probable(cluster("error", said), index(issue(70, "T", text, "somebody/their-compiler")))


def test_exports_of_gh_and_of_the_rest_interface_are_read(tmp_path: Path) -> None:
    gh = [
        {
            "number": 7,
            "title": "A",
            "body": "b\r\nc",
            "url": URL.format(7),
            "state": "OPEN",
            "comments": [{"body": "d"}],
        }
    ]
    rest = {
        "number": 8,
        "title": "E",
        "body": None,
        "html_url": URL.format(8),
        "url": "https://api.github.com/x",
        "state": "closed",
    }
    pull = {"number": 9, "title": "P", "html_url": URL.format(9), "pull_request": {}}
    path = tmp_path / "export.json"
    path.write_text(f"{json.dumps(gh)}\n{json.dumps([rest, pull, 'no issue'])}")
    found = read_export(path)
    assert [(one.name, one.state, one.text) for one in found.issues] == [
        ("microsoft/onnxruntime#7", "open", "A b c d"),
        ("microsoft/onnxruntime#8", "closed", "E"),
    ]
    assert found.skipped == 2
    path.write_text('{"number": 3, "title": "T", "body": "b"}')
    with pytest.raises(BadInput, match="--repo"):
        read_export(path)
    assert read_export(path, "onnx/optimizer").issues[0].url == "https://github.com/onnx/optimizer/issues/3"


@pytest.mark.parametrize("text", ["", "{", "3", '[{"number": true, "title": "T"}]', "[" * 100_000, "\udcff"])
def test_a_file_that_is_no_export_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput) as error:
        read_export(tmp_path / "x.json", "onnx/onnx")
    assert "\n" not in str(error.value)


def test_the_index_keeps_the_newest_of_each_issue(tmp_path: Path) -> None:
    assert add_issues(tmp_path, [issue(1, "old", ""), issue(2, "two", "")]) == {"microsoft/onnxruntime": 2}
    assert add_issues(tmp_path, [issue(1, "new", "")]) == {"microsoft/onnxruntime": 2}
    assert [one.title for one in read_issues(tmp_path)[0]] == ["new", "two"]
    (tmp_path / "bad.issues.json").write_text("[3]")
    assert len(read_issues(tmp_path)[1]) == 1
    assert read_issues(tmp_path / "none") == ([], [])


def test_what_an_index_of_a_stranger_says_is_bounded() -> None:
    one = ProbableIssue("a/b#1", "https://github.com/a/b/issues/1", "t", "open", 3, ("r",))
    assert decode_issues(encode_issues([one])) == (one,)
    assert (
        decode_issues(
            '[{"name": "x", "url": "javascript:1", "title": "", "state": "", "score": 1, "reasons": []}]'
        )[0].url
        == ""
    )
    for text in ("3", "[3]", "{", '[{"name": 1}]', "[" * 100_000):
        assert decode_issues(text) == ()


def test_a_store_names_the_issue_of_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = "axis of Split has a duplicate entry in axes"
    store = filled(tmp_path / "store", [done(0, finding(text, frames=["split_rule"]))])
    others = [{"number": at, "title": title, "body": body} for at, (title, body) in enumerate(FILLER, 1)]
    export = tmp_path / "issues.json"
    export.write_text(json.dumps([*others, {"number": 70, "title": "\x1b[31mCannot load", "body": text}]))
    code, out, _ = opsieve("known", "import", export, "--repo", "o/r", "--store", store, capsys=capsys)
    assert code == 0
    assert "5 issues imported" in out
    assert "c1 is probably o/r#70: it quotes the message" in out
    with Queries(store) as queries:
        (row,) = queries.clusters("is:probable").rows
    assert row.probably[0].url == "https://github.com/o/r/issues/70"
    assert "[probably o/r#70]" in opsieve("clusters", "--store", store, capsys=capsys)[1]
    shown = opsieve("show", "c1", "--store", store, capsys=capsys)[1]
    assert "https://github.com/o/r/issues/70" in shown
    assert "\x1b[31m" not in shown
    facts = json.loads(opsieve("show", "c1", "--store", store, "--json", capsys=capsys)[1])
    assert facts["probably"][0]["name"] == "o/r#70"


def test_a_broken_export_costs_no_other_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(tmp_path / "store", [done(0, finding("text", frames=["split_rule"]))])
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps([{"number": 7, "title": "Cannot load", "body": "text"}]))
    bad.write_text("[1, ")
    for files in ([bad, good], [good, bad]):
        code, out, err = opsieve(
            "known", "import", *files, "--repo", "o/r", "--store", store, "--json", capsys=capsys
        )
        assert code == 2
        assert "bad.json" in err
        facts = json.loads(out)
        assert (facts["imported"], facts["repositories"], len(facts["problems"])) == (1, {"o/r": 1}, 1)
    code, out, err = opsieve("known", "import", bad, "--repo", "o/r", "--store", store, capsys=capsys)
    assert (code, out) == (2, "")


def test_other_words_for_a_failed_condition_a_pass_as_people_write_it_and_one_function_of_its_own_name() -> (
    None
):
    asserted = issue(70, "T", "ir.h:1372: eraseOutput: Assertion `outputs_[i]->uses().empty()` failed.")
    frames = part(ComponentName.FRAMES, "eraseOutput")
    assert names(find_probable(cluster("crash", frames), index(asserted))) == ["70"]
    assert not find_probable(
        cluster("crash", part(ComponentName.FRAMES, "normalize")), index(issue(71, "T", "normalize: crash"))
    )
    checked = part(ComponentName.MESSAGE, "Check failed: src_shape.size() == src_axis.size() (<n> vs. <n>) :")
    same = issue(72, "T", "Check failed: src_shape.size() == src_axis.size() (0 vs. 4)")
    assert names(find_probable(cluster("error", checked), index(same, asserted))) == ["72"]
    two = part(ComponentName.MESSAGE, "Check failed: (slot->value_computed) is false: ")
    assert names(
        find_probable(
            cluster("error", two), index(issue(73, "Check failed: (slot->value_computed) is false", "x"))
        )
    ) == ["73"]
    spoken = issue(74, "Inconsistent output (Pad Fusion Issue)", "the results differ")
    assert names(
        find_probable(cluster("mismatch", operators="Pad AveragePool", guilty="Pad_Fusion"), index(spoken))
    ) == ["74"]
    assert not find_probable(cluster("hang", operators="Pad AveragePool", guilty="Pad_Fusion"), index(spoken))
