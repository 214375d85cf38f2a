"""Names that a filter may hold although no cluster of the store has them, and the sentence for the others."""

from opsieve.gen.errors import shown, suggest_name

# What a value of a field is called in a sentence.
_NOUNS = {"op": "operator", "pass": "guilty pass", "bad": "first bad release"}


def known_names(field: str) -> tuple[str, ...]:
    """List the names that a field may have in any store: operators that ONNX declares, installed backends."""
    if field == "op":
        from opsieve.gen.declarations.catalogue import operators

        return tuple(operators())
    if field in ("target", "backend"):
        from opsieve.backends.registry import names

        return names()
    return ()


def is_known_name(field: str, value: str) -> bool:
    """Return whether a value means something in any store; of a target it may be the beginning of a name."""
    wanted = value.lower()
    names = [name.lower() for name in known_names(field)]
    return any(name.startswith(wanted) for name in names) if field == "target" else wanted in names


def describe_absence(field: str, value: str) -> str:
    """Say that no cluster of the store has a value of a field, or a text if the field is ""."""
    if not field:
        return f"no cluster of the store has {shown(value)} in its title, messages, operators, name or note"
    hint = suggest_name(value, known_names(field))
    return f"no cluster of the store has the {_NOUNS.get(field, field)} {shown(value)}{hint}"
