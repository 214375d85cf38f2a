"""Reports of unexpected exceptions: errors of opsieve itself, not of its input."""

import os
import platform
import re
import shlex
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

# EX_SOFTWARE of sysexits.h
EXIT_CODE = 70
_MOST_OF_A_SECTION = 30_000
_MOST_REPORTS = 20
_REPORT = re.compile(r"fault-\w{1,32}\.txt")


def write_report(error: BaseException, arguments: Sequence[str]) -> Path:
    """Write the report readable only by the user; keep the newest 20. May raise OSError."""
    from platformdirs import user_cache_path

    folder = user_cache_path("opsieve") / "faults"
    # A command line can name private paths.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mode 0600, never through a link
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="fault-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(format_report(error, arguments))
    # Only names of our own: whatever else lies there is not removed.
    reports = [entry for entry in os.scandir(folder) if _REPORT.fullmatch(entry.name)]
    reports.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for entry in reports[:-_MOST_REPORTS]:
        os.unlink(entry.path)
    return Path(name)


def format_report(error: BaseException, arguments: Sequence[str]) -> str:
    """Format versions, command line and traceback: at most about 100,000 characters, without control
    characters.
    """
    sections = (
        ("command line", shlex.join(arguments)),
        ("versions", "\n".join(_list_versions())),
        ("traceback", "".join(traceback.format_exception(error))),
    )
    return "\n".join(
        f"{title}\n{_cut_middle(_escape(_cut_middle(text.rstrip())))}\n" for title, text in sections
    )


def get_issues_page() -> str:
    """Return the address for reports from the package's metadata."""
    urls = metadata.metadata("opsieve").get_all("Project-URL") or []
    pages = dict(url.split(", ", 1) for url in urls if ", " in url)
    return str(pages.get("Issues", "the issues of opsieve"))


def _list_versions() -> list[str]:
    """List the versions of Python, the system, opsieve, its dependencies and plug-ins; installed packages
    only.
    """
    lines = [f"Python {platform.python_version()}", platform.platform()]
    required = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in metadata.requires("opsieve") or []}
    # Finding entry points reads every package, and a distribution's name its metadata: once each.
    plugged = {
        point.dist
        for points in [metadata.entry_points()]
        for group in points.groups
        if group.startswith("opsieve.")
        for point in points.select(group=group)
    }
    # Not all packages: the others of an environment are nobody's business.
    for name in ["opsieve", *sorted((required | {dist.name for dist in plugged if dist}) - {"opsieve"})]:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return lines


def _escape(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _cut_middle(text: str) -> str:
    """Keep both ends of a long text: the end of a traceback names the error."""
    most = _MOST_OF_A_SECTION
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... {len(text) - most} characters left out ...\n{text[-most // 2 :]}"
