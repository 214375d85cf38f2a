"""A report of an exception that no handler expected: opsieve is wrong then, not what it was given."""

import os
import platform
import re
import shlex
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
_MOST_OF_A_SECTION = 30_000
_MOST_REPORTS = 20
_REPORT = re.compile(r"fault-\w{1,32}\.txt")


def write_report(error: BaseException, arguments: Sequence[str]) -> Path:
    """Write the report where only the user can read it; the oldest beyond 20 go. Raises OSError."""
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mode 0600, never through a link
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="fault-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(report_text(error, arguments))
    _remove_oldest(folder)
    return Path(name)


def report_text(error: BaseException, arguments: Sequence[str]) -> str:
    """Versions, command line and traceback; at most about 100,000 characters, none of them for controlling a
    terminal.
    """
    sections = (
        ("command line", shlex.join(arguments)),
        ("versions", "\n".join(_versions())),
        ("traceback", "".join(traceback.format_exception(error))),
    )
    return "\n".join(
        f"{title}\n{_bounded(_printable(_bounded(text.rstrip())))}\n" for title, text in sections
    )


def issues_page() -> str:
    """The address to send a report to, as the package declares it."""
    urls = metadata.metadata("opsieve").get_all("Project-URL") or []
    pages = dict(url.split(", ", 1) for url in urls if ", " in url)
    return str(pages.get("Issues", "the issues of opsieve"))


def _folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("opsieve") / "faults"


def _versions() -> list[str]:
    """Of Python, the system, opsieve, what it depends on and what is plugged into it; installed packages
    only.
    """
    lines = [f"Python {platform.python_version()}", platform.platform()]
    required = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in metadata.requires("opsieve") or []}
    plugged = {
        point.dist.name
        for group in metadata.entry_points().groups
        if group.startswith("opsieve.")
        for point in metadata.entry_points(group=group)
        if point.dist is not None
    }
    for name in ["opsieve", *sorted((required | plugged) - {"opsieve"})]:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return lines


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _bounded(text: str) -> str:
    """Both ends of a long text: a traceback says at its end what happened."""
    most = _MOST_OF_A_SECTION
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... {len(text) - most} characters left out ...\n{text[-most // 2 :]}"


def _remove_oldest(folder: Path) -> None:
    reports = [entry for entry in os.scandir(folder) if _REPORT.fullmatch(entry.name)]
    reports.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for entry in reports[:-_MOST_REPORTS]:
        os.unlink(entry.path)
