"""The signal that ended a process, as debuggers, loggers, shells and the C library of any language name
it.
"""

import functools
import re
import signal as signals
import tomllib
from pathlib import Path

# How a text tells of a signal: by name (gdb, Python's subprocess, glog, the JVM), in words at the begin of a
# line (the shell, faulthandler, TVM), by the status of a process.
_NAMED_SIGNAL = re.compile(
    r"(?:received signal |terminated (?:with|by) signal |died with <Signals\.|\[signal |^#  |^\*\*\* )"
    r"(SIG[A-Z0-9]{2,8}+)"
)
_STATUS = re.compile(
    r"(?:exit(?:ed)?|return(?:ed)?|died)(?: with)?(?: non-zero)?(?: exit)?[ _-]?(?:code|status):?=? ?"
    r"(-?\d{1,10}+|0x[0-9a-f]{8})",
    re.IGNORECASE,
)
# Windows has no signals; this status of a process stands for SIGSEGV.
_ACCESS_VIOLATION = 0xC0000005
_SIGNAL_WORDS = re.compile(
    r"(?:Fatal Python error: |!{3,} ?)?"
    r"(Segmentation fault|Segfault encountered|Aborted|Bus error|Illegal instruction|Floating[ -]point"
    r" exception|Killed)\b"
)
# Of a shell in any language, which names the line of its script and the process.
_SHELL = r".{0,120}?\d[^:：\d]{0,10}+[:：] *+\d{1,9}+ ++"


@functools.cache
def list_signal_words() -> dict[str, int]:
    """List the signals that end a process, by their names in the C library and shells of any language."""
    data = tomllib.loads(Path(__file__).with_name("signal_words.toml").read_text(encoding="utf-8"))
    return {word: int(signals.Signals[name]) for name, words in data.items() for word in words}


@functools.cache
def _match_any_language() -> re.Pattern[str]:
    # The longest first: an alternative that is the beginning of another would hide it.
    words = "|".join(map(re.escape, sorted(list_signal_words(), key=len, reverse=True)))
    return re.compile(rf"(?P<shell>{_SHELL})?(?P<word>{words})(?(shell)|(?=[ \t]*+(?:[(（]|$)))")


_SANITIZER_SIGNALS = {
    "SEGV": signals.SIGSEGV,
    "FPE": signals.SIGFPE,
    "BUS": signals.SIGBUS,
    "ABRT": signals.SIGABRT,
}


def find_signal(lines: list[str]) -> int:
    """Find the number of the signal that ended a process, 0 for none: by our shim, else by name or words,
    else by the exit status.
    """
    worded = exact = stated = 0
    for line in lines:
        if (
            line.startswith("@native\t")
            and (field := line.split("\t")[1]).isdecimal()
            # A log is untrusted: a long number would be slow to convert, and only 64 signals exist.
            and 0 < int(field[:4]) < 65
        ):
            exact = int(field[:4])
        elif match := _NAMED_SIGNAL.search(line):
            worded = int(getattr(signals, match[1], 0)) or worded
        elif match := _SIGNAL_WORDS.match(line) or _match_any_language().match(line):
            worded = worded or list_signal_words()[match[match.lastgroup or 1]]
        elif match := _STATUS.search(line):
            stated = stated or _read_status(int(match[1], 16 if match[1][:2] in ("0x", "0X") else 10))
        elif "Sanitizer: " in line:
            word = line.partition("Sanitizer: ")[2].partition(" ")[0]
            worded = worded or int(_SANITIZER_SIGNALS.get(word, 0))
    # By trust: our shim saw the signal itself, and an exit status may be any number.
    return exact or worded or stated


def _read_status(status: int) -> int:
    """Return the number of the deadly signal in the exit status of a process, 0 for none."""
    if status & 0xFFFFFFFF == _ACCESS_VIOLATION:
        return int(signals.SIGSEGV)
    # Python reports a signal as a negative status, a shell as 128 plus its number.
    number = -status if status < 0 else status - 128
    return number if number in list_signal_words().values() else 0
