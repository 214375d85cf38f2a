"""The one exception that means: what the user gave cannot be used."""

from pathlib import Path


class BadInput(ValueError):
    """Input that cannot be used; the message is one clear sentence that says what to do. Commands print it and exit with 2."""


def shown(text: object, limit: int = 60) -> str:
    """Text from a file or a user, quoted, on one line and at most about `limit` characters long."""
    whole = ascii(str(text) if isinstance(text, Path) else text)
    return whole if len(whole) <= limit else f"{whole[: limit // 2]}...{whole[-(limit // 2) :]}"
