"""Read the place of a failure in the compiler's own source from its message.

onnxruntime shows the same Python frames for every failure; only its message has the place (`/dir/file.cc:line
signature`). It becomes the innermost frame.
"""

import functools
import re

from opsieve.backends.observation import Frame

# Characters of a message that are looked at
MAX_READ = 8000
SOURCES = frozenset(
    ["cc", "cpp", "cxx", "c", "h", "hpp", "hh", "cu", "cuh", "py", "pyx", "pxi", "inc", "td", "mlir"]
)
CLEAN = {code: " " for code in range(0x20) if chr(code) not in "\n\x1b"} | {0x7F: " "}
# Innermost frames among which a place is looked for: an exception's own constructor lies inside it
_NEAR = 8
# TVM shows Python, Cython and C++ frames in one format; only the C++ ones are not on the Python stack.
_NATIVE = SOURCES - {"py", "pxi", "pyx"}
_SITE = re.compile(r"(?<![\w/.])((?:/[\w.+-]++)++):(\d{1,7}+)[ :](?!\d)")
_REPORTED_SITE = re.compile(
    r"(?:Exception from|failed at|UNREACHABLE executed at)"
    r" (/?(?:[\w.+-]++/)*+[\w+-]++\.\w{1,5}+):(\d{1,7}+)[:!]?"
)
_ASSERTED = re.compile(r"[^:\n]{1,300}+: ([^\s:]{1,400}+):(\d{1,7}+): ([^\n]{1,1000}): Assertion `")
_TRACE_SITE = re.compile(r'File "([^"\n]{1,400}+)", line (\d{1,7}+), in ([^\n]{1,2000}+)')
_TORCH_SITE = re.compile(r"Exception raised from ([\w:~<>]{1,200}+) at ([^\s:]{1,400}+):(\d{1,7}+)")


# Cached, because each message is classified several times.
@functools.lru_cache(maxsize=64)
def find_location(message: str) -> Frame | None:
    """Find the place in a compiler's own source in a message: a native frame with file, line and function, or
    None.

    For onnxruntime that is `/dir/file.cc:line signature`, the innermost of several; for TVM the last C++
    frame of a traceback; for PyTorch `Exception raised from f at file:line`; for OpenVINO the last `failed at
    file:line`; for a failed assertion its own. The function is the qualified name, "" if only a line is
    given.
    """
    text = message[:MAX_READ].translate(CLEAN)
    # A failed assertion is exact, so it comes before the formats that are searched for.
    if match := _ASSERTED.match(text):
        return Frame("native", get_qualified_name(match[3]), match[1], int(match[2]))
    sites = _find_sites(text)
    if sites:
        _, _, file, function, line = sites[-1]
        return Frame("native", function, file, line)
    if reported := list(_REPORTED_SITE.finditer(text)):
        return Frame("native", "", reported[-1][1], int(reported[-1][2]))
    if match := _TORCH_SITE.search(text):
        return Frame("native", get_qualified_name(match[1]), match[2], int(match[3]))
    traced = [match for match in _TRACE_SITE.finditer(text) if match[1].rpartition(".")[2] in _NATIVE]
    if not traced:
        return None
    return Frame("native", get_qualified_name(traced[-1][3]), traced[-1][1], int(traced[-1][2]))


def describe_location(message: str) -> str:
    """Describe the location as `model.cc Model::Model`: without directories, line and outer namespaces; ""
    without one.
    """
    place = find_location(message)
    return f"{_get_base(place.file)} {'::'.join(place.function.split('::')[-2:])}".strip() if place else ""


def add_location(frames: tuple[Frame, ...], message: str) -> tuple[Frame, ...]:
    """Add the location in the message as the innermost frame, unless the frames end there already."""
    place = find_location(message)
    if place is None:
        return frames
    for frame in frames[-_NEAR:]:
        if frame.language != "native":
            continue
        if frame.file and _get_base(frame.file) == _get_base(place.file):
            return frames
        if place.function and get_qualified_name(frame.function).endswith(place.function):
            return frames
    return (*frames, place)


def _get_base(file: str) -> str:
    return file.rpartition("/")[2]


def remove_locations(text: str) -> str:
    """Remove the places that `find_location` reads."""
    for begin, end, *_ in reversed(_find_sites(text)):
        text = text[:begin] + text[end:]
    text = _REPORTED_SITE.sub("", text)
    return text


def _find_sites(text: str) -> list[tuple[int, int, str, str, int]]:
    """Find begin, end, file, qualified function and line of every `/dir/file.cc:line signature`, in order."""
    found: list[tuple[int, int, str, str, int]] = []
    for match in _SITE.finditer(text):
        if match[1].rpartition(".")[2] not in SOURCES or (found and match.start() < found[-1][1]):
            continue
        end = _find_signature_end(text, match.end())
        function = get_qualified_name(text[match.end() : end])
        # Prose follows, not a signature
        if "::" not in function:
            function, end = "", match.end()
        found.append((match.start(), end, match[1], function, int(match[2])))
        # A message lists each place that an error passed through; a hostile one could list thousands.
        if len(found) == 8:
            break
    return found


def _find_signature_end(text: str, at: int) -> int:
    """Return the position behind the C++ signature at `at`, or `at` without one; a truncated signature ends
    with the text.
    """
    head = _find_arguments(text, at)
    if head < 0:
        return at
    end = _find_closing(text, head, "(", ")")
    for suffix in ("::<lambda", " const", " noexcept", " [with "):
        if text.startswith(suffix, end):
            if suffix == "::<lambda":
                end = _find_closing(text, text.find("<", end), "<", ">")
            elif suffix == " [with ":
                end = _find_closing(text, text.find("[", end), "[", "]")
            else:
                end += len(suffix)
    return end


def _find_arguments(text: str, at: int) -> int:
    """Return the position of the parenthesis that opens a signature's parameters, or -1."""
    depth = 0
    # Bounded, so that a message full of openings stays linear in time.
    for index in range(at, min(len(text), at + 1500)):
        sign = text[index]
        if sign == "\n":
            return -1
        if sign == "<":
            depth += 1
        elif sign == ">":
            # The arrow of a trailing return type closes no bracket.
            depth -= depth > 0 and text[index - 1] != "-"
        elif sign == "(" and depth == 0:
            # Parentheses that belong to a name: of an unnamed namespace, and of `operator()`.
            if text.startswith("(anonymous namespace)", index) or text.endswith("operator", at, index):
                continue
            return index
    return -1


def _find_closing(text: str, at: int, opening: str, closing: str) -> int:
    """Return the position behind the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(text)):
        depth += (text[index] == opening) - (text[index] == closing)
        if depth == 0:
            return index + 1
    return len(text)


def get_qualified_name(signature: str) -> str:
    """Return `tvm::runtime::CopyFromBytes` for `void tvm::runtime::CopyFromBytes<T>(DLTensor*, unsigned
    long)`.
    """
    signature = (
        signature[:MAX_READ]
        .replace("(anonymous namespace)", "<anonymous>")
        .replace("{anonymous}", "<anonymous>")
    )
    head = _find_arguments(signature, 0)
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
