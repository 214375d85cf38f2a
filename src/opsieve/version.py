"""The version of opsieve: the build takes it from the git tag and writes `_version.py` (hatch-vcs, see
pyproject.toml).
"""

try:
    # Exported
    from opsieve._version import VERSION as VERSION
except ImportError:
    # A checkout that was never installed
    VERSION = "0+unknown"

# The version without what depends on the commit. It stands in what is generated, so that equal seeds give
# equal bytes at every commit.
BASE_VERSION = VERSION.partition("+")[0].partition(".dev")[0]


def format_requirement(version: str) -> str:
    """The requirement for pip that installs this version; a package index has no versions between two
    releases.
    """
    return "opsieve" if ".dev" in version or "+" in version else f"opsieve=={version}"
