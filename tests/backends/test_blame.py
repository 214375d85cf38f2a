"""What a worker tells of an exception that was made from another one."""

from opsieve.backends.workers.inside.exception_facts import describe_exception


def breaks() -> None:
    raise KeyError("axis")


def wraps(hidden: bool = False) -> None:
    try:
        breaks()
    except KeyError as error:
        raise ValueError("a pass failed") from (None if hidden else error)


def frames(hidden: bool) -> list[str]:
    try:
        wraps(hidden)
    except ValueError as error:
        return [function for function, _, _ in describe_exception(error, "")["frames"]]
    return []


def test_the_frames_of_a_cause_lie_behind_those_of_what_was_made_of_it() -> None:
    assert frames(False)[-2:] == ["wraps", "breaks"]
    assert frames(False).count("wraps") == 1  # where one became the next is told once
    assert frames(True)[-1] == "wraps"


def test_a_ring_of_causes_ends() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert describe_exception(one, "")["message"] == "a"
