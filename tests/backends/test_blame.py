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


def finds_another(raises: bool) -> None:
    try:
        breaks()
    except KeyError:
        if raises:
            raise ValueError("no axis")  # noqa: B904
        misses()


def misses() -> None:
    {}["shape"]


def test_what_a_handler_calls_fails_on_its_own() -> None:
    """Its frames are those of the new fault; a handler that raises replaces what it caught."""
    for raises, last in ((True, ["finds_another", "breaks"]), (False, ["finds_another", "misses"])):
        try:
            finds_another(raises)
        except (KeyError, ValueError) as error:
            seen = [function for function, _, _ in describe_exception(error, "")["frames"]]
            assert seen[-2:] == last
