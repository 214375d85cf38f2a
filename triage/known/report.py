"""Read a saved public report, Markdown or HTML: its prose, its code blocks, and how the failure was seen.

The facts are versions of packages, the level and passes of the optimiser, and execution providers. A report
is hostile input: its contents are never run, sizes are bounded, every expression here is linear. HTML is read
by the standard library.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser

_MOST_CHARACTERS = 400_000
_MOST_BLOCKS = 200
_FENCE = re.compile(r"^[ >]{0,8}(?:```|~~~)")
_HTML = re.compile(r"<(?:!doctype|html|body|div|p|pre)\b", re.IGNORECASE)
# Their contents are no text of the report: styles, scripts and menus.
_SILENT = {"script", "style", "head", "svg", "template", "nav"}
_BREAKS = {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "table", "blockquote"}


@dataclass(frozen=True, slots=True)
class ReportText:
    """`prose` is all text with its line ends, code included; `blocks` are the code blocks in order."""

    prose: str
    blocks: tuple[str, ...]


def parse_report(text: str) -> ReportText:
    """Parse a report: HTML if it begins as such, else Markdown."""
    # Only at the beginning, since Markdown may hold single tags anywhere.
    if _HTML.search(text[:4096]):
        page = _Page()
        page.feed(text)
        page.close()
        text = "".join(page.prose)
        return ReportText(text[:_MOST_CHARACTERS], tuple(page.blocks[:_MOST_BLOCKS]))
    text = text[:_MOST_CHARACTERS]
    # A script without a report around it is one block.
    blocks: list[str] = []
    held: list[str] | None = None
    for line in text.splitlines():
        if _FENCE.match(line):
            if held is not None:
                blocks.append("\n".join(held))
            held = [] if held is None else None
        elif held is not None:
            held.append(line)
    # A fence that is never closed
    if held:
        blocks.append("\n".join(held))
    return ReportText(text, tuple(blocks[:_MOST_BLOCKS]) or (text,))


class _Page(HTMLParser):
    """The text of a page, and the contents of its `pre` elements."""

    def __init__(self) -> None:
        super().__init__()
        self.prose: list[str] = []
        self.blocks: list[str] = []
        self._silent: list[str] = []
        self._code: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        if tag in _BREAKS:
            self._add_text("\n")
        # Nested elements, as highlighters make them, belong to the outer block.
        if tag == "pre" and self._code is None:
            self._code = []

    def handle_endtag(self, tag: str) -> None:
        if self._silent and tag == self._silent[-1]:
            self._silent.pop()
        if tag == "pre" and self._code is not None:
            self.blocks.append("".join(self._code).strip("\n"))
            self._code = None
        if tag in _BREAKS:
            self._add_text("\n")

    def handle_data(self, data: str) -> None:
        self._add_text(data)

    def _add_text(self, text: str) -> None:
        if self._silent:
            return
        self.prose.append(text)
        if self._code is not None:
            self._code.append(text)


# Words for a compiler -> the backend that it is here.
NAMES = {
    "onnx runtime": "onnxruntime",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
    "ort": "onnxruntime",
    "onnxoptimizer": "onnxoptimizer",
    "onnxsim": "onnxsim",
    "onnx-simplifier": "onnxsim",
    "onnxscript": "onnxscript",
    "onnxslim": "onnxslim",
    "openvino": "openvino",
    "tvm": "tvm",
    "apache-tvm": "tvm",
    "tract": "tract",
    "tinygrad": "tinygrad",
    "onnx": "onnx",
    "numpy": "numpy",
    "python": "python",
}
# Every report names them, though they are rarely the cause.
_HOSTS = ("onnx", "numpy", "python")
_WORD = re.compile(
    r"(?<![\w./-])({})(?![\w/])".format("|".join(sorted(map(re.escape, NAMES), key=len, reverse=True))), re.I
)
_VERSION = re.compile(
    r"(?<![\w.])[vV]?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?(?:rc\d{1,2}|\.post\d{1,2})?)(?![\w])(?!\.\d)"
)
# Characters from a name to its version
_REACH = 60
_LEVEL = re.compile(r"\bORT_(DISABLE_ALL|ENABLE_BASIC|ENABLE_EXTENDED|ENABLE_LAYOUT|ENABLE_ALL)\b")
_LEVELS = {
    "DISABLE_ALL": "disable_all",
    "ENABLE_BASIC": "basic",
    "ENABLE_EXTENDED": "extended",
    "ENABLE_LAYOUT": "layout",
    "ENABLE_ALL": "all",
}
_PROVIDER = re.compile(r"\b([A-Z][A-Za-z]{1,20})ExecutionProvider\b")
_DISABLED = re.compile(r"disabled_optimizers\s{0,4}=\s{0,4}\[([^\]\n]{1,400})\]")
_NAME = re.compile(r"['\"]([A-Za-z]\w{2,60})['\"]")
# Versions of a package
_MOST = 12


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """`versions` by backend, most often named first, with the line of the first mention; onnxruntime's other
    settings.
    """

    versions: dict[str, dict[str, int]]
    levels: tuple[str, ...]
    providers: tuple[str, ...]
    disabled: tuple[str, ...]

    def list_targets(self) -> tuple[str, ...]:
        """List at most twelve targets that the report names, each release first and then the installed
        version.
        """
        found: list[str] = []
        for name in [name for name in self.versions if name not in _HOSTS] or ["onnxruntime"]:
            options = self._list_options() if name == "onnxruntime" else [""]
            releases = [f"{name}=={release}" for release in self.versions.get(name, {})]
            found += [base + option for base in [*releases[:4], name] for option in options]
        return tuple(dict.fromkeys(found))[:_MOST]

    def _list_options(self) -> list[str]:
        skipped = f",disabled_optimizers={'+'.join(self.disabled)}" if self.disabled else ""
        levels = [level for level in self.levels if level != "all"]
        return list(dict.fromkeys([":all" + skipped if skipped else "", *(f":{level}" for level in levels)]))


def extract_facts(report: ReportText) -> ReportFacts:
    """Extract the facts of a report."""
    versions: dict[str, dict[str, int]] = {}
    for name, version, line in _iter_versions(report.prose):
        kept = versions.setdefault(name, {})
        if len(kept) < _MOST:
            kept.setdefault(version, line)
    return ReportFacts(
        versions,
        tuple(dict.fromkeys(_LEVELS[found[1]] for found in _LEVEL.finditer(report.prose))),
        tuple(dict.fromkeys(found[1] for found in _PROVIDER.finditer(report.prose))),
        tuple(
            dict.fromkeys(
                name[1] for found in _DISABLED.finditer(report.prose) for name in _NAME.finditer(found[1])
            )
        )[:_MOST],
    )


def _iter_versions(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield each name with the version that follows it in the same sentence, and its line."""
    line, counted = 1, 0
    found = list(_WORD.finditer(text))
    for place, word in enumerate(found):
        # Counted on from the last word, so that a long report is passed once.
        line, counted = line + text.count("\n", counted, word.start()), word.start()
        end = min(word.end() + _REACH, found[place + 1].start() if place + 1 < len(found) else len(text))
        version = _VERSION.search(text, word.end(), end)
        # A version in the next sentence may be of something else.
        if version is not None and ". " not in text[word.end() : version.start()]:
            yield NAMES[word[1].lower()], version[1], line
