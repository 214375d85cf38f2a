"""Passes of the transformers: skipping them by name, and reports of which ran and which acted.

Loaded by `transformed.py` next to it, so it runs inside workers too: the standard library only, Python 3.8. A
trace is printed, so that it survives a crash: lines `opsieve pass ran NAME`, `opsieve pass acted NAME`, and
`opsieve pass host NAME` for one that only runs others.
"""

import contextlib
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from opsieve.backends.compilers.worker_common import UnknownName


def list_names(names: Iterable[str]) -> str:
    """List at most five names, quoted and shortened: they come from a model or from a user."""
    every = sorted(names)
    return ", ".join([ascii(name[:80]) for name in every[:5]] + ["..."] * (len(every) > 5))


def split_names(text: str) -> List[str]:
    """Split an option's value into names."""
    return [name for name in text.split("+") if name]


def check_names(package: str, names: List[str], every: Iterable[str]) -> List[str]:
    """Return `names`; raise UnknownName for one that is not among `every`, because a misspelt pass would pass
    every test.
    """
    missing = set(names) - set(every)
    if missing:
        raise UnknownName("%s has no pass %s" % (package, list_names(missing)))
    return names


def report_passes(what: str, names: Iterable[str]) -> None:
    """Print lines of a trace, each at once."""
    for name in names:
        # Without spaces, since a line of the trace is split at them.
        sys.stderr.write("opsieve pass %s %s\n" % (what, "_".join(name.split())))
    # At once: the next pass may crash the process.
    sys.stderr.flush()


def onnxoptimizer_passes(module: Any, named: str, skipped: str) -> Optional[List[str]]:
    """Return the passes to run: those named, otherwise the default ones, without those to skip; `None` for
    the default of an old release.
    """
    available = module.get_available_passes()
    passes = check_names("onnxoptimizer", split_names(named), available)
    # Before 0.2
    if not passes and not hasattr(module, "get_fuse_and_elimination_passes"):
        if skipped:
            raise UnknownName(
                "onnxoptimizer does not list its default passes in this release, so none can be left out"
            )
        return None
    if not passes:
        passes = list(module.get_fuse_and_elimination_passes())
    left_out = check_names("onnxoptimizer", split_names(skipped), available)
    return [name for name in passes if name not in left_out]


def trace_onnxoptimizer(module: Any, model: Any, passes: Optional[List[str]]) -> None:
    """Run the passes one by one on the model as it then is; `model` itself is left alone."""
    for name in passes or []:
        report_passes("ran", [name])
        after = module.optimize(model, [name])
        # Deterministic: maps in protobuf have no order.
        if after.SerializeToString(deterministic=True) != model.SerializeToString(deterministic=True):
            report_passes("acted", [name])
        model = after


def onnxsim_passes() -> List[str]:
    """Return the passes of onnxsim's default pipeline; [] for a release that does not list them."""
    from onnxsim import onnxsim_cpp2py_export as library

    if not hasattr(library, "_list_optimizers"):
        return []
    # Before this call 25 of the default passes are not registered (0.8.1); 0.6.3 to 0.7.3 lack it.
    getattr(library, "_list_other_optimizers", list)()
    return list(library._list_optimizers())


def known_to_onnxsim(names: List[str]) -> List[str]:
    """Return `names`; raise UnknownName for one that onnxsim lacks: by its list, or by the words in its
    library.
    """
    from onnxsim import onnxsim_cpp2py_export as library

    listed_ = onnxsim_passes()
    if listed_:
        return check_names("onnxsim", names, listed_ + getattr(library, "_list_other_optimizers", list)())
    with open(library.__file__, "rb") as file:
        words = file.read()
    # Two letters occur in any binary.
    return check_names("onnxsim", names, [name for name in names if len(name) > 2 and name.encode() in words])


@contextlib.contextmanager
def onnxscript_passes(skipped: str, trace: bool) -> Iterator[None]:
    """Disable the named passes (by class) and rewrite rules (by name) of onnxscript while the block lasts.

    UnknownName at its end for a name that no pass or rule had that ran.
    """
    off = set(split_names(skipped))
    seen: Dict[str, bool] = {}
    hosts: Set[str] = set()
    # The passes under way, outermost first
    open_: List[str] = []
    if not off and not trace:
        yield
        return
    import onnx_ir as ir
    from onnxscript.rewriter import _DEFAULT_REWRITE_RULES as rules, RewriteRule

    kept: List[Tuple[Any, str, Any]] = []

    def wrap(
        owner: Any, method: str, name_of: Callable[[Any], str], nothing: Callable[[Any], Any], acted: Any
    ) -> None:
        """Make `method` skip the names to skip, and report its effect for the others."""
        original = getattr(owner, method)

        def run_wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
            name = name_of(self)
            if trace and open_ and open_[-1] not in hosts:
                hosts.add(open_[-1])
                report_passes("host", open_[-1:])
            if trace and name not in seen:
                report_passes("ran", [name])
            seen.setdefault(name, False)
            if name in off:
                return nothing(arguments)
            open_.append(name)
            try:
                result = original(self, *arguments, **named)
            finally:
                open_.pop()
            if trace and not seen[name] and acted(result):
                seen[name] = True
                report_passes("acted", [name])
            return result

        # The next request in this process must find the library as it was.
        kept.append((owner, method, original))
        setattr(owner, method, run_wrapped)

    def skip_pass(arguments: Any) -> Any:
        model = arguments[0]
        # A pass can be called with the result of another.
        return model if isinstance(model, ir.passes.PassResult) else ir.passes.PassResult(model, False)

    wrap(
        ir.passes.PassBase,
        "__call__",
        lambda one: type(one).__name__,
        skip_pass,
        lambda result: result.modified,
    )
    wrap(RewriteRule, "try_rewrite", rule_name, lambda arguments: None, lambda result: result is not None)
    try:
        yield
    finally:
        for owner, method, original in kept:
            setattr(owner, method, original)
    check_names("onnxscript", sorted(off), list(seen) + [rule_name(rule) for rule in rules])


def rule_name(rule: Any) -> str:
    """Return a rewrite rule's name, or the variable that holds it, or the function that writes its
    replacement.
    """
    if getattr(rule, "name", None):
        return str(rule.name)
    function = getattr(getattr(rule, "_replacement_pattern", None), "_function", None)
    module = sys.modules.get(getattr(function, "__module__", ""))
    held = [name for name, value in vars(module).items() if value is rule] if module else []
    return str(held[0] if held else getattr(function, "__name__", "rule"))
