"""Whether a compiler lies beside opsieve, and its version, without importing it, which takes some of them
seconds.
"""

import sys
import sysconfig
from importlib import metadata, util
from pathlib import Path

from opsieve.backends.protocol import BackendFacts
from opsieve.backends.registry import ResolvedTarget


def find_missing_module(facts: BackendFacts) -> str:
    """Return the module of an extra that is not installed here; "" where only the import tells.

    A process that cannot but fail at its import would cost half a second for each compiler that is missing.
    """
    module = (facts.module or facts.package).partition(".")[0]
    return module if facts.extra and module and util.find_spec(module) is None else ""


def installed_version(target: ResolvedTarget) -> str:
    """Return the version that the package's distribution states, if the package lies in it; "" if only an
    import tells.

    So it is for a release or a build, for a backend that does not say so
    (`BackendFacts.version_of_distribution`), and for a package that workers, which look into the environment
    alone, would import from elsewhere.
    """
    facts = target.facts
    own = target.zygote == (target.name, "")
    if not own or not facts.version_of_distribution:
        return ""
    module = facts.module or facts.package
    found = sys.modules.get(module) or util.find_spec(module)
    origin = getattr(found, "__file__", None) or getattr(found, "origin", None)
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        if origin and Path(origin).resolve().is_relative_to(Path(site).resolve()):
            stated = next(iter(metadata.distributions(name=facts.package, path=[site])), None)
            if stated is not None:
                return stated.version
    return ""
