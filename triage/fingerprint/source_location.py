"""Where in a compiler's own source a message says that it failed.

onnxruntime shows the same Python frames for every failure; the only place is in its message
(`/dir/file.cc:line signature`). That place is a frame like any other, the innermost one, so here it is made
into one.
"""

import functools
import re

from opsieve.backends.observation import Frame

MAX_READ = 8000  # characters of a message that are looked at
SOURCES = frozenset(
    ["cc", "cpp", "cxx", "c", "h", "hpp", "hh", "cu", "cuh", "py", "pyx", "pxi", "inc", "td", "mlir"]
)
CLEAN = {code: " " for code in range(0x20) if chr(code) not in "\n\x1b"} | {0x7F: " "}
_NEAR = 8  # innermost frames among which a place is looked for: an exception's own constructor lies inside it
_NATIVE = SOURCES - {"py", "pxi", "pyx"}
_SITE = re.compile(r"(?<![\w/.])((?:/[\w.+-]++)++):(\d{1,7}+)[ :](?!\d)")
_REPORTED_SITE = re.compile(
    r"(?:Exception from|failed at|UNREACHABLE executed at)"
    r" (/?(?:[\w.+-]++/)*+[\w+-]++\.\w{1,5}+):(\d{1,7}+)[:!]?"
)
_ASSERTED = re.compile(r"[^:\n]{1,300}+: ([^\s:]{1,400}+):(\d{1,7}+): ([^\n]{1,1000}): Assertion `")
_TRACE_SITE = re.compile(r'File "([^"\n]{1,400}+)", line (\d{1,7}+), in ([^\n]{1,2000}+)')
_TORCH_SITE = re.compile(r"Exception raised from ([\w:~<>]{1,200}+) at ([^\s:]{1,400}+):(\d{1,7}+)")


@functools.lru_cache(maxsize=64)  # a failure's message is asked about several times
def location_of(message: str) -> Frame | None:
    """The place in a compiler's own source that a message tells, None when it tells none: a native frame with
    file, line and function.

    Of onnxruntime that is `/dir/file.cc:line signature`, the innermost when there are several; of TVM the
    last C++ frame of a traceback; of PyTorch `Exception raised from f at file:line`; of OpenVINO the last
    `failed at file:line`; of a failed assertion its own. The function is the qualified name, "" where only a
    line is given.
    """
    text = message[:MAX_READ].translate(CLEAN)
    if match := _ASSERTED.match(text):
        return Frame("native", qualified_name(match[3]), match[1], int(match[2]))
    sites = _sites(text)
    if sites:
        _, _, file, function, line = sites[-1]
        return Frame("native", function, file, line)
    if reported := list(_REPORTED_SITE.finditer(text)):
        return Frame("native", "", reported[-1][1], int(reported[-1][2]))
    if match := _TORCH_SITE.search(text):
        return Frame("native", qualified_name(match[1]), match[2], int(match[3]))
    traced = [match for match in _TRACE_SITE.finditer(text) if match[1].rpartition(".")[2] in _NATIVE]
    if not traced:
        return None
    return Frame("native", qualified_name(traced[-1][3]), traced[-1][1], int(traced[-1][2]))


def location_text(message: str) -> str:
    """`location_of` in words, as `model.cc Model::Model`: without directories, line and outer namespaces; ""
    when there is none.
    """
    place = location_of(message)
    return f"{_base(place.file)} {'::'.join(place.function.split('::')[-2:])}".strip() if place else ""


def with_location(frames: tuple[Frame, ...], message: str) -> tuple[Frame, ...]:
    """The frames with the place that the message tells as the innermost one, unless they end there
    already.
    """
    place = location_of(message)
    if place is None:
        return frames
    for frame in frames[-_NEAR:]:
        if frame.language != "native":
            continue
        if frame.file and _base(frame.file) == _base(place.file):
            return frames
        if place.function and qualified_name(frame.function).endswith(place.function):
            return frames
    return (*frames, place)


def _base(file: str) -> str:
    return file.rpartition("/")[2]


def without_locations(text: str) -> str:
    """A message without the places that `location_of` reads."""
    for begin, end, *_ in reversed(_sites(text)):
        text = text[:begin] + text[end:]
    text = _REPORTED_SITE.sub("", text)
    return text


def _sites(text: str) -> list[tuple[int, int, str, str, int]]:
    """Begin, end, file, qualified function and line of every `/dir/file.cc:line signature` in a text, in
    order.
    """
    found: list[tuple[int, int, str, str, int]] = []
    for match in _SITE.finditer(text):
        if match[1].rpartition(".")[2] not in SOURCES or (found and match.start() < found[-1][1]):
            continue
        end = _signature_end(text, match.end())
        function = qualified_name(text[match.end() : end])
        if "::" not in function:  # prose follows, not a signature
            function, end = "", match.end()
        found.append((match.start(), end, match[1], function, int(match[2])))
        if len(found) == 8:
            break
    return found


def _signature_end(text: str, at: int) -> int:
    """The position behind the C++ signature that begins at `at`, or `at` when none does; a signature cut
    short goes to the end.
    """
    head = _arguments(text, at)
    if head < 0:
        return at
    end = _closing(text, head, "(", ")")
    for suffix in ("::<lambda", " const", " noexcept", " [with "):
        if text.startswith(suffix, end):
            if suffix == "::<lambda":
                end = _closing(text, text.find("<", end), "<", ">")
            elif suffix == " [with ":
                end = _closing(text, text.find("[", end), "[", "]")
            else:
                end += len(suffix)
    return end


def _arguments(text: str, at: int) -> int:
    """The position of the parenthesis that opens the parameters of a signature at `at`, -1 when there is none
    on its line.
    """
    depth = 0
    for index in range(at, min(len(text), at + 1500)):
        sign = text[index]
        if sign == "\n":
            return -1
        if sign == "<":
            depth += 1
        elif sign == ">":
            depth -= depth > 0 and text[index - 1] != "-"
        elif sign == "(" and depth == 0:
            if text.startswith("(anonymous namespace)", index) or text.endswith("operator", at, index):
                continue
            return index
    return -1


def _closing(text: str, at: int, opening: str, closing: str) -> int:
    """The position behind the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(text)):
        depth += (text[index] == opening) - (text[index] == closing)
        if depth == 0:
            return index + 1
    return len(text)


def qualified_name(signature: str) -> str:
    """`tvm::runtime::CopyFromBytes` for `void tvm::runtime::CopyFromBytes<T>(DLTensor*, unsigned long)`."""
    signature = (
        signature[:MAX_READ]
        .replace("(anonymous namespace)", "<anonymous>")
        .replace("{anonymous}", "<anonymous>")
    )
    head = _arguments(signature, 0)
    kept: list[str] = []
    depth = 0
    for sign in signature if head < 0 else signature[:head]:
        if sign == "<":
            depth += 1
        elif sign == ">" and depth:
            depth -= 1
        elif depth == 0:
            kept.append(sign)
    words = "".join(kept).split()
    return words[-1].lstrip("*&").replace("::::", "::").strip(":") if words else ""
