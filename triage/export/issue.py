"""Write a failure as an issue in Markdown, under the headings of each project's template
(`issue_templates.toml`).

Text from models and compilers stands in fences longer than any run of backticks in it, with control
characters and non-ASCII escaped: it cannot end its fence, link, mention, or hide anything. Prose and headings
are ours.
"""

import platform
import re
import signal
import textwrap
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from itertools import dropwhile
from pathlib import Path
from typing import Any

from opsieve.backends.observation import Observation
from opsieve.backends.verdict import Mismatch
from opsieve.gen.errors import BadInput
from opsieve.gen.model.printable import count_noun
from opsieve.gen.model.text import ModelText
from opsieve.triage.export import program_source, script, short_script
from opsieve.triage.export.export_input import ExportedFailure
from opsieve.triage.fingerprint.fingerprint import remove_status
from opsieve.triage.fingerprint.mismatch_components import BROKEN_MODEL
from opsieve.triage.fingerprint.source_location import remove_locations
from opsieve.triage.known.issues import ProbableIssue
from opsieve.version import VERSION

# Frames of opsieve in a worker, by where they lie and where they lay before version 0.2.
_OF_WORKERS = re.compile(
    r"(?:^|/)(?:backends/(?:workers|compilers|reference)/.*|(?:backends/)?(?:child|transformed)\.py$)"
)
# Modules with which every stack begins.
_INTERPRETER = re.compile(r"python|libpython|libc\.so|ld-linux")
_TEMPLATES = Path(__file__).with_name("issue_templates.toml")
# Only such an address is left as a link; it comes from a data base of others.
_ISSUE = re.compile(r"https://github\.com/[A-Za-z0-9-]{1,60}/[A-Za-z0-9._-]{1,100}/issues/\d{1,9}")
# characters; GitHub takes 65,536 for a whole issue
_MOST_SCRIPT = 40_000
_MOST_GRAPH = 8_000
_MOST_LOG = 4_000
# Characters of one line, and of its end that is kept
_LINE = 400
_TAIL = 150
# of a message in a title
_MOST_TITLE = 90
# The innermost ones; the others only say how the compiler was called.
_MOST_FRAMES = 20
# A kind of failure in a title, and behind the name of the compiler
_WORDS = {
    "broken": ("output {noun} is invalid", "makes an invalid {noun} of a valid one"),
    "crash": ("the process dies", "crashes{stage}"),
    "error": ("an exception on a valid {noun}", "raises an exception{stage}"),
    "mismatch": ("wrong values", "returns wrong values"),
    "shape": ("wrong shape", "returns a wrong shape"),
    "dtype": ("wrong element type", "returns a wrong element type"),
    "metamorphic": (
        "other values for a program that means the same",
        "returns other values for a program that means the same",
    ),
    "hang": ("no end", "does not end{stage}"),
    "memory": ("too much memory", "takes too much memory{stage}"),
    "slowdown": ("optimised code is slower", "is slower with optimisation"),
    "accepts-invalid": ("an invalid model is accepted", "accepts an invalid model"),
    "round-trip": ("a round trip changes the model", "changes the model in a round trip"),
    "nondeterminism": ("different results of equal runs", "returns different results in equal runs"),
}
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?|inf|nan)", re.ASCII)
_STAGES = {
    "import": " while it reads the {noun}",
    "compile": " while it compiles the {noun}",
    "run": " while it runs the {noun}",
}
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\][\w.+~/\\-]+")
# Brackets would make a link.
_ROUND = str.maketrans("[]", "()")


def write_issue(exported: ExportedFailure, text: ModelText, optimised: str = "") -> str:
    """Write the issue: its title as the first heading, then the sections of the project's template.

    `optimised` is the optimised model as text.
    """
    named = _load_templates().get(exported.target.name)
    template = named or _load_templates()["default"]
    answers = {
        **_load_templates()["answers"],
        **_write_answers(exported, text),
        # The optimised model if it is short
        "optimised": (
            f"The model after optimisation:\n\n{fence_text(escape_text(optimised, _MOST_GRAPH))}"
            if 0 < len(optimised) <= _MOST_GRAPH
            else ""
        ),
    }
    parts = [f"# {template.get('title', '')}{write_title(exported)}"]
    for heading, *keys in template["sections"]:
        body = "\n\n".join(answers[key] for key in keys if answers[key])
        # A project's own form wants every heading
        if not (body or named):
            continue
        parts += [
            f"**{heading}**" if template["style"] == "**" else f"{template['style']} {heading}",
            body or ("It is in the script." if heading == "Model used" else "None."),
        ]
    return "\n\n".join(parts) + "\n"


def write_title(exported: ExportedFailure) -> str:
    """Write a title in our own words, with the operators of a small graph."""
    nodes = exported.case.program.operators()
    operators = list(
        dict.fromkeys(
            # Names of operators come from the model: nothing of Markdown may be left in a title.
            re.sub(r"[^\w.]", "?", name, flags=re.ASCII)[:40]
            for name in nodes
            if name != "Constant"
        )
    )
    text = " and ".join([", ".join(operators[:-1]), operators[-1]] if len(operators) > 1 else operators)
    where = (
        f" with {text}"
        if 0 < len(operators) <= 4
        else f" with {count_noun(len(nodes), 'node')}" * bool(nodes)
    )
    blame = " once optimised" if exported.verdict.blame == "optimiser" and not exported.passes else ""
    # Of a module those that it was given
    names = exported.passes or [
        item.partition(":")[0] for item in exported.case.program.passes if not item.startswith("=")
    ]
    guilty = f"{_clean_word(names[0], 60)}: " if len(names) == 1 else ""
    words = _describe_failure(exported)
    # Behind the name of a pass the sentence goes on.
    words = words if guilty else words[:1].upper() + words[1:]
    since = f" since {_clean_word(exported.first_bad, 40)}" if exported.first_bad else ""
    return f"{guilty}{words}{where}{blame}{since}{_quote_message(exported)} ({_name_compiler(exported)})"


def _quote_message(exported: ExportedFailure) -> str:
    """Return `: MESSAGE` for an exception or an invalid result: its first line, without paths and characters
    that have a meaning in Markdown.
    """
    seen = exported.observation
    if exported.verdict.kind != "error":
        return ""
    said = seen.message or exported.verdict.message
    # What the checker or the loader says of the result; the summary says the rest.
    said = remove_locations((said.partition("transformed model: ")[2] or said)[:_MOST_LOG])
    said = _PATH.sub("path", remove_status(said)).removeprefix("path ").translate(_ROUND)
    words = re.sub(r"[^A-Za-z0-9 .:=+,_'()>!-]|(?<!-)>|(?i:www)(?=\.)", " ", said).split()
    text = " ".join(word[:40] for word in words if word.strip(".:=+,_'()>!-"))
    short = textwrap.shorten(text, _MOST_TITLE, placeholder=" ...").rstrip(":,")
    # Some exceptions say their name only.
    return f": {short}" if text not in ("", seen.exception.rpartition(".")[2]) else ""


def _describe_failure(exported: ExportedFailure) -> str:
    """Describe the failure in our words, with the class of the exception or the signal."""
    verdict, seen = exported.verdict, exported.observation
    name = _clean_word(seen.exception.rpartition(".")[2], 40)
    if verdict.kind == "error" and not _is_broken_model(seen) and re.fullmatch(r"[A-Za-z]\w+", name):
        return f"{name} on a valid {exported.noun}"
    if verdict.kind == "crash" and seen.signal in set(signal.Signals):
        return f"{signal.Signals(seen.signal).name}{_name_function(seen)}"
    return _name_failure(exported)[0].format(noun=exported.noun)


def _name_failure(exported: ExportedFailure) -> tuple[str, str]:
    """Name the kind of failure, or the wrong property of a result, in a title and in a sentence."""
    verdict = exported.verdict
    if _is_broken_model(exported.observation):
        return _WORDS["broken"]
    wrong = verdict.mismatch.what if verdict.kind == "mismatch" and verdict.mismatch is not None else ""
    return _WORDS.get(wrong) or _WORDS.get(verdict.kind or "") or ("a failure", "fails{stage}")


def _name_function(seen: Observation) -> str:
    """Return ` in FUNCTION` for the innermost stack frame with a name of the compiler's own."""
    name = next(
        (
            frame.function
            for frame in reversed(seen.frames)
            if frame.language == "native"
            and "::" in frame.function
            and not frame.function.startswith(("std::", "__", "pybind11::", "nanobind::"))
        ),
        "",
    )
    return f" in {_clean_word('::'.join(name.split('(')[0].split('::')[-2:]), 60)}" if name else ""


def _is_broken_model(seen: Observation) -> bool:
    """Whether a transformer or a pass gave a worse program than the original; opsieve raises these
    exceptions itself.
    """
    return seen.exception.rpartition(".")[2] in (BROKEN_MODEL, "NotWellFormed")


def escape_text(text: str, most: int = _MOST_LOG) -> str:
    """Escape everything but printable ASCII and line ends, and truncate long lines and texts."""
    lines = []
    # Twice as much: escaping and cutting change the length, and a log may have megabytes.
    for line in text[: 2 * most].replace("\r\n", "\n").expandtabs(4).split("\n"):
        # Also against text that only seems to be something else (bidirectional controls, look-alikes).
        shown = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in line)
        lines.append(_cut_middle(shown))
    whole = "\n".join(lines).strip("\n")
    return whole if len(whole) <= most else f"{whole[:most]}\n..."


def _cut_middle(line: str) -> str:
    """Cut the middle of a long line: its start says where it comes from, its end the error."""
    if len(line) <= _LINE:
        return line
    tail = line[-_TAIL:]
    return f"{_end_at_word(line[: _LINE - _TAIL])} ... {tail.partition(' ')[2] or tail}"


def _end_at_word(line: str) -> str:
    """Cut a truncated line back to its last whole word if that is near."""
    kept = line.rpartition(" ")[0]
    # A mangled name of C++ has no spaces for hundreds of characters.
    return kept if len(kept) > len(line) - 60 else line


def fence_text(text: str, language: str = "text") -> str:
    """Put text in a fence that it cannot end."""
    # CommonMark: a fence ends only at a run at least as long as its own.
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _describe_regression(exported: ExportedFailure) -> str:
    """Describe between which releases the failure came and went, and the known commits behind it."""
    said = " ".join(_clean_sentence(line) for line in (exported.regression, exported.fixed) if line)
    if not exported.commits:
        return said
    sure = exported.commits[0].share == 1
    head = (
        "Commit:"
        if sure
        else "Likely commits, by what they changed between the two releases (nothing was built):"
    )
    lines = []
    # The others are mostly guesses of a few percent.
    for one in exported.commits[:3]:
        # a number alone would link to another project's
        subject = re.sub("#([0-9]+)", r"pull request \1", one.subject)
        lines.append(
            f"- {_clean_word(one.sha, 12)} {_clean_sentence(subject)}"
            + ("" if sure else f", {one.share:.0%}")
        )
    return "\n".join([said, "", head, "", *lines]).strip()


def _write_answers(exported: ExportedFailure, text: ModelText) -> dict[str, str]:
    verdict = exported.verdict
    compiler, says = _name_compiler(exported), _name_failure(exported)[1]
    stage = _STAGES.get(verdict.stage or "", "").format(noun=exported.noun)
    seen = f"{compiler}{',' * (', ' in compiler)} {says.format(noun=exported.noun, stage=stage)}."
    if verdict.blame == "optimiser":
        seen += " Without optimisation the same compiler gives the right result."
    if exported.shows is not None:
        seen += (
            f"\n\nIt does not always show: it was seen in {exported.shows[0]} of {exported.shows[1]}"
            " runs of the same inputs."
        )
    # What is expected and what is there stand below; of other failures the sentence has the figures.
    if verdict.kind not in ("mismatch", "error", "crash", "accepts-invalid"):
        seen += f"\n\n{fence_text(escape_text(verdict.reason))}"
    frames = _print_frames(exported.observation)
    return {
        "summary": _write_numbers(exported) + seen,
        "expected": _describe_expected(exported),
        "actual": _describe_actual(exported),
        "regression": _describe_regression(exported),
        "passes": _describe_variants(exported),
        "graph": _print_graph(exported, text),
        "reproducer": _write_reproducer(exported, text),
        "environment": fence_text("\n".join(_describe_environment(exported))),
        "log": f"Stack, innermost last:\n\n{fence_text(escape_text(frames))}" if frames else "",
        "version": _clean_word(exported.target.release or exported.observation.version, 60) or "unknown",
        "os": _clean_sentence(_name_system()),
        "architecture": (
            {"x86_64": "X64", "AMD64": "X64", "aarch64": "ARM64", "arm64": "ARM64"}.get(
                platform.machine(), _clean_word(platform.machine(), 40)
            )
        ),
        "platform": {"Darwin": "Mac"}.get(platform.system(), platform.system()),
        **({} if exported.noun == "model" else {"triage": _load_templates()["answers"]["triage-of-modules"]}),
        "note": "\n\n".join(
            [*map(_describe_probable, exported.probably[:1]), f"Found with opsieve {VERSION}."]
        ),
    }


def _write_numbers(exported: ExportedFailure) -> str:
    """Write the expected and the actual value of the worst element, to begin the issue with; "" for other
    texts than numbers.
    """
    worst = exported.verdict.mismatch
    if exported.verdict.kind != "mismatch" or worst is None or worst.what in _WORDS:
        return ""
    # Text of the compiler must not stand outside of a fence.
    if not (_NUMBER.fullmatch(worst.got) and _NUMBER.fullmatch(worst.expected)):
        return ""
    place = f"Element {list(worst.index)}" if worst.index else "The output"
    return (
        f"{place} is {worst.got} instead of {worst.expected};"
        f" {worst.fraction:.0%} of the elements differ.\n\n"
    )


def _describe_variants(exported: ExportedFailure) -> str:
    """Describe what became of the failure under other settings, in a table, and without the guilty passes."""
    names = " and ".join(f"`{_clean_word(name, 100)}`" for name in exported.passes)
    said = f"Skipping {names} makes the failure go away.\n\n" if names else ""
    rows = [f"| {_clean_sentence(name)} | {_clean_sentence(result)} |" for name, result in exported.variants]
    return (said + "\n".join(["| setting | result |", "|---|---|", *rows] if rows else [])).strip()


def _print_graph(exported: ExportedFailure, text: ModelText) -> str:
    """Print the model, unless that is impossible or a short script shows it anyway."""
    if not text.text:
        return f"The {exported.noun} cannot be printed; it is in the script."
    if text.exact and short_script.write_short_script(exported, text):
        return ""
    return fence_text(escape_text(text.text, _MOST_GRAPH))


def _print_frames(observation: Observation) -> str:
    """Print the stack without the user's folders and without the frames of opsieve's worker."""
    lines = []
    for frame in dropwhile(lambda frame: _INTERPRETER.match(frame.module), observation.frames):
        # The folders before it are the user's private ones.
        name = re.split(r"site-packages[/\\\\]", frame.file)[-1]
        if frame.language == "python" and name == frame.file:
            name = re.split(r"[/\\\\]", name)[-1]
        place = f"{name}:{frame.line}" if frame.language == "python" else f"{frame.module}+{frame.offset:#x}"
        known = frame.function != "<module>" and (
            frame.language == "python" or frame.module or frame.function
        )
        if known and not _OF_WORKERS.search(frame.file):
            lines.append(f"{place} {frame.function}".strip())
    return "\n".join(lines[-_MOST_FRAMES:])


def _describe_expected(exported: ExportedFailure) -> str:
    worst = exported.verdict.mismatch
    if worst is not None:
        values = {name: item.value for name, item in exported.expected.items()}
        author = exported.author if exported.author != exported.source else _clean_word(exported.source, 60)
        who = f", by {author}" if exported.source else ""
        who += _name_second_oracle(exported)
        return f"Expected{who}:\n\n{_print_values(worst, values, worst.expected)}"
    if exported.verdict.kind == "nondeterminism":
        return "Expected: the same outputs for the same inputs."
    if exported.case.program.fault is not None:
        return "Expected: the model breaks a rule of ONNX, so it is refused with an error."
    if _is_broken_model(exported.observation):
        return f"Expected: a {exported.noun} as valid as the original, with the same outputs."
    return f"Expected: the {exported.noun} is valid, so it compiles, runs and gives its outputs."


def _print_values(worst: Mismatch, outputs: Mapping[str, Any], element: str) -> str:
    """Print the worst output whole if it is short, else its worst element; a wrong shape or type first."""
    name = next((n for n in outputs if worst.output == n or worst.output.startswith(f"{n}[")), "")
    whole = f"{name} = {program_source.write_literal(outputs[name])}" if name else ""
    # A larger output is in the script; nobody reads base64.
    whole = "" if len(whole) > 600 or "decode(" in whole else whole
    place = f"{worst.output}{list(worst.index) or ''}: {element}\n"
    return fence_text(escape_text(whole if whole and worst.what not in _WORDS else place + whole))


def _name_second_oracle(exported: ExportedFailure) -> str:
    """Name the second compiler that agrees with the reference, if the verdict rests on one."""
    verdict = exported.verdict
    second = next((name for name in verdict.oracles if name == "onnxruntime:disable_all"), "")
    # As a witness it counts only for the faults of another compiler.
    if not (second and verdict.reason.endswith(f"{second} agree")) or exported.target.family == "onnxruntime":
        return ""
    return " and by onnxruntime without optimisation"


def _describe_actual(exported: ExportedFailure) -> str:
    verdict, observation = exported.verdict, exported.observation
    if verdict.mismatch is not None:
        worst = verdict.mismatch
        return f"Actual:\n\n{_print_values(worst, observation.outputs or {}, worst.got or worst.what)}"
    if verdict.kind == "accepts-invalid":
        return "Actual: it is run without an error."
    signal = f" (signal {observation.signal})" if observation.signal else ""
    name = f"{observation.exception}: " if observation.exception and not _is_broken_model(observation) else ""
    return f"Actual{signal}:\n\n{fence_text(escape_text(f'{name}{verdict.message or observation.message}'))}"


def _write_reproducer(exported: ExportedFailure, text: ModelText) -> str:
    short = short_script.write_short_script(exported, text)
    if short:
        ends = {"crash": "crashes"}.get(exported.verdict.kind or "", "raises an error")
        return f"The script {ends} while the bug is there.\n\n{fence_text(short.rstrip(chr(10)), 'python')}"
    try:
        source = script.write_script(exported, text)
    except BadInput as error:
        return f"No script shows it ({error}); the case is attached as `case.zip`."
    # Whole or not at all: half a script shows nothing.
    if len(source) > _MOST_SCRIPT:
        return "The script is too long for an issue and is attached as `repro.py`."
    looked = "" if exported.shows is None else f" It looks for it in up to {exported.runs} runs."
    return (
        "The script exits with 1 while the bug is there and with 0 when it is gone; it needs nothing but what"
        f" it imports.{looked}\n\n{fence_text(source.rstrip(chr(10)), 'python')}"
    )


def _describe_environment(exported: ExportedFailure) -> list[str]:
    lines = [_name_compiler(exported).partition(",")[0]]
    pins = script.list_pins(exported)
    for name in script.list_packages(exported):
        # It is in the first line.
        if name == exported.target.facts.package:
            continue
        # It has an environment of its own, so local packages say nothing about it.
        if exported.target.release:
            lines += [f"{name} {pins[name]}"] if name in pins else []
        else:
            try:
                lines.append(f"{name} {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                continue
    # Of a build the last part of the path is enough: the rest tells only where its owner keeps things.
    target = exported.target.with_release("") if exported.target.build else exported.target
    lines += [script.write_build_note(exported)] if exported.target.build else []
    options = str(target).partition(":")[2]
    settings = f", options {options}" if options else ""
    lines.append(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}{settings}")
    return [escape_text(line) for line in lines]


def _name_system() -> str:
    """Name the operating system, or else the kernel's release."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.release() or platform.system()


def _describe_probable(known: ProbableIssue) -> str:
    """Describe the public issue that may be the same, with the reason."""
    address = known.url if _ISSUE.fullmatch(known.url) else _clean_word(known.name, 160)
    return f"Possibly the same as {address}: {_clean_sentence('; '.join(known.reasons))}."


def _name_compiler(exported: ExportedFailure) -> str:
    """Name the package with its version, and which of its tools it is: `onnxruntime 1.32.0, float16`."""
    backend = exported.target.backend
    version = _clean_word(exported.target.release or exported.observation.version, 60)
    own = script.get_command_name(exported.target) if exported.target.facts.runs_command else backend.name
    tool = backend.name.partition(f"{backend.package}-")[2] if backend.package else ""
    return f"{backend.package or own} {version}".strip() + f", {tool}" * bool(tool)


def _clean_sentence(text: str) -> str:
    plain = text.translate(_ROUND)
    # GitHub makes links of `//` and of `www.` even without brackets, and mentions of `@`.
    return re.sub(r"[^A-Za-z0-9 .,:()+=_/'-]|//+|(?i:www)(?=\.)", "?", plain)[:300]


def _clean_word(text: str, most: int) -> str:
    """Reduce text of a model or a user to a word without meaning in Markdown."""
    return re.sub(r"[^A-Za-z0-9.:+=,_-]|(?i:www)(?=\.)", "?", str(text))[:most]


@cache
def _load_templates() -> dict[str, Any]:
    return tomllib.loads(_TEMPLATES.read_text("utf-8"))
