"""The parts and passes of inductor that can be disabled, and the trace of its passes. See targets.py."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

from opsieve.backends.compilers.transformers.pass_options import report_passes
from opsieve.backends.compilers.worker_common import UnknownName

# Each part of inductor that can be left out by itself, and the settings of torch._inductor.config that do so.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "pre_grad_passes": {"use_pre_grad_passes": False},
    "joint_graph_passes": {"use_joint_graph_passes": False},
    "post_grad_passes": {"use_post_grad_passes": False},
    "pattern_matcher": {"pattern_matcher": False},
    "constant_folding": {"joint_graph_constant_folding": False},
    "fusion": {"max_fusion_size": 1, "epilogue_fusion": False},
    "epilogue_fusion": {"epilogue_fusion": False},
    "inlining": {"realize_reads_threshold": 1, "realize_opcount_threshold": 1},
    "loop_ordering": {"loop_ordering_after_fusion": False},
    "buffer_reuse": {"allow_buffer_reuse": False, "inplace_buffers": False},
    "layout": {"layout_optimization": False, "comprehensive_padding": False},
    "split_reductions": {"split_reductions": False},
    # Other flags for g++ want another precompiled header, which is larger than a worker may write.
    "vectorisation": {"cpp.simdlen": 1, "cpp_cache_precompile_headers": False},
    "weight_prepack": {"cpp.weight_prepack": False},
    "precision_shortcuts": {"emulate_precision_casts": True},
    "lowerings": {"fallback_by_default": True},
}
# Parts that hold passes, or other parts; attribution tries them last.
HOSTS = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes", "pattern_matcher", "lowerings")


def compile_only(graph: Any, examples: Any) -> Callable[..., Any]:
    """Compile as a backend of torch.compile, and return what runs without the compiler."""
    from torch._inductor.compile_fx import compile_fx

    compile_fx(graph, examples)
    return graph.forward  # type: ignore[no-any-return]


def check_best_instructions(module: Any) -> None:
    """Have torch try the machine's best vector instructions alone. It takes the best set that g++ knows, but
    compiles checks of all others first: 10 s of CPU.
    """
    flags = set(module.x86_isa_checker())
    best = next((isa for isa in module.supported_vec_isa_list if set(str(isa).split()) <= flags), None)
    if best:
        module.valid_vec_isa_list = lambda: [best]


def settings(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of torch._inductor.config for the options. A name that is no part is taken for a
    pass.
    """
    patches: dict[str, Any] = {"freezing": True} if options["freezing"] == "on" else {}
    named = [name for name in options["disabled"].split("+") if name]
    for part in named:
        patches.update(PARTS.get(part, {}))
    passes = [name for name in named if name not in PARTS]
    if passes:
        # torch disables every pass whose name is in this text.
        patches["disabled_passes"] = "+".join(passes)
    return patches


def check_passes(text: str, folder: Path) -> None:
    """Raise UnknownName unless the sources of torch's passes in a folder have every name in a text."""
    sources = [path.read_text(errors="replace") for path in folder.glob("*.py")] if text else []
    for name in text.split("+") if text else ():
        # torch numbers some: `pass_pattern_1`.
        word = '"%s' % (name.rstrip("0123456789") if name.startswith("pass_pattern_") else name)
        if not any(word in source for source in sources):
            raise UnknownName(
                "inductor has no part or pass %s; its parts are %s" % (ascii(name[:80]), ", ".join(PARTS))
            )


@contextlib.contextmanager
def wrap_passes(skipped: str, traced: bool) -> Iterator[None]:
    """While the block lasts, skip the named passes, and print which passes run and change the graph if
    `traced`.
    """
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver as observer

    if traced:
        report_passes("host", HOSTS)
        report_passes("ran", [name for name in PARTS if name not in HOSTS])
    originals = {name: getattr(observer, name) for name in ("apply_gm_pass", "apply_graph_pass")}
    names = skipped.split("+")

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(self: Any, function: Any) -> Any:
            # torch's own setting also skips a pass whose name is a part of another one's.
            if self.passname in names:
                return None
            if not traced:
                return original(self, function)
            report_passes("ran", [self.passname])
            before = _print_graphs(self.gm)
            try:
                result = original(self, function)
            except Exception:
                # A pass that raises may leave the graph as it was, and is the first to suspect.
                report_passes("acted", [self.passname])
                raise
            if _print_graphs(self.gm) != before:
                report_passes("acted", [self.passname])
            return result

        return apply

    try:
        for name, original in originals.items():
            setattr(observer, name, wrap(original))
        yield
    finally:
        for name, original in originals.items():
            setattr(observer, name, original)


def _print_graphs(module: Any) -> list[str]:
    """Return the text of every graph in a module, those of bodies too."""
    return [str(each.graph) for each in module.modules() if hasattr(each, "graph")]


def has(config: Any, name: str) -> bool:
    """Whether a configuration module has a setting, whose name may be dotted."""
    for word in name.split("."):
        if not hasattr(config, word):
            return False
        config = getattr(config, word)
    return True
