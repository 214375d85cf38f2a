"""Rules of known bugs, the patterns in them, filters, ranking: the pure parts of triage."""

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from opsieve.gen.errors import BadInput
from opsieve.triage.clustering.ranking import RankFeatures, get_severity, rank_clusters
from opsieve.triage.clustering.reassign import NEW, KeyChange, plan_moves
from opsieve.triage.rules.rules import (
    LONGEST,
    Rule,
    RuleSubject,
    find_rule,
    is_explained_by,
    parse_pattern,
    parse_rule,
    read_rules,
)
from opsieve.triage.store.index.filters import parse_filter, split_filter

SUBJECT = RuleSubject(
    "onnxruntime",
    "error",
    "compile",
    "node Pad_3: pads must be positive",
    frozenset({"Pad", "Relu"}),
    "1.20.1",
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('kind = "error"', True),
        ('kind = "crash"', False),
        ('backends = ["tvm", "onnxruntime"]', True),
        ('backends = ["tvm"]', False),
        ('operators = ["Pad"]', True),
        ('operators = ["Pad", "Conv"]', False),
        ('versions = ["1.20.*"]', True),
        ('versions = ["1.2", "1.21.*"]', False),
        ("message = 'Pad_\\d+: .*positive'", True),
        ("message = 'positive.*Pad'", False),
        ("message = '(?i)PADS MUST'", True),
        ('stage = "run"', False),
        ('guilty_pass = "ConstantFolding"', False),
    ],
)
def test_every_field_of_a_rule_must_match(text: str, answer: bool) -> None:
    assert (
        is_explained_by(parse_rule("r", f'title = "t"\nissue = "https://example.org/1"\n{text}'), SUBJECT)
        is answer
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = 3", "must be a text"),
        ('kind = "error"', "no title"),
        ('title = "t"', "explain every failure"),
        ('title = "t"\nkinds = "error"', "unknown field"),
        ('title = "t"\noperators = "Pad"', "list of texts"),
        ('title = "t"\nkind = "error"\nissue = "javascript:1"', "https://"),
        ("title = ", "not TOML"),
        ("title = \"t\"\nmessage = '('", "not a regular expression of RE2"),
        ("title = \"t\"\nmessage = '(a)\\1'", "back-references are not among them"),
        ("title = \"t\"\nmessage = '(?=a)b'", "look-around and"),
        ("title = \"t\"\nmessage = '(?<!a)b'", "look-around and"),
        ("title = \"t\"\nmessage = '(?>a)b'", "not a regular expression of RE2"),
        ("title = \"t\"\nmessage = '(((a{999}){999}){999})'", "not a regular expression of RE2"),
        (f"title = \"t\"\nmessage = '{chr(92)}p{{L}}{'x?' * 9}{chr(92)}p{{L}}{{900}}'", "too large"),
        (f"title = \"t\"\nmessage = '{'a' * 501}'", "501 characters"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)) as error:
        parse_rule("r", text)
    assert "'r'" in str(error.value)


def test_the_first_rule_counts_and_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('title = "b"\nkind = "error"')
    (tmp_path / "a.toml").write_text('title = "a"\noperators = ["Pad"]')
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "d.toml").write_text("title = 1")
    rules, problems = read_rules(tmp_path)
    assert [rule.name for rule in rules] == ["a", "b"]
    assert len(problems) == 2
    assert find_rule(rules, SUBJECT) == rules[0]
    assert find_rule([Rule("x", "x", kind="crash")], SUBJECT) is None


PIECE = st.text("ab.", max_size=4).map(re.escape) | st.sampled_from(
    ["a+", "b*?", "[ab]{2,}", r"(?:ab)?", "^a", "b$", ".*", "(a|b)*", "[^a]"]
)


@given(
    st.lists(st.lists(PIECE, min_size=1, max_size=6).map("".join), min_size=1, max_size=2).map("|".join),
    st.text("ab.", max_size=12),
)
def test_a_pattern_finds_what_the_expression_finds(text: str, message: str) -> None:
    assert parse_pattern(text).is_found_in(message) == bool(re.search(text, message, re.DOTALL))


@pytest.mark.parametrize(
    ("text", "message", "answer"),
    [(r"\d++x", "12x", True), (r"[*+]+y", "*+y", True), (r"\++", "+", True), (r"[^\]+]++z", "abz", True)],
)
def test_a_possessive_repeat_is_read_as_a_greedy_one(text: str, message: str, answer: bool) -> None:
    assert parse_pattern(text).is_found_in(message) is answer


HOSTILE = ["(?:a|aa)" * 60, "(|a)" * 120, "a?" * 240, "(a+)+", "(a*)*", "(a|a)*", "a*" * 200, "(.*a){20}"]


@pytest.mark.parametrize("text", [f"{text}b" for text in HOSTILE])
def test_a_hostile_expression_takes_no_more_than_a_moment(text: str) -> None:
    """Any of these takes a backtracking engine longer than the universe is old, so there is no clock here."""
    assert not parse_pattern(text).is_found_in("a" * LONGEST)


def test_only_the_beginning_of_a_message_is_looked_at() -> None:
    assert parse_pattern("b").is_found_in("a" * (LONGEST - 1) + "b")
    assert not parse_pattern("b").is_found_in("a" * LONGEST + "b")


# -- filters


@pytest.mark.parametrize(
    "text",
    [
        "since:yesterday",
        "since:2y",
        "is:blue",
        "id:x",
        "id:c99999999999999",
        "x" * 501,
        "foo:bar",
        "-knd:crash",
        "kind:",
        "op:,,",
        'status:""',
        "kind:crash,boom",
        "-stage:whatever",
    ],
)
def test_a_filter_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_filter(text)


@given(st.text(max_size=60))
def test_any_filter_is_one_condition_whose_values_are_bound(text: str) -> None:
    try:
        found = parse_filter(text, 1e9)
    except BadInput:
        return
    assert found.sql.count("?") == len(found.values)


# -- ranking


def place(cluster: int, severity: int = 3, **more: object) -> RankFeatures:
    told = {
        "breadth": 1,
        "reduced": False,
        "size": 5,
        "members": 1,
        "features": frozenset({f"f{cluster}"}),
        **more,
    }
    return RankFeatures(cluster, severity, **told)  # type: ignore[arg-type]


def test_severity_goes_from_crashes_on_valid_programs_to_slowdowns() -> None:
    kinds = [
        get_severity("crash"),
        get_severity("mismatch"),
        get_severity("crash", valid=False),
        get_severity("slowdown"),
    ]
    assert kinds == sorted(kinds, reverse=True)
    assert len(set(kinds)) == 4


def test_the_first_page_shows_different_bugs() -> None:
    alike = frozenset({"kind error", "Pad"})
    places = [place(number, features=alike) for number in range(1, 6)]
    places += [
        place(6, 1, features=frozenset({"kind slowdown", "Conv"})),
        place(7, 2, features=frozenset({"x"})),
    ]
    assert set(rank_clusters(places)[:3]) == {1, 6, 7}


def test_pinned_ones_come_first_and_what_is_done_with_last() -> None:
    places = [
        place(1, 7, open=False),
        place(2, 1),
        place(3, 0, pinned=True),
        place(4, 5),
        place(5, 5, breadth=3),
    ]
    order = rank_clusters(places)
    assert order[0] == 3
    assert order[-1] == 1
    assert order.index(5) < order.index(4)


@given(st.lists(st.tuples(st.integers(0, 7), st.sets(st.sampled_from("abcdef"))), max_size=30))
def test_ranking_is_a_permutation_and_does_not_depend_on_the_order(told: list[tuple[int, set[str]]]) -> None:
    places = [place(at, grave, features=frozenset(words)) for at, (grave, words) in enumerate(told)]
    order = rank_clusters(places)
    assert sorted(order) == list(range(len(places)))
    assert rank_clusters(places[::-1]) == order


# -- where failures go when their fingerprints change


def test_fingerprints_that_become_one_join_the_oldest_cluster() -> None:
    groups = plan_moves(
        [KeyChange(1, "a", 1, "x"), KeyChange(2, "b", 2, "x")], {"a": 1, "b": 2}, set(), set()
    )
    assert [(group.cluster, group.to_key, group.to_cluster) for group in groups] == [(1, "x", 1), (2, "x", 1)]


def test_a_fingerprint_that_falls_apart_leaves_its_name_to_the_largest_part() -> None:
    failures = [KeyChange(row, "a", 1, "x" if row < 3 else "y") for row in range(5)]
    assert {group.to_key: group.to_cluster for group in plan_moves(failures, {"a": 1}, set(), set())} == {
        "x": 1,
        "y": NEW,
    }
    assert {group.to_key: group.to_cluster for group in plan_moves(failures, {"a": 1}, set(), {"a"})} == {
        "x": NEW,
        "y": NEW,
    }


def test_fingerprints_of_one_cluster_stay_in_it() -> None:
    groups = plan_moves(
        [KeyChange(1, "a", 1, "x"), KeyChange(2, "a", 1, "x"), KeyChange(3, "b", 1, "y")], {}, set(), set()
    )
    assert {group.to_cluster for group in groups} == {1}


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from("xyz")), max_size=12),
    st.sets(st.integers(1, 4)),
    st.sets(st.sampled_from(["k1", "k2", "k3", "k4"])),
)
def test_no_failure_leaves_a_decided_cluster_and_none_is_lost(
    told: list[tuple[int, str]], decided: set[int], rest: set[str]
) -> None:
    failures = [KeyChange(row, f"k{cluster}", cluster, new) for row, (cluster, new) in enumerate(told)]
    groups = plan_moves(
        failures, {f"k{cluster}": cluster for cluster in range(1, 5)} | {"z": 4}, decided, rest
    )
    assert sorted(row for group in groups for row in group.rows) == list(range(len(told)))
    homes: dict[str, int] = {}
    for group in groups:
        assert group.cluster not in decided or group.to_cluster == group.cluster
        # a key stands in one cluster
        assert homes.setdefault(group.to_key, group.to_cluster) == group.to_cluster


@pytest.mark.parametrize("text", ["onnx::Add std::bad_alloc", "https://host/x", '"a:b"', "-minus", "a,b"])
def test_a_text_with_a_colon_is_searched_where_no_field_can_be_meant(text: str) -> None:
    assert all(term.field == "" for term in split_filter(text))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("knd:crash", "no field 'knd'; did you mean kind?"),
        ("-kind:crsh,error", "kind:'crsh' cannot occur; did you mean crash?"),
        ("status:nwe", "did you mean new?"),
        ("pinned:x", "no field 'pinned'; did you mean is:pinned?"),
    ],
)
def test_a_filter_that_means_nothing_names_what_was_meant(text: str, hint: str) -> None:
    with pytest.raises(BadInput, match=re.escape(hint)):
        parse_filter(text)
