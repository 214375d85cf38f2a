"""The one exception that means: what the user gave cannot be used."""


class BadInput(ValueError):
    """Input that cannot be used; the message is one clear sentence that says what to do. Commands print it and exit with 2."""
