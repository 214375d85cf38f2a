"""Sequences of TVM's passes over TIR: the available passes, and how sequences are drawn, mutated and crossed
over.

Names are `dialect.Pass`, with an argument behind a colon (`tirx.NarrowDataType:32`). An item that begins with
`=` sets an option of the context for all of the sequence (`=tirx.UnrollLoop.auto_max_step:16`). After the
sequence the default lowering goes on, so that a sequence stands for what a user's own pipeline would do
first.
"""

from opsieve.gen.declarations.rng import Rng
from opsieve.gen.irs.tir.scope import RATES

# Passes that take and give functions of any stage before the packed calling convention.
ANYWHERE = (
    "tirx.StmtSimplify", "tirx.RemoveNoOp", "tirx.UnrollLoop", "tirx.ConvertSSA", "tirx.CommonSubexprElim",
    "tirx.SkipAssert", "tirx.RemoveAssume", "tirx.NarrowDataType:32", "tirx.NarrowDataType:64",
    "tirx.ForceNarrowIndexToInt32", "tirx.BF16ComputeLegalize", "tirx.FP8ComputeLegalize", "tirx.LowerIntrin",
    "tirx.InlinePrivateFunctions", "tirx.AnnotateEntryFunc", "tirx.VerifyMemory", "tirx.LowerTIRxOpaque",
    "s_tir.StmtSimplify", "s_tir.CanonicalizeLoop", "s_tir.LoopPartition", "s_tir.HoistIfThenElse",
    "s_tir.HoistExpression", "s_tir.RenormalizeSplitPattern", "s_tir.RewriteUnsafeSelect",
    "s_tir.AnnotateIrregularLoop", "s_tir.UseAssumeToReduceBranches", "s_tir.RemoveStoreUndef",
    "s_tir.UnifyThreadBinding", "s_tir.LiftThreadBinding", "s_tir.InjectVirtualThread",
    "s_tir.InjectDoubleBuffer", "s_tir.InstrumentBoundCheckers", "s_tir.DecorateDeviceScope",
    "s_tir.ConvertSSA", "s_tir.RemoveWeightLayoutRewriteBlock", "s_tir.InstrumentProfileIntrinsics",
    "s_tir.PlanAndUpdateBufferAllocationLocation", "s_tir.ConvertBlocksToOpaque", "s_tir.LowerInitBlock",
    "s_tir.CompactBufferAllocation", "s_tir.LowerMatchBuffer", "s_tir.InjectSoftwarePipeline",
    "s_tir.LowerCrossThreadReduction", "s_tir.ManifestSharedMemoryLocalStage", "s_tir.LowerAutoCopy",
    "s_tir.TransformMmaBufferLayout", "s_tir.InjectPermutedLayout", "s_tir.LowerOpaqueBlock",
    "s_tir.MergeSharedMemoryAllocations", "s_tir.ThreadSync:shared", "s_tir.ThreadSync:shared.dyn",
    "s_tir.ThreadSync:warp", "s_tir.LowerThreadAllreduce", "s_tir.InferFragment", "s_tir.LowerVtcmAlloc",
    "s_tir.VerifyVTCMLimit", "s_tir.LowerAsyncDMA", "s_tir.InjectPTXAsyncCopy", "s_tir.InjectPTXLDG32",
    "s_tir.DefaultGPUSchedule",
)  # fmt: skip
# Passes that want flat buffers, in the order in which the default lowering has them; what comes behind them
# is the rest of it.
FLAT = (
    "tirx.FlattenBuffer", "tirx.VectorizeLoop", "tirx.StorageRewrite", "tirx.PointerValueTypeRewrite",
)  # fmt: skip
# The end of the default lowering, in its order: each only behind the one before it.
PACKED = (
    "tirx.SplitHostDevice", "tirx.MakePackedAPI", "tirx.FP8StorageLegalize", "tirx.BF16StorageLegalize",
    "tirx.LowerTVMBuiltin", "tirx.LowerIntrin", "tirx.LowerWarpMemory",
)  # fmt: skip
_AFTER_PACKING = PACKED[2:5]
# The default lowering of a function for a CPU (`tvm/s_tir/pipeline.py` of 0.27).
LOWERING = (
    "s_tir.CanonicalizeLoop", "s_tir.LowerCrossThreadReduction", "s_tir.LowerInitBlock",
    "s_tir.PlanAndUpdateBufferAllocationLocation", "s_tir.ConvertBlocksToOpaque", "s_tir.LiftThreadBinding",
    "s_tir.CompactBufferAllocation", "s_tir.UnifyThreadBinding", "s_tir.LowerMatchBuffer",
    "s_tir.StmtSimplify", "s_tir.InjectSoftwarePipeline", "s_tir.LowerOpaqueBlock", "tirx.FlattenBuffer",
    "tirx.BF16ComputeLegalize", "tirx.NarrowDataType:32", "s_tir.LoopPartition", "tirx.VectorizeLoop",
    "s_tir.InjectVirtualThread", "s_tir.InjectDoubleBuffer", "tirx.StorageRewrite", "s_tir.HoistIfThenElse",
    "tirx.UnrollLoop", "s_tir.RenormalizeSplitPattern", "tirx.StmtSimplify", "tirx.RemoveNoOp",
    "s_tir.RewriteUnsafeSelect", "tirx.CommonSubexprElim",
)  # fmt: skip
OPTIONS = {
    "=tirx.UnrollLoop.auto_max_step": ("0", "8", "64"),
    "=tirx.UnrollLoop.auto_max_depth": ("1", "8"),
    "=tirx.UnrollLoop.explicit_unroll": ("0", "1"),
    "=tirx.UnrollLoop.unroll_local_access": ("1",),
    "=s_tir.LoopPartition.partition_const_loop": ("1",),
    "=s_tir.LoopPartition.no_unroll_loop_with_extent_one": ("1",),
    "=s_tir.LoopPartition.unroll_loop_with_partition_hint_no_interval": ("1",),
    "=tirx.StmtSimplify.transitively_prove_inequalities": ("1",),
    "=tirx.StmtSimplify.convert_boolean_to_and_of_ors": ("1",),
    "=tirx.StmtSimplify.apply_constraints_to_boolean_branches": ("1",),
    "=s_tir.InjectDoubleBuffer.split_loop": ("1", "2"),
    "=s_tir.HoistExpression.hoisted_conditionals": ("1", "7"),
    "=s_tir.HoistExpression.hoisted_let_bindings": ("1", "3"),
}
LONGEST = 14
Passes = tuple[str, ...]


def passes() -> tuple[str, ...]:
    """Return every pass that a sequence may hold."""
    return tuple(dict.fromkeys((*ANYWHERE, *FLAT, *PACKED)))


def draw_passes(rng: Rng) -> Passes:
    """Draw a new sequence: any passes in any order, or a part of the default lowering in its order with
    others between.
    """
    if rng.chance(RATES.any_order):
        items = [rng.choice(ANYWHERE) for _ in range(rng.between(1, 8))]
        if rng.chance(RATES.some_flat):
            items += rng.some(FLAT, rng.between(1, 3))
    else:
        items = list(LOWERING[: rng.between(1, len(LOWERING))])
        items = rng.some(items, rng.between(1, min(len(items), LONGEST - 2)))
        for _ in range(rng.below(4)):
            items.insert(rng.between(0, len(items)), rng.choice(ANYWHERE))
    return order_passes((*options(rng), *items))


def options(rng: Rng) -> Passes:
    """At times one or two options of passes."""
    if rng.chance(RATES.no_options):
        return ()
    return tuple(
        f"{name}:{rng.choice(OPTIONS[name])}" for name in rng.some(sorted(OPTIONS), rng.between(1, 3))
    )


def mutate_passes(rng: Rng, sequence: Passes, other: Passes = ()) -> Passes:
    """Mutate a sequence. Half of the time a new one is drawn (line 7 of Tzer's algorithm: "another random
    sequence"); otherwise an item is added, removed, moved, repeated or replaced, or the tail is exchanged for
    `other`'s.
    """
    items = list(sequence)
    if not items or rng.chance(RATES.new_sequence):
        return draw_passes(rng)
    way, at = rng.between(1, 7), rng.below(len(items))
    if way in (1, 2):
        items.insert(at, rng.choice(passes()))
    elif way == 3:
        del items[at]
    elif way == 4:
        items.insert(rng.below(len(items)), items.pop(at))
    elif way == 5:
        items[at] = rng.choice(passes())
    elif way == 6 and other:
        items[at:] = other[rng.below(len(other)) :]
    else:
        items += options(rng) or (items[at],)
    return order_passes(tuple(items[:LONGEST]))


def order_passes(sequence: Passes) -> Passes:
    """Put the items in an order that TVM allows: options first, passes of the packed stage last and each
    after the one it needs.

    The order between them is free: a pass that requires an earlier one reports that, which counts as a
    rejection.
    """
    chosen = tuple({item.rpartition(":")[0]: item for item in sequence if item.startswith("=")}.values())
    free = tuple(item for item in sequence if not item.startswith("=") and item not in PACKED)
    last = tuple(item for item in PACKED if item in sequence)
    if any(item in last for item in _AFTER_PACKING) and "tirx.MakePackedAPI" not in last:
        last = tuple(item for item in PACKED if item in last or item == "tirx.MakePackedAPI")
    if "tirx.MakePackedAPI" in last and "tirx.FlattenBuffer" not in free:
        free = (*free, "s_tir.LowerOpaqueBlock", "tirx.FlattenBuffer")
    return (*chosen, *free, *last)


def runnable(sequence: Passes) -> Passes:
    """Return the sequence without its packed stage: what that makes cannot be lowered once more, which is how
    functions are run.
    """
    return tuple(item for item in sequence if item not in PACKED)
