"""Rewrite messages of one bug to a common template.

A message is truncated, then rewritten: text that changes from run to run, machine to machine and program to
program becomes a placeholder, and the author's text stays. Names of operators, classes, source files and
functions stay. Line numbers are dropped: they move with every release while the function around them stays.

Each expression is possessive, bounded or a single class of characters, and starts only at the start of a
word, so every pass is linear; and the text is truncated before the first pass, so ten megabytes cost as much
as eight kilobytes.
"""

import re
from collections.abc import Collection

from opsieve.backends.stacks.demangle import demangle
from opsieve.triage.fingerprint.source_location import CLEAN, MAX_READ, SOURCES, remove_locations

_MAX_TEMPLATE = 400
# A shorter first line says too little without the next.
_SHORT = 24
# what comes on the next line
_ANNOUNCES = (
    "raised:",
    "failed:",
    "error:",
    "Error:",
    "exception:",
    "reason:",
)

# Placeholders are single characters of the private use area until the end, so that no later pass takes them
# apart.
_NUMBER, _NAME, _DTYPE, _SHAPE, _PATH, _ADDRESS, _TIME, _VERSION, _EXPRESSION, _ID, _TYPE = map(
    chr, range(0xE000, 0xE00B)
)
_SHOWN = {
    _NUMBER: "<n>",
    _NAME: "<name>",
    _DTYPE: "<dtype>",
    _SHAPE: "<shape>",
    _PATH: "<path>",
    _ADDRESS: "<address>",
    _TIME: "<time>",
    _VERSION: "<version>",
    _EXPRESSION: "<expression>",
    _ID: "<id>",
    _TYPE: "<type>",
}
_EXPAND = str.maketrans(_SHOWN)
_CLEAN = CLEAN | {ord(sign): "?" for sign in _SHOWN}

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}+[ -/]?[@-~])?")
_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d{1,4}+ : (\w{1,60}+) : ")
_QUOTED = re.compile(r"(?<!\w)b?(?:'([^'\n]{0,200}+)'|\"([^\"\n]{0,200}+)\"|`([^`\n]{0,200}+)[`'])")
# Behind these words the interpreter quotes a name of the compiler's code.
_OF_CODE = ("attribute ", "argument ", "local variable ", "module named ", "import name ", "free variable ")
# Messages that the Python interpreter writes: what varies in them are the types of the data, so they split
# one bug.
_INTERPRETER = re.compile(
    r"not supported between instances|object (?:is not|has no|does not)|unsupported operand|index out of"
    r" range|has no len"
    r"|positional argument|keyword argument|values to unpack|cannot unpack|can only concatenate"
)
# Exceptions that Python raises about data; a mistake shows in them at several lines.
_ABOUT_DATA = frozenset(["KeyError", "IndexError", "ZeroDivisionError", "RecursionError", "StopIteration"])
_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]+")
_QUALIFIED = re.compile(r"(?:[a-z_]\w*+\.)++[A-Z]\w*+|\w++(?:::\w++)++")
_DTYPE_WORD = r"(?:[\w.]{1,20}\.)?(?:(?:float|bfloat|int|uint|complex)\d{1,3}+(?:_?e\dm\d\w*+)?|bool)(?!\w)"
_ONE_DTYPE = re.compile(_DTYPE_WORD)
# The order decides: an address, a hash or a path contains words and numbers, so these come last.
_TOKEN = re.compile(
    r"(?P<uuid>(?<![\w-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w))"
    r"|(?P<address>(?<!\w)0x[0-9a-fA-F]++)"
    r"|(?P<hash>(?<!\w)(?=\d*+[a-f])(?=[a-f]*+\d)[0-9a-f]{8,}+(?!\w))"
    r"|(?P<dims>(?<!\w)\d++(?:[x×]\d++)++(?!\w))"
    r"|(?P<time>(?<![\w.])(?:\d{4}-\d\d-\d\d(?:[T"
    r" ]\d\d:\d\d(?::\d\d)?[.,\d]*+Z?)?|\d{1,2}:\d\d:\d\d(?:\.\d++)?))"
    r"|(?P<version>(?<![\w.])v?\d++\.\d++\.\d++[\w.+]*+)"
    r"|(?P<drive>(?<!\w)[A-Za-z]:\\(?:[^\\/:*?\"<>|\n]{1,100}+\\)*+[\w.+@~-]*+(?::\d++){0,2}+)"
    r"|(?P<path>(?<![\w./])(?:[\w.-]{1,100}+@[\w.-]{1,100}+:|~|\.{1,2}|[A-Za-z]:)?"
    r"[/\\](?:[\w.+@~-]++[/\\])*+[\w.+@~-]*+(?::\d++){0,2}+)"
    r"|(?P<relative>(?<![\w./+-])(?:[\w.+-]++/)++[\w.+-]++(?::\d++){0,2}+)"
    r"|(?P<file>(?<![\w./+-])[\w+-]++(?:\.[A-Za-z]\w*+):\d++(?::\d++)?)"
    r"|(?P<tensor>(?<!\w)tensor\(\w{1,40}+\))"
    r"|(?P<expression>(?<!\w)[RT]\.\w{1,40}+\([^()\n]*+(?:\([^()\n]*+\)[^()\n]*+)*+\))"
    rf"|(?P<dtype>(?<![\w.]){_DTYPE_WORD})"
    r"|(?P<opset>(?<!\w)[A-Z]\w*+\(-?\d{1,4}+\))"
    r"|(?P<value>(?<=\w=)(?!true|false|none)[a-z_]\w*+(?![\w.(]))"
    r"|(?P<word>(?<!\w)[A-Za-z_]\w*+)"
    r"|(?P<number>(?<!\w)-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)"
)
# What a program holds, shown in brackets over several lines within a sentence. It ends before the next
# bracket opens, so it is linear.
_DUMP = re.compile(
    r"(?:\[[^][(){}\n]*+\n[^][(){}]*+\]|\{[^][(){}\n]*+\n[^][(){}]*+\}|\([^][(){}\n]*+\n[^][(){}]*+\))"
    r"(?=[^\n\w]*+\w)"
)
# A C++ type as `typeid` names it: which type was met is the program's matter.
_MANGLED = re.compile(r"(?:_Z)?[PRK]{0,3}+(?:N[KVR]{0,2}+(?:S[tabsiod])?\d|St\d)")
# One type under two names: TVM keeps short texts in a class of their own.
_SPELLINGS = re.compile(r"\bffi\.(?:Small)?(Str(?:ing)?|Bytes)\b")
# The types that a call was made with, as Python shows a list of them: how many and which the program decides.
_CLASSES = re.compile(r"\[(?:<class '[\w.]{1,80}+'>(?:, )?){1,64}+\]")
# ReduceL1 and ReduceL2 are operators
_DIGITS_BEHIND = re.compile(r"(?:_v)?(?<!L)[_\d]++$")
_RUN = re.compile(rf"[\[\](){{}},;\s{_NUMBER}-]++")
_ITEM = rf"(?:{_NAME}(?:: ?tensor\({_DTYPE}\))?+|{_DTYPE})"
# Of arguments or types: how many there are is the program's matter.
_LIST = re.compile(rf"{_ITEM}(?:\s?,\s?{_ITEM})*+,?")
_SPACES = re.compile(r"\s++")
_QUOTED_OR_TOKEN = re.compile(rf"{_QUOTED.pattern}|([^\s'\"`,;()\[\]{{}}<>=|]++)")
_GLUED = re.compile(r"(?<=\d)[a-z]{3,}+\Z")
# Of a sentence, behind a name
_ENDS = ".:!?"


def normalise_message(message: str, names: Collection[str] = frozenset()) -> str:
    """Return the template of a message, at most 400 characters; "" for an empty one.

    `names` are those of the program (`ProgramNames`); each becomes a placeholder where it is a whole word.
    Only the first meaningful line of a message is read: dumps of arrays and programs follow it. The place in
    the compiler's source is removed; `describe_location` reads it.
    """
    text = _ANSI.sub("", message[:MAX_READ].translate(_CLEAN))
    # ONNX Runtime writes a number before the name of its status; the name says the same.
    text = _STATUS.sub(r"\1: ", text)
    # Before names are replaced, because signatures hold template arguments that look like them.
    text = remove_locations(text)
    text = _SPELLINGS.sub(lambda match: f"ffi.{match[1][:3]}", text)
    text = _CLASSES.sub(_TYPE, text)
    # Before lines are split: a dump stands in the middle of the author's sentence.
    text = _DUMP.sub("[]", text)
    text = _take_first_lines(text)
    text = (
        _QUOTED_OR_TOKEN.sub(lambda match: _replace_name(match, names), text)
        if names
        else _QUOTED.sub(_replace_quoted, text)
    )
    text = _TOKEN.sub(_replace_token, text)
    # After the tokens, since a shape is recognised by its numbers already replaced.
    text = _RUN.sub(_replace_run, text)
    text = _LIST.sub(lambda match: match[0][0], text)
    # Expanded last, as the names of placeholders are words that an earlier pass would rewrite.
    return _SPACES.sub(" ", text).strip().translate(_EXPAND)[:_MAX_TEMPLATE]


def has_variables(template: str) -> bool:
    """Whether a template holds placeholders; a message without any is a constant of the program that printed
    it.
    """
    return any(shown in template for shown in _SHOWN.values())


def is_from_interpreter(message: str) -> bool:
    """Whether Python itself words a message so, about data of the program."""
    return _INTERPRETER.search(message[:MAX_READ]) is not None


def is_about_data(exception: str, message: str) -> bool:
    """Whether Python raised an exception about a value: no statement of the compiler's author did."""
    return exception in _ABOUT_DATA or is_from_interpreter(message)


def _take_first_lines(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()][:2]
    if not lines:
        return ""
    alone = len(lines[0].strip()) >= _SHORT and not lines[0].rstrip().endswith(_ANNOUNCES)
    return lines[0] if alone else " ".join(lines)


def _replace_name(match: re.Match[str], names: Collection[str]) -> str:
    """Replace names of the program in a quoted text or a word: one look-up for each part between colons."""
    word = match[4]
    if word is None:
        quoted = _replace_quoted(match)
        return _NAME if _CAMEL.fullmatch(quoted) and quoted in names else quoted
    bare = word.rstrip(_ENDS)
    if bare in names:
        return _NAME + word[len(bare) :]
    # The author put no space behind a name: `main_f4already`
    found = _GLUED.search(bare)
    stem = bare[: found.start()] if found else bare
    # A compiler may have derived a name from one of the program's (`v29_q`, or `main_f4` for f4 of main);
    # only names with a digit count, because an author may write `data_type`.
    if stem in names or (
        "_" in stem
        and any(len(part) > 1 and not part.isalpha() and part in names for part in stem.split("_"))
    ):
        return f"{_NAME}{' ' if found else ''}{word[len(stem) :]}"
    return ":".join(_NAME if part in names else part for part in word.split(":")) if ":" in bare else word


def _replace_quoted(match: re.Match[str]) -> str:
    """Replace names of the program in a quoted text; operators, classes and Python's own terms stay."""
    inner = next(group for group in match.groups()[:3] if group is not None)
    before, after = (
        match.string[max(0, match.start() - 12) : match.start()],
        match.string[match.end() : match.end() + 16],
    )
    if _ONE_DTYPE.fullmatch(inner):
        return _DTYPE
    if _CAMEL.fullmatch(inner) or _QUALIFIED.fullmatch(inner):
        return inner
    if inner.isidentifier() and (
        before.endswith(_OF_CODE) or after.startswith((" object", " is not defined"))
    ):
        return inner
    return _NAME


def _replace_token(match: re.Match[str]) -> str:
    kind, text = match.lastgroup, match[0]
    if kind == "word":
        # Checked by demangling, since a plain word can begin like a mangled one.
        if _MANGLED.match(text) and demangle(text if text.startswith("_Z") else f"_Z{text}").count("_Z") == 0:
            return _TYPE
        if text.isalpha() or not any(sign.isdigit() for sign in text):
            return text
        return _DIGITS_BEHIND.sub("", text) or _NUMBER
    if kind in ("drive", "path", "relative", "file"):
        bare = text.split(":")[0] if kind in ("relative", "file") else text.rstrip("0123456789:")
        name = bare.replace("\\", "/").rpartition("/")[2]
        # A source file of the compiler identifies the place; its folder depends on the machine.
        if name.rpartition(".")[2].lower() in SOURCES:
            return name
        return _PATH if kind == "drive" or (kind == "path" and len(text) > 1) else text
    if kind == "opset":
        return text[: text.index("(")]
    if kind == "tensor":
        return f"tensor({_DTYPE})"
    return {
        "uuid": _ID,
        "hash": _ID,
        "dims": _SHAPE,
        "value": _NAME,
        "address": _ADDRESS,
        "time": _TIME,
        "version": _VERSION,
        "expression": _EXPRESSION,
        "dtype": _DTYPE,
        "number": _NUMBER,
    }[kind or ""]


def _replace_run(match: re.Match[str]) -> str:
    """Replace a run of numbers, brackets and commas that is a shape or an array.

    It is one if it has all three, or square or curly brackets around a number.
    """
    run = match[0]
    if _NUMBER not in run or not (
        ("," in run and any(bracket in run for bracket in "[](){}"))
        or any(bracket in run for bracket in "[{")
    ):
        return run
    return f"{' ' if run[0].isspace() else ''}{_SHAPE}{' ' if run[-1].isspace() else ''}"


_WORDS = re.compile(r"[A-Za-z][A-Za-z0-9]*+")
_HUMPS = re.compile(r"[A-Z]++(?![a-z])|[A-Z][a-z0-9]*+|[a-z0-9]++")
_BLAMED = re.compile(
    r"(?:converting operator|running|implementation for|kernel for|Optype \(|for operator|operator type:?|Op"
    r" with name \(\w{0,60}\) and type \()"
    r" ?['\"]?([A-Z]\w{0,80}+)"
)
# Operators whose names begin sentences: they count only where a message blames one (`_BLAMED`) or quotes it.
_ENGLISH = frozenset(
    [
        "If",
        "Not",
        "And",
        "Or",
        "Where",
        "Size",
        "Shape",
        "Range",
        "Max",
        "Min",
        "Mean",
        "Sum",
        "Loop",
        "Scan",
        "Constant",
    ]
)


def find_operators(message: str, known: Collection[str]) -> tuple[str, ...]:
    """Find the operators of `known` in a message, in order, those inside a fused name (`FusedMatMul`) too."""
    known = frozenset(known)
    text = message[:MAX_READ]
    blamed = frozenset(match[1] for match in _BLAMED.finditer(text))
    found: dict[str, None] = {}
    for match in _WORDS.finditer(text):
        word = match[0]
        if word in known:
            quoted = (
                text[max(0, match.start() - 1) : match.start()] in ("'", '"', "`", "(")
                or text[match.end() : match.end() + 1] == "("
            )
            if word not in _ENGLISH or word in blamed or quoted:
                found[word] = None
        # Splitting takes quadratic time in the number of humps, and no operator's name is longer.
        elif len(word) <= 80 and word[0].isupper():
            found.update(dict.fromkeys(_split_compound(word, known)))
    return tuple(found)


def find_blamed_operator(text: str) -> str:
    """Find the operator at which a compiler says it failed; "" without one. The last mention counts."""
    last = ""
    # The end of a log, because converters print each operator before they try it.
    for match in _BLAMED.finditer(text[-MAX_READ:]):
        last = match[1]
    return last


def _split_compound(word: str, known: frozenset[str]) -> list[str]:
    """Split a compound into operators of at least two letters, the longest first at every hump."""
    humps = _HUMPS.findall(word)
    found, index = [], 0
    while index < len(humps):
        for end in range(len(humps), index, -1):
            name = "".join(humps[index:end])
            # `Max` in `MaxPool` or `If` in another name is no operator of the graph.
            if name in known and name not in _ENGLISH:
                found.append(name)
                index = end
                break
        else:
            index += 1
    return found
