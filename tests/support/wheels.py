"""Wheels of one module each, made by tests."""

import base64
import hashlib
import zipfile
from pathlib import Path


def wheel(
    folder: Path, name: str, version: str, tag: str = "py3-none-any", files: dict[str, str] | None = None
) -> Path:
    """A wheel of one module that holds its version, or of the files given; its path."""
    stem = f"{name.replace('-', '_')}-{version}"
    files = {
        **(files or {f"{name.replace('-', '_')}.py": f"VERSION = {version!r}\n"}),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
        ),
    }
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in files.items()
    }
    rows = [
        f"{path},sha256={digest.decode().rstrip('=')},{len(files[path])}\n"
        for path, digest in digests.items()
    ]
    files[f"{stem}.dist-info/RECORD"] = "".join([*rows, f"{stem}.dist-info/RECORD,,\n"])
    folder.mkdir(exist_ok=True)
    made = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made
