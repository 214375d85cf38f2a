"""The parts of inductor that can be disabled. See targets.py."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping

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


def compile_only(graph: Any, examples: Any) -> Callable[..., Any]:
    """Compile as a backend of torch.compile, and return what runs without the compiler."""
    from torch._inductor.compile_fx import compile_fx

    compile_fx(graph, examples)
    return graph.forward  # type: ignore[no-any-return]


def settings(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of torch._inductor.config for the options; raise UnknownName for unknown parts."""
    patches: dict[str, Any] = {}
    if options["freezing"] == "on":
        patches["freezing"] = True
    for part in filter(None, options["disabled"].split("+")):
        if part not in PARTS:
            raise UnknownName("inductor has no part %s; there are %s" % (ascii(part[:80]), ", ".join(PARTS)))
        patches.update(PARTS[part])
    return patches


def has(config: Any, name: str) -> bool:
    """Whether a configuration module has a setting, whose name may be dotted."""
    for word in name.split("."):
        if not hasattr(config, word):
            return False
        config = getattr(config, word)
    return True


def limit_applications(options: Mapping[str, str]) -> None:
    """Have torch's CompilerBisector let a subsystem act only so many times (`TORCH_BISECT_*`), or not at
    all.
    """
    from torch._inductor import compiler_bisector

    chosen = options["subsystem"]
    known = {
        item.name: stage
        for stage, items in compiler_bisector.BACKENDS.items()
        for item in items
        if isinstance(item, compiler_bisector.BisectSubsystem)
    }
    if chosen and chosen not in known:
        raise UnknownName("torch has no subsystem %s; there are %s" % (ascii(chosen[:80]), ", ".join(known)))
    count = options["applications"] or "0"
    # `isdigit` alone takes digits of other scripts.
    if not (count.isascii() and count.isdigit()):
        raise UnknownName("applications are a number, not %s" % ascii(count[:80]))
    # Set to "" where nothing is chosen: a request before may have set them.
    variables = {"BACKEND": known.get(chosen, ""), "SUBSYSTEM": chosen, "MAX": count if chosen else ""}
    for name, value in variables.items():
        os.environ["TORCH_BISECT_" + name] = value
    # torch caches them, and a worker serves requests with different options.
    compiler_bisector.get_env_val.cache_clear()
    compiler_bisector.subsystem_call_counter.clear()
    compiler_bisector.CompilerBisector.bisection_enabled = bool(chosen)
