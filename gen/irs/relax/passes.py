"""The passes of Relax that a program may be put through before it is compiled, where each is legal, and
sequences of them.

Read from TVM 0.27 (`tvm.relax.transform`) by running each on modules at five stages. A pass that changes what
main takes or yields, needs data of its own (a codegen, a tuning record, a mesh) or belongs to the end of
lowering is not in the table; `LEFT_OUT` says why.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassRule:
    """One pass: its name in `tvm.relax.transform`, arguments to choose from ("" for none), the passes that
    must have run at any place before it, in this order of need, and the element type in which it makes floats
    be computed ("" for their own).
    """

    name: str
    arguments: tuple[str, ...] = ("",)
    after: tuple[str, ...] = ()
    computes: str = ""


# `NAME` or `NAME:ARGUMENT`, as programs hold them
Steps = tuple[str, ...]

# For passes that work on kernels, which LegalizeOps makes of operators.
_LEGAL = ("LegalizeOps",)

RULES: tuple[PassRule, ...] = (
    PassRule("AdjustMatmulOrder"),
    PassRule("AttachGlobalSymbol"),
    PassRule("CanonicalizeBindings"),
    PassRule("CombineParallelMatmul"),
    PassRule("ComputePrimValue"),
    PassRule("ConvertToDataflow", ("", "1", "4")),
    PassRule("DataflowUseInplaceCalls", after=_LEGAL),
    PassRule("DeadCodeElimination"),
    PassRule("DecomposeOpsForInference"),
    PassRule("EliminateCommonSubexpr", ("", "True")),
    PassRule("ExpandMatmulOfSum"),
    PassRule("ExpandTupleArguments"),
    PassRule("FastMathTransform"),
    PassRule("FoldBatchnormToConv2D"),
    PassRule("FoldConstant"),
    PassRule("FuseOps", ("", "1", "0"), ("LegalizeOps", "AnnotateTIROpPattern")),
    PassRule("FuseTIR", after=("LegalizeOps", "AnnotateTIROpPattern", "FuseOps")),
    PassRule("FuseTransposeMatmul"),
    PassRule("AnnotateTIROpPattern", after=_LEGAL),
    PassRule("AttachAttrLayoutFreeBuffers", after=_LEGAL),
    PassRule("InlinePrivateFunctions"),
    PassRule("LambdaLift"),
    PassRule("LegalizeOps"),
    PassRule("MergeCompositeFunctions"),
    PassRule("Normalize"),
    PassRule("NormalizeGlobalVar"),
    PassRule("OptimizeLayoutTransform"),
    PassRule("RealizeVDevice"),
    PassRule("RemoveRedundantReshape"),
    PassRule("RemoveUnusedOutputs"),
    PassRule("RemoveUnusedParameters"),
    PassRule("ReorderPermuteDimsAfterConcat"),
    PassRule("ReorderTakeAfterMatmul"),
    PassRule("RewriteDataflowReshape", after=_LEGAL),
    PassRule("SpecializePrimFuncBasedOnCallSite", after=_LEGAL),
    PassRule("SplitLayoutRewritePreproc", after=_LEGAL),
    PassRule("ToMixedPrecision", computes="float16"),
    PassRule("ToNonDataflow"),
    PassRule(
        "TopologicalSort",
        ("", "breadth-first"),
    ),
)

LEFT_OUT: Mapping[str, str] = {
    "AllocateWorkspace": "belongs to external code generators",
    "AlterOpImpl": "needs kernels to put in place of others",
    "AttachExternModules": "needs compiled modules",
    "BindParams": "changes what main takes",
    "BindSymbolicVars": "changes what main takes",
    "BundleModelParams": "changes what main takes",
    "CallTIRRewrite": "lowering: the pipeline runs it",
    "ConvertLayout": "needs the layouts to convert to, by operator",
    "DecomposeOpsForTraining": "changes what normalisation in training means to what follows",
    "FuseOpsByPattern": "needs patterns",
    "Gradient": "changes what main yields",
    "IPCAllReduceRewrite": "needs several devices",
    "KillAfterLastUse": "lowering: the pipeline runs it",
    "LazyGetInput": "changes what main takes",
    "LazySetOutput": "changes what main yields",
    "LazyTransformParams": "changes what main takes",
    "LiftTransformParams": "changes what main takes",
    "LowerAllocTensor": "lowering: the pipeline runs it",
    "LowerGPUIPCAllocStorage": "needs a GPU",
    "LowerRuntimeBuiltin": "lowering: the pipeline runs it",
    "MetaScheduleApplyDatabase": "needs tuning records",
    "MetaScheduleTuneIRMod": "tunes",
    "MetaScheduleTuneTIR": "tunes",
    "RemovePurityChecking": "switches a check off",
    "RewriteCUDAGraph": "needs a GPU",
    "RunCodegen": "needs external code generators",
    "SplitCallTIRByPattern": "needs patterns",
    "StaticPlanBlockMemory": "lowering: the pipeline runs it",
    "UpdateParamType": "changes what main takes",
    "UpdateVDevice": "needs several devices",
    "VMBuiltinLower": "lowering: the pipeline runs it",
    "VMShapeLower": "lowering: the pipeline runs it",
}

_BY_NAME: Mapping[str, PassRule] = {rule.name: rule for rule in RULES}


def rule(step: str) -> PassRule | None:
    """Return the rule of a step's pass; `None` if the table lacks it."""
    return _BY_NAME.get(step.partition(":")[0])


def computing_dtype(steps: Sequence[str]) -> str:
    """Return the element type in which a sequence makes floats be computed, "" for their own."""
    return next((found.computes for step in steps if (found := rule(step)) and found.computes), "")


def legalise_steps(steps: Sequence[str]) -> Steps:
    """Return the sequence with each pass preceded by the passes it requires."""
    done: list[str] = []
    seen: set[str] = set()

    def add(step: str) -> None:
        found = rule(step)
        assert found is not None, step
        for name in found.after:
            # A required pass may have run anywhere before, so it is not repeated.
            if name not in seen:
                add(name)
        done.append(step)
        seen.add(found.name)

    for step in steps:
        add(step)
    return tuple(done)


def draw_step(rng: random.Random) -> str:
    """Draw a pass, sometimes with an argument."""
    found = rng.choice(RULES)
    argument = rng.choice(found.arguments)
    return f"{found.name}:{argument}" if argument else found.name


def draw(rng: random.Random, length: int) -> Steps:
    """Return a legal sequence of about so many passes."""
    return legalise_steps([draw_step(rng) for _ in range(length)])


def extend_steps(steps: Sequence[str], rng: random.Random) -> Steps:
    """Return the sequence with one more pass at a random place."""
    place = rng.randint(0, len(steps))
    return legalise_steps([*steps[:place], draw_step(rng), *steps[place:]])


def cross_steps(first: Sequence[str], second: Sequence[str], rng: random.Random) -> Steps:
    """Join the beginning of one sequence and the end of another."""
    # The second half may have relied on passes of the half that is cut off.
    return legalise_steps([*first[: rng.randint(0, len(first))], *second[rng.randint(0, len(second)) :]])
