"""The commands of triage: what they print, what they refuse, and reduction to triage from end to end."""

import gzip
import json
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from commands import opsieve
from models import chain
from stores import done, filled, finding

from opsieve.bisect.sessions.answers import keep_culprit
from opsieve.gen.case.case import Case, load, save
from opsieve.reducer.sessions import store_session
from opsieve.reducer.sessions.case_process import ChildEnd, ChildTask
from opsieve.triage.store.finished_test import Campaign, NonBug
from opsieve.triage.store.index.index_file import INDEX, SCHEMA, join_index
from opsieve.triage.store.index.index_reader import IndexReader
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.rows import Candidate
from opsieve.triage.store.store import Store

KEYS = {
    "id",
    "title",
    "kind",
    "stage",
    "status",
    "members",
    "representative",
    "targets",
    "operators",
    "guilty_pass",
    "first_bad",
}
HOSTILE = "\x1b[2J\x1b]0;gone\x07[red]no[/red] \u202eevil\r\n<kernel>"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tests = [
        done(number, finding(f"no kernel {'abc'[number % 3]}", frames=["main", f"f{number % 3}"]))
        for number in range(9)
    ]
    tests.append(done(9, finding(HOSTILE)))
    tests.append(
        done(
            10,
            finding("", kind="mismatch"),
            non_bugs=[NonBug("onnxruntime", "unsupported", "Erf: no kernel", HOSTILE)],
        )
    )
    return filled(tmp_path / "s", tests)


def asked(capsys: pytest.CaptureFixture[str], store: Path, *arguments: str | Path) -> dict[str, Any]:
    code, out, err = opsieve(*arguments, "--store", store, "--json", capsys=capsys)
    assert code == 0, err
    told: dict[str, Any] = json.loads(out)
    return told


def test_clusters_have_the_keys_that_are_promised(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, store, "clusters", "--sort", "id")
    assert all(cluster.keys() >= KEYS for cluster in told["clusters"])
    assert [cluster["id"] for cluster in told["clusters"]] == ["c1", "c2", "c3", "c4", "c5"]
    assert told["total"] == 5
    assert told["failures"] == 11
    first = asked(capsys, store, "clusters", "-n", "3")
    rest = asked(capsys, store, "clusters", "--after", first["next"])
    assert not {one["id"] for one in first["clusters"]} & {one["id"] for one in rest["clusters"]}
    assert len(first["clusters"]) + len(rest["clusters"]) == 5
    assert rest["total"] == 5
    assert [one["id"] for one in asked(capsys, store, "clusters", "kind:mismatch")["clusters"]] == ["c5"]
    assert asked(capsys, store, "clusters", "--group", "kind")["groups"][0] == {
        "value": "error",
        "clusters": 4,
        "members": 10,
    }
    found = asked(capsys, store, "clusters", "--non-bugs")
    assert found["non_bugs"][0]["what"] == "Erf: no kernel"
    assert (
        asked(capsys, store, "clusters", "--aside")
        == found
        == {
            "non_bugs": found["aside"],
            "aside": found["non_bugs"],
        }
    )


def test_pages_by_every_sort_show_each_cluster_once(store: Path) -> None:
    with Queries(store) as queries:
        for sort in ("rank", "members", "last", "first", "size", "severity", "title", "id"):
            for reverse in (False, True):
                for text in ("", "status:new"):
                    seen, after = [], ""
                    while True:
                        page = queries.clusters(text, sort=sort, reverse=reverse, after=after, limit=2)  # type: ignore[arg-type]
                        assert page.total == 5
                        seen += [row.id for row in page.rows]
                        after = page.next
                        if not after:
                            break
                    whole = [row.id for row in queries.clusters(text, sort=sort, reverse=reverse).rows]  # type: ignore[arg-type]
                    assert seen == whole
                    assert sorted(seen) == ["c1", "c2", "c3", "c4", "c5"]


def test_any_thread_may_ask(store: Path) -> None:
    with Queries(store) as queries, ThreadPoolExecutor(4) as pool:
        texts = ["", "kind:error", "no kernel", "status:new"] * 5
        assert list(pool.map(lambda text: queries.clusters(text).total, texts)) == [5, 4, 4, 5] * 5


def test_pages_of_members_show_each_once(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(capsys, store, "merge", "c1", "c2", "c3")
    with Queries(store) as queries:
        seen, after = [], ""
        while True:
            page = queries.members("c1", after=after, limit=2)
            seen += [row.name for row in page.rows]
            after = page.next
            if not after:
                break
        assert len(seen) == len(set(seen)) == page.total == 9


def test_decisions_by_command(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, store, "merge", "c1", "c2")["action"] == "merge"
    asked(capsys, store, "mark", "c1", "known", "--issue", "https://example.org/7")
    asked(capsys, store, "pin", "c3")
    asked(capsys, store, "note", "c3", "look")
    asked(capsys, store, "rename", "c3", "the third")
    told = asked(capsys, store, "show", "c1")
    assert (told["status"], told["issue"], told["members"], len(told["prints"])) == (
        "known",
        "https://example.org/7",
        6,
        2,
    )
    assert [one["action"] for one in told["history"]] == ["mark", "merge"]
    asked(capsys, store, "split", told["prints"][1]["key"])
    assert asked(capsys, store, "show", "c2")["members"] == 3
    assert asked(capsys, store, "clusters")["clusters"][0]["id"] == "c3"
    assert asked(capsys, store, "undo")["state"] == "undone"
    assert asked(capsys, store, "redo")["state"] == "done"
    place = told["cases"][0]["name"]
    assert asked(capsys, store, "show", store / place)["cluster"] == "c1"
    assert asked(capsys, store, "show", place)["components"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "c99"), "no cluster"),
        (("show", "cases/nothing/1"), "not a member"),
        (("show", "%"), "names no cluster"),
        (("merge", "c1", "c1"), "two different"),
        (("mark", "c1", "solved"), "is not one of"),
        (("mark", "c1", "known", "--issue", "javascript:alert(1)"), "https://"),
        (("mark", "c1", "new"), "is so already"),
        (("undo",), "nothing to undo"),
        (("clusters", "--after", "7"), "not a cursor"),
        (("clusters", "--after", f"[1, 1, {10**30}]"), "not a cursor"),
        (("show", "c\udc80"), "names no cluster"),
        (("split", "cases/\udc80/1"), "not a member"),
        (("clusters", "since:tomorrow"), "not a time"),
        (("triage", "--dry-run"), "--refingerprint"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    store: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = opsieve(*arguments, "--store", store, capsys=capsys)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_store_that_is_not_there_or_is_newer_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = opsieve("clusters", "--store", tmp_path / "no", capsys=capsys)
    assert code == 2
    assert "no' does not exist; opsieve fuzz --store DIR makes one" in err
    assert not (tmp_path / "no").exists()
    (tmp_path / "lost" / "cases").mkdir(parents=True)
    code, _, err = opsieve("clusters", "--store", tmp_path / "lost", capsys=capsys)
    assert (code, f"opsieve index --store {tmp_path / 'lost'} rebuilds it" in err) == (2, True)
    newer = sqlite3.connect(tmp_path / INDEX)
    newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    newer.close()
    assert "upgrade opsieve" in opsieve("mark", "c1", "known", "--store", tmp_path, capsys=capsys)[2]


def test_a_target_with_blanks_and_commas_is_one_target(tmp_path: Path) -> None:
    targets = tuple(f"command:./run {{model}} --a=1,{at} {{inputs}} {{outputs}}" for at in (1, 2))
    tests = [done(at, finding("no room", target=targets[at % 2])) for at in range(3)]
    with Queries(filled(tmp_path, tests)) as queries:
        assert queries.cluster("c1").targets == targets
        assert {group.value for group in queries.groups("target")} == set(targets)
        for wanted in (*targets, "command:./run {model}"):
            assert [row.id for row in queries.clusters(f'target:"{wanted}"').rows] == ["c1"]
        assert not queries.clusters('target:"{inputs}"').rows


def test_text_of_compilers_does_nothing_to_a_terminal(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (("clusters",), ("clusters", "--non-bugs"), ("show", "c4", "--why"), ("triage",)):
        code, out, _ = opsieve(*arguments, "--store", store, capsys=capsys)
        assert code == 0
        assert not set(out) & {"\x1b", "\x07", "\r", "\u202e"}
    assert "[red]no[" in opsieve("show", "c4", "--why", "--store", store, capsys=capsys)[1]
    assert all(
        len(line) <= 80 for line in opsieve("clusters", "--store", store, capsys=capsys)[1].splitlines()[:-1]
    )


def test_rules_explain_and_the_rest_is_counted(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "known").mkdir()
    (store / "known" / "kernel.toml").write_text(
        'title = "No kernel"\nmessage = \'no kernel [ab]$\'\nissue = "https://example.org/1"'
    )
    told = asked(capsys, store, "triage")
    assert told["rules"] == [
        {"name": "kernel", "title": "No kernel", "issue": "https://example.org/1", "count": 6}
    ]
    assert (told["explained"], told["unexplained"]) == (6, 5)
    assert {one["id"] for one in asked(capsys, store, "clusters", "status:known")["clusters"]} == {"c1", "c2"}
    (store / "known" / "bad.toml").write_text("title = \"x\"\nmessage = '(?=a)b'")
    code, _, err = opsieve("triage", store, capsys=capsys)
    assert code == 2
    assert "'bad'" in err
    assert asked(capsys, store, "clusters", "status:known")["total"] == 2


def test_logs_of_other_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        {"backend": "onnxruntime", "phase": "run", "exc_type": "Fail", "message": f"no kernel for {name}"}
        for name in ("A", "A", "B")
    ]
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode() + b"\nnothing\n"))
    code, out, _ = opsieve("triage", "--logs", path, "--json", capsys=capsys)
    told = json.loads(out)
    assert code == 0
    assert [one["index"] for one in told["assignments"]] == [0, 1, 2]
    assert told["assignments"][0].keys() == {"index", "cluster", "title", "kind", "why"}
    assert told["assignments"][0]["cluster"] == told["assignments"][1]["cluster"]
    assert len(told["skipped"]) == 1


def test_evidence_beside_a_case_is_taken_up(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Queries(store) as queries:
        case = store / queries.cluster("c5").representative
    blamed = {
        "answer": "pass",
        "passes": ["FoldTanh"],
        "levels": {"none": "good", "basic": "good", "all": "bad"},
    }
    for kind, answer in (
        ("releases", {"first_bad": "1.17.0", "guilty_passes": ["another"]}),
        ("commits", {"first_bad": "0" * 40}),
        ("passes", blamed),
    ):
        keep_culprit(case, kind, answer)
    asked(capsys, store, "triage")
    told = asked(capsys, store, "show", "c5")
    assert (told["guilty_pass"], told["first_bad"]) == ("FoldTanh", "1.17.0")
    parts = {part["name"]: part["value"] for one in told["prints"] for part in one["components"]}
    assert parts["cure"] == "level=basic"
    assert [one["id"] for one in asked(capsys, store, "clusters", "pass:FoldTanh")["clusters"]] == ["c5"]
    (case / "culprit.json").write_text("[" * 100_000)
    with Store(store):  # a campaign holds it
        assert "moves" not in asked(capsys, store, "triage")
    assert asked(capsys, store, "triage")["moves"]  # what was known is known no more


def test_the_commit_that_bisection_blames_relates_clusters(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two clusters of one compiler that the same commit brought: certain where a search found it, else as
    likely as the ranking says.
    """
    ids = [one["id"] for one in asked(capsys, store, "clusters")["clusters"] if one["backend"] == "fake"]
    with Queries(store) as queries:
        kept = [name for name in ids if queries.cluster(name).representative]
        one, other, third = (store / queries.cluster(name).representative for name in kept[:3])
    commit = {"sha": "ab" * 20, "subject": "Fuse more"}
    keep_culprit(one, "commits", {"first_bad": "ab" * 20, "culprits": [commit]})
    ranked = [{**commit, "probability": 0.9}, {"sha": "cd" * 20, "subject": "Tidy", "probability": 0.05}]
    keep_culprit(other, "releases", {"first_bad": "1.17.0", "history": {"ranked": ranked}})
    keep_culprit(
        third, "releases", {"first_bad": "1.17.0", "history": {"ranked": [{**commit, "probability": 0.3}]}}
    )
    asked(capsys, store, "triage")
    with Queries(store) as queries:
        found = {row.cluster.id: row for row in queries.related(kept[0])}
    assert kept[1] in found
    assert (found[kept[1]].score, found[kept[1]].reason) == (0.9, "the same commit: abababababab Fuse more")
    assert kept[2] not in found or "commit" not in found[kept[2]].reason
    # suggested, not joined
    assert {one["id"] for one in asked(capsys, store, "clusters")["clusters"]} >= set(kept)


def test_what_is_told_by_its_graph_is_reduced_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = ("Relu", "Abs", "Neg", "Exp", "Sqrt", "Floor", "Tanh")
    tests = [
        done(1, finding("", kind="crash", frames=["here"], signal=11)),
        done(2, finding("", kind="mismatch", operators=many)),
        done(3, finding("it cannot", frames=["there"])),
        done(4, finding("", kind="mismatch", target="onnxruntime", operators=("Relu", "Tanh"))),
    ]
    store = filled(tmp_path / "s", tests)
    asked(capsys, store, "triage")
    with join_index(store) as database:
        first = IndexReader(database).list_candidates()
    assert [one.target for one in first if "mismatch" in one.fingerprint] == [one.target for one in first[:2]]
    assert first[2].fingerprint.startswith("fake-crash")
    assert {one.cluster for one in first} == {"c1", "c2", "c3", "c4"}


def two_failures(folder: Path) -> list[Candidate]:
    """The cases to reduce of a store of two failures."""
    target = "fake:error@Tanh+error@Sigmoid"
    campaign = Campaign("beef", "small-1", 1, (target,))
    tests = [
        done(at, finding(last, target=target, operators=("Abs", last)), operators=("Abs", last))
        for at, last in enumerate(("Tanh", "Sigmoid"))
    ]
    with Store(folder) as store:
        store.begin_campaign(campaign)
        store.record_tests(campaign, tests)
        wanted = store.index.list_candidates()
    assert len(wanted) == 2
    return wanted


def test_a_case_that_takes_long_gives_way_and_has_a_longer_turn(tmp_path: Path) -> None:
    wanted, turns = two_failures(tmp_path / "s"), []

    def reducer(case: Path, output: Path, task: ChildTask, given_up: threading.Event) -> ChildEnd:
        turns.append(task.seconds)
        facts = {"nodes_after": 1, "inner_nodes_after": 0, "same": True}
        return ChildEnd(0, json.dumps(facts), "", in_time=task.seconds > 150)

    request = store_session.StoreReductionRequest(tmp_path / "s", 1000, offline=True)
    answers = [(one.case, one.answer) for one in store_session.reduce_cases(request, wanted, reducer)]
    assert answers == [(one.place, answer) for answer in ("unfinished", "reduced") for one in wanted]
    assert turns == [100, 100, 200, 200]


def test_a_program_that_fails_on_four_levels_is_reduced_once(tmp_path: Path) -> None:
    """The other levels begin with the reduced program of the first, even with four reductions at once."""
    targets = tuple(f"fake:wrong@Tanh,opt={level}" for level in range(4))
    campaign = Campaign("beef", "small-1", 1, targets)
    many = ("Relu", "Abs", "Neg", "Exp", "Sqrt", "Floor", "Tanh")
    found = [finding("", kind="mismatch", target=target, operators=many) for target in targets]
    with Store(tmp_path / "s") as store:
        store.begin_campaign(campaign)
        store.record_tests(campaign, [done(1, *found, operators=many)])
        wanted = store.index.list_candidates()
    assert len(wanted) == 4
    given = []

    def reducer(case: Path, output: Path, task: ChildTask, given_up: threading.Event) -> ChildEnd:
        start = load(output if output.exists() else case)
        given.append(len(start.program.operators()))
        save(Case(chain("Tanh"), start.inputs), output, claimed=True)
        return ChildEnd(0, json.dumps({"nodes_after": 1, "inner_nodes_after": 0, "same": True}), "", True)

    request = store_session.StoreReductionRequest(tmp_path / "s", 1000, offline=True, jobs=4)
    answers = [one.answer for one in store_session.reduce_cases(request, wanted, reducer)]
    assert answers == ["reduced"] * 4
    assert given == [7, 1, 1, 1]


@pytest.mark.slow(seconds=3)
def test_a_reduction_that_takes_long_gives_way_and_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = two_failures(tmp_path / "s")
    monkeypatch.setattr(store_session, "_TURN", 0.1)
    monkeypatch.setattr(store_session, "_PART", 0.0)
    monkeypatch.setattr(store_session, "_MORE", 1000)
    request = store_session.StoreReductionRequest(tmp_path / "s", 120, offline=True)
    answers = [(one.case, one.answer) for one in store_session.reduce_cases(request, wanted)]
    places = [one.place for one in wanted]
    assert answers[:2] == [(place, "unfinished") for place in places]
    assert dict(answers) == dict.fromkeys(places, "reduced")


@pytest.mark.slow(seconds=4)
def test_reduction_tells_failures_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two wrong operators look alike while programs are large: one fingerprint; reduced, they are two
    clusters.
    """
    target = "fake:wrong@Tanh+wrong@Sigmoid"
    campaign = Campaign("beef", "small-1", 1, (target,))
    many = ("Relu", "Abs", "Neg", "Exp", "Sqrt", "Floor")
    tests = [
        done(
            at,
            finding("", kind="mismatch", target=target, operators=(*many, last)),
            operators=("Abs", last, "Neg"),
        )
        for at, last in enumerate(("Tanh", "Sigmoid"))
    ]
    with Store(tmp_path / "s") as store:
        store.begin_campaign(campaign)
        store.record_tests(campaign, tests)
    assert asked(capsys, tmp_path / "s", "clusters")["clusters"][0]["members"] == 2
    told = asked(capsys, tmp_path / "s", "triage", "--reduce", "--budget", "90", "--offline")
    assert all(one["answer"] == "reduced" for one in told["reductions"])
    after = asked(capsys, tmp_path / "s", "clusters", "kind:mismatch")
    assert {tuple(one["operators"]) for one in after["clusters"] if one["reduced"]} == {
        ("Tanh",),
        ("Sigmoid",),
    }
    again = asked(capsys, tmp_path / "s", "triage", "--reduce", "--budget", "90", "--offline")
    assert again["reductions"] == []
    assert asked(capsys, tmp_path / "s", "clusters", "kind:mismatch")["clusters"] == after["clusters"]
    (tmp_path / "s" / INDEX).unlink()
    opsieve("index", "--store", tmp_path / "s", capsys=capsys)
    asked(capsys, tmp_path / "s", "triage")
    rebuilt = asked(capsys, tmp_path / "s", "clusters", "kind:mismatch")
    assert {one["id"]: one["operators"] for one in rebuilt["clusters"]} == {
        one["id"]: one["operators"] for one in after["clusters"]
    }


def test_commands_load_no_compiler_and_no_terminal_app(store: Path) -> None:
    code = (
        "import sys\nfrom opsieve.tui.cli import main\ntry: main(['clusters', '--store',"
        f" {str(store)!r}])\nexcept SystemExit: pass\nprint(sorted({{'torch', 'tvm', 'onnxruntime',"
        " 'textual', 'onnx', 'git'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done_ = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done_.stderr.strip() == "[]"


@pytest.mark.slow(seconds=5)
def test_a_program_is_reduced_once_for_all_the_builds_that_fail_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The later reductions begin with the result of the first one."""
    targets = [f"fake:wrong@Tanh,seed={seed}" for seed in (1, 2, 3)]
    campaign = Campaign("beef", "small-1", 1, tuple(targets))
    many = ("Relu", "Abs", "Neg", "Exp", "Sqrt", "Floor", "Tanh")
    failing = [finding("", kind="mismatch", target=target, operators=many) for target in targets]
    with Store(tmp_path / "s") as store:
        store.begin_campaign(campaign)
        store.record_tests(campaign, [done(0, *failing, operators=many)])
    told = asked(capsys, tmp_path / "s", "triage", "--reduce", "--budget", "90", "--offline", "-j", "2")
    assert [(one["answer"], one["nodes_after"]) for one in told["reductions"]] == [("reduced", 1)] * 3
    journals = sorted((tmp_path / "s").rglob("attempts.jsonl"), key=lambda path: path.stat().st_mtime)
    first, *later = [[json.loads(line) for line in path.read_text().splitlines()[1:]] for path in journals]
    assert max(attempt["nodes"] for attempt in first) == len(many)
    assert {attempt["nodes"] for attempts in later for attempt in attempts} == {1}
    assert all(len(attempts) < len(first) for attempts in later)


def test_a_store_in_place_of_a_filter_is_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = opsieve("clusters", store, capsys=capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "name it with --store" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["op:Nope"], "operator 'Nope'"),
        (["-op:Nope"], "operator 'Nope'"),
        (["op:Add,Nope"], "operator 'Nope'"),
        (["target:nope"], "target 'nope'"),
        (["target:onnxruntime==9.9"], "target 'onnxruntime==9.9'"),
        (["backend:nope"], "backend 'nope'"),
        (["pass:nope"], "guilty pass 'nope'"),
        (["bad:nope"], "first bad release 'nope'"),
        (["rule:nope"], "rule 'nope'"),
        (["id:c99"], "id 'c99'"),
        (["kernel", "qwertz"], "has 'qwertz' in its title"),
        (["foo:bar"], "no field 'foo'"),
        (["kind:"], "kind: of the filter has no value"),
        (["--non-bugs", "op:Add"], "cannot be used with --non-bugs"),
    ],
)
def test_a_filter_that_can_match_nothing_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    for command in (["clusters", "--"], ["clusters", "--group", "kind", "--"]):
        if "--non-bugs" in words:
            command = command[:-1]
        code, out, err = opsieve(*command[:1], "--store", store, *command[1:], *words, capsys=capsys)
        assert code == 2
        assert not out
        assert err.count("\n") == 1
        assert named in err


def test_a_known_name_that_no_cluster_has_is_an_empty_answer(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["op:Celu"], ["target:tvm"], ["backend:tvm"], ["kind:hang"], ["status:fixed"]):
        assert asked(capsys, store, "clusters", *words)["total"] == 0
    # an empty store has nothing to compare with
    assert asked(capsys, filled(tmp_path / "empty", []), "clusters", "qwertz", "op:Nope")["total"] == 0


def test_a_report_refuses_a_filter_that_can_match_nothing(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "r.html"
    code, _, err = opsieve("report", store, "--filter", "op:Nope", "-o", page, capsys=capsys)
    assert (code, page.exists()) == (2, False)
    assert "operator 'Nope'" in err
