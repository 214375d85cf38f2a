"""Hooks of mkdocs: links that leave `docs/` lead to the repository, the site has mermaid of its own, and its
page of bugs ends with the list of all of them.

The pages link to samples, code and the README with relative paths, so that they work in a clone. On the site
these files do not exist; there the links lead to the same file in the repository.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from opsieve.triage.corpus.corpus_file import read_bugs
from opsieve.triage.corpus.found_page import list_bugs

_LINK = re.compile(r"(\]\()(\.\./[^)\s]+)(\))")
# Where `make docs` unpacks the package of npm.
_MERMAID = Path(sys.prefix) / "package" / "dist" / "mermaid.min.js"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add mermaid to the site; the theme takes it from a CDN only if no script has loaded it."""
    if _MERMAID.exists():
        place = "assets/mermaid.min.js"
        files.append(File.generated(config, place, abs_src_path=str(_MERMAID)))
        config.extra_javascript.append(place)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Replace relative links to files outside `docs/` by links to the repository, and list the bugs.

    Args:
        markdown: The text of the page.
        page: The page; its `file.src_uri` is relative to `docs/`.
        config: The configuration of the site, with `repo_url`.

    Returns:
        The text with the replaced links.
    """
    if page.file.src_uri == "found.md":
        markdown += list_bugs(read_bugs(Path(__file__).parents[2] / "samples"))
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if path.startswith("docs/"):
            return match[0]
        return f"{match[1]}{config.repo_url}/blob/main/{path}{match[3]}"

    return _LINK.sub(replace, markdown)
