"""Text that commands print, held against files in corpus/golden. `UPDATE_GOLDEN=1 pytest ...` writes the
files anew.
"""

import os
import re
from pathlib import Path

from repository import GOLDEN


def assert_golden(name: str, text: str) -> None:
    """The text is that of the file."""
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert file.exists(), f"{file} is missing: write it with UPDATE_GOLDEN=1"
    assert text == file.read_text(), f"{file} differs: look, and write it anew with UPDATE_GOLDEN=1"


def normalised(text: str, **places: Path) -> str:
    """Text without what differs from run to run: seconds, keys of fingerprints, and the given folders by
    their names.
    """
    for name, folder in places.items():
        text = text.replace(str(folder), name)
    text = re.sub(r"\b\d+\.\d+ s\b", "N s", text)
    return re.sub(r"-[0-9a-f]{10}\b", "-KEY", text)
