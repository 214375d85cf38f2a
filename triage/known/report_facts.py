"""What a public report says of how its failure was seen: versions of packages, the level and passes of the
optimiser, execution providers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opsieve.triage.known.report_text import ReportText

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
_HOSTS = ("onnx", "numpy", "python")  # named with every report, seldom what it is about
_WORD = re.compile(
    r"(?<![\w./-])({})(?![\w/])".format("|".join(sorted(map(re.escape, NAMES), key=len, reverse=True))), re.I
)
_VERSION = re.compile(
    r"(?<![\w.])[vV]?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?(?:rc\d{1,2}|\.post\d{1,2})?)(?![\w])(?!\.\d)"
)
_REACH = 60  # characters from a name to its version
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
_MOST = 12  # versions of a package


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """`versions` by backend, most often named first, with the line of the first mention; `levels`,
    `providers` and `disabled` by onnxruntime's names.
    """

    versions: dict[str, dict[str, int]]
    levels: tuple[str, ...]
    providers: tuple[str, ...]
    disabled: tuple[str, ...]

    def targets(self) -> tuple[str, ...]:
        """The targets that the report names, each release first and then what is installed here: at most
        twelve.
        """
        found: list[str] = []
        subjects = [name for name in self.versions if name not in _HOSTS] or ["onnxruntime"]
        for name in subjects:
            options = self._options() if name == "onnxruntime" else [""]
            releases = [f"{name}=={release}" for release in self.versions.get(name, {})]
            found += [base + option for base in [*releases[:4], name] for option in options]
        return tuple(dict.fromkeys(found))[:_MOST]

    def _options(self) -> list[str]:
        skipped = f",disabled_optimizers={'+'.join(self.disabled)}" if self.disabled else ""
        levels = [level for level in self.levels if level != "all"]
        return list(dict.fromkeys([":all" + skipped if skipped else "", *(f":{level}" for level in levels)]))


def facts_of(report: ReportText) -> ReportFacts:
    """The facts that a report names."""
    versions: dict[str, dict[str, int]] = {}
    for name, version, line in _versions(report.prose):
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


def _versions(text: str) -> Iterator[tuple[str, str, int]]:
    """Each name with the version that follows it, before another name and before the sentence ends, and its
    line.
    """
    line, counted = 1, 0
    found = list(_WORD.finditer(text))
    for place, word in enumerate(found):
        line, counted = line + text.count("\n", counted, word.start()), word.start()
        end = min(word.end() + _REACH, found[place + 1].start() if place + 1 < len(found) else len(text))
        version = _VERSION.search(text, word.end(), end)
        if version is not None and ". " not in text[word.end() : version.start()]:
            yield NAMES[word[1].lower()], version[1], line
