"""The version of a compiler beside opsieve without importing it, which takes some of them seconds."""

import sys
import sysconfig
from importlib import metadata, util
from pathlib import Path

from opsieve.backends.registry import ResolvedTarget


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
