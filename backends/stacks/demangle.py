"""Names of C++ symbols, without their template arguments and parameters.

A reader for the part of the Itanium C++ ABI's mangling that names functions (section 5.1 of the ABI). A full
demangler would be C code fed with text from a hostile log. Comparing stacks takes only the qualified name,
which needs the ends of types and not the types.
"""

# A longer symbol is left mangled: substitutions can make the demangled name very much longer.
_MAX = 4000
_STD = {
    "St": "std",
    "Sa": "std::allocator",
    "Sb": "std::basic_string",
    "Ss": "std::string",
    "Si": "std::istream",
}
_STD |= {"So": "std::ostream", "Sd": "std::iostream"}
_OPERATORS = {
    "cl": "()",
    "ix": "[]",
    "aS": "=",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
}
_OPERATORS |= {
    "pl": "+",
    "mi": "-",
    "ml": "*",
    "dv": "/",
    "rm": "%",
    "ls": "<<",
    "rs": ">>",
    "pt": "->",
    "nw": " new",
}
_OPERATORS |= {"dl": " delete", "pL": "+=", "de": "*", "ng": "-", "nt": "!", "ss": "<=>"}
# Each is closed by an E; literals (L) and lambdas (Ul) are read on their own
_OPENS = "INFXJZ"


class _Unknown(Exception):
    """A construct that this reader does not know."""


def demangle(symbol: str) -> str:
    """Return `tvm::arith::Simplify` for `_ZN3tvm5arith8SimplifyEi`; the symbol itself if it is not C++ or
    beyond this reader.
    """
    if not symbol.startswith("_Z") or len(symbol) > _MAX:
        return symbol
    try:
        return "::".join(_encoding(symbol, 2)) or symbol
    except (_Unknown, IndexError, ValueError):
        return symbol


def _encoding(text: str, at: int) -> list[str]:
    if text[at] != "N":
        parts: list[str] = []
        if text.startswith("St", at):
            parts, at = ["std"], at + 2
        # Internal linkage
        if text[at] == "L":
            at += 1
        name, at = _read_unqualified(text, at, parts)
        return [*parts, name]
    at += 1
    # Qualifiers of the member function
    while text[at] in "rVKRO":
        at += 1
    parts = []
    while text[at] != "E":
        if text[at] == "S":
            if text[at : at + 2] not in _STD:
                # Only a full demangler can resolve a substitution.
                raise _Unknown
            parts.append(_STD[text[at : at + 2]])
            at += 2
        elif text[at] == "I":
            at = _skip(text, at)
        elif text[at] == "B":
            # An ABI tag
            at = _source_name(text, at + 1)[1]
        else:
            name, at = _read_unqualified(text, at + (text[at] == "L"), parts)
            parts.append(name)
    return parts


def _read_unqualified(text: str, at: int, parts: list[str]) -> tuple[str, int]:
    """Read one name; returns it and the position after it. `parts` are the enclosing names."""
    if text[at].isdigit():
        return _source_name(text, at)
    if text[at] in "CD" and text[at + 1].isdigit() and parts:
        return ("~" if text[at] == "D" else "") + parts[-1], at + 2
    if text.startswith("Ul", at):
        # Its number is left out, since it changes when another lambda is added before.
        return "<lambda>", text.index("_", _skip(text, at)) + 1
    if text[at : at + 2] in _OPERATORS:
        return f"operator{_OPERATORS[text[at : at + 2]]}", at + 2
    raise _Unknown


def _source_name(text: str, at: int) -> tuple[str, int]:
    begin = at
    # Bounded, since a hostile log could hold a number of any length.
    while text[at].isdigit() and at - begin < 5:
        at += 1
    end = at + int(text[begin:at])
    if end > len(text):
        raise _Unknown
    name = text[at:end]
    # GCC and clang add a hash or a number to it.
    return ("<anonymous>" if name.startswith("_GLOBAL__N") else name), end


def _skip(text: str, at: int) -> int:
    """Return the position behind the bracket that opens at `at`."""
    depth = 0
    while True:
        sign = text[at]
        if sign.isdigit():
            at = _source_name(text, at)[1]
            continue
        if sign == "E":
            depth -= 1
            at += 1
            if depth == 0:
                return at
            continue
        if sign == "L":
            if text[at + 1] == "_":
                raise _Unknown
            at = text.index("E", at) + 1
        # A substitution stands for a type that was seen before; only its end matters here.
        elif sign == "S":
            at += 1
            while text[at] != "_" and (text[at].isdigit() or text[at].isupper()):
                at += 1
            at += 1
        elif (sign == "T" and text[at + 1] in "_0123456789") or sign == "A":
            at = text.index("_", at) + 1
        elif (sign == "U" and text[at + 1] == "l") or (sign == "D" and text[at + 1] in "tT"):
            depth += 1
            at += 2
        elif sign == "D":
            at += 2
        else:
            depth += sign in _OPENS
            at += 1
