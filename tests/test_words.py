"""The product's language moves towards that of the field: each share may only get better.

The ceilings are the shares of 2026-11-25. A change that lowers a share lowers its ceiling; the goals are
those of the style guide. The figures are alarms: a name such as `make_made` meets them and helps no reader.
"""

import ast

import pytest
from source_figures import count_statements, figures

# Per cent: of function names, of docstrings, of private functions. The goal is the last column.
CEILINGS = {
    "participle names": (0.6, 2),
    "one-word names": (38.6, 45),
    "headless relative clauses": (1.6, 3),
    "negations": (3.8, 5),
    "private functions called from one place": (58.0, 45),
}
LEAST_COMMENTS = (1.9, 4)  # per cent of the lines


def shares() -> dict[str, float]:
    """Each share in per cent."""
    total = figures()
    return {
        "participle names": 100 * total.participle_names / total.functions,
        "one-word names": 100 * total.one_word_names / total.functions,
        "headless relative clauses": 100 * total.headless / total.docstrings,
        "negations": 100 * total.negations / total.docstrings,
        "private functions called from one place": 100
        * total.called_from_one_place
        / total.private_functions,
    }


@pytest.mark.parametrize("name", CEILINGS)
def test_a_share_does_not_rise(name: str) -> None:
    ceiling, goal = CEILINGS[name]
    assert shares()[name] <= ceiling, f"the goal is {goal} %"


def test_comments_do_not_get_fewer() -> None:
    least, goal = LEAST_COMMENTS
    assert 100 * figures().comment_lines / figures().lines >= least, f"the goal is {goal} %"


@pytest.mark.parametrize("name", CEILINGS)
def test_a_ceiling_follows_its_share(name: str) -> None:
    """A ceiling that lies far above its share would let the share rise again."""
    assert CEILINGS[name][0] <= max(shares()[name] + 5, CEILINGS[name][1])


def test_docstrings_comments_and_wrapping_are_no_statements() -> None:
    short = ast.parse("def f(a):\n    return [a, 1]")
    long = ast.parse(
        '"""Module."""\n\n\ndef f(a):\n    """Say."""\n    # why\n    return [\n        a,\n        1,\n    ]'
    )
    assert count_statements(short) == count_statements(long) == 2
