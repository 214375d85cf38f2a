"""Describe an exception that a compiler raised. Loaded by `child.py`: standard library only, Python 3.8 and
newer.
"""

import linecache
import traceback
from typing import Any, Dict, List

# Compilers put whole models into exceptions. The cause stands at the end, so the middle is cut.
TEXT_LIMIT = 64 << 10


def cut_middle(text: str, limit: int = TEXT_LIMIT) -> str:
    """Cut the middle of a text that is longer than `limit`."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n[... %d characters left out ...]\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def describe_exception(error: BaseException, without: str) -> Dict[str, Any]:
    """Return an exception as JSON: class, message, traceback text, and frames followed by those of its
    causes.

    The outermost frames of the file `without` are left out.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == without:
        trace = trace.tb_next
    frames: List[List[Any]] = []
    for walk in [trace] + list_causes(error):
        # Where one became the next is listed once.
        if walk is not None and frames and frames[-1][:2] == locate_frame(walk)[:2]:
            frames.pop()
        while walk is not None:
            frames.append(locate_frame(walk))
            walk = walk.tb_next
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)
    )
    try:
        message = str(error)
    except Exception as failure:  # noqa: BLE001
        # A compiler's own exception class can fail to print itself
        message = "(its message cannot be printed: %s)" % type(failure).__name__
    try:
        text = "".join(traceback.format_exception(kind, error.with_traceback(trace), trace))
    except Exception:  # noqa: BLE001 -- as above
        text = ""
    return {
        "exception": name,
        "message": cut_middle(message),
        "traceback": cut_middle(text),
        # Where a recursion overflows, the last frames show what recursed.
        "frames": frames[-200:],
    }


def locate_frame(trace: Any) -> List[Any]:
    """Return function, file and line of a traceback's first frame."""
    code = trace.tb_frame.f_code
    # Python 3.11 and newer name the class as well: TVM's converters of all operators have methods of the same
    # name.
    return [getattr(code, "co_qualname", code.co_name), code.co_filename, trace.tb_lineno]


def list_causes(error: BaseException) -> List[Any]:
    """List the tracebacks of the causes of an exception, the root cause last, as Python prints them."""
    found: List[Any] = []
    seen = [error]
    # A chain can be as long as a compiler likes, and exceptions may name each other in a circle.
    while len(seen) < 20:
        last = seen[-1]
        came = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if came is None or came in seen or (last.__cause__ is None and not replaces_context(last, came)):
            break
        seen.append(came)
        found.append(came.__traceback__)
    return found


def replaces_context(error: BaseException, context: BaseException) -> bool:
    """Return whether an exception was raised in place of the one that was being handled.

    Otherwise the handler called something that failed on its own: what it handled is not the cause.
    """
    caught, trace = context.__traceback__, error.__traceback__
    if caught is None or trace is None:
        return True
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    # "" where the source is not at hand
    line = linecache.getline(code.co_filename, trace.tb_lineno).strip()
    return code is caught.tb_frame.f_code and (not line or line.startswith("raise"))
