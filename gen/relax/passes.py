"""The passes of Relax that a program may be put through before it is compiled, where each is legal, and sequences of them.

Read from TVM 0.27 (`tvm.relax.transform`) by running each on modules at five stages. A pass that changes what main takes or
yields, needs data of its own (a codegen, a tuning record, a mesh) or belongs to the end of lowering is not in the table; `LEFT_OUT`
says why.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Argument = bool | int | float | str


@dataclass(frozen=True, slots=True)
class PassRule:
    """One pass: its name in `tvm.relax.transform`, arguments to choose from, the passes that must have run before it (any place
    before, in this order of need), and whether it may change results by more than rounding (`loose`)."""

    name: str
    arguments: tuple[tuple[tuple[str, Argument], ...], ...] = ((),)
    after: tuple[str, ...] = ()
    loose: bool = False


@dataclass(frozen=True, slots=True)
class PassStep:
    """An application of a pass, with its arguments."""

    name: str
    arguments: tuple[tuple[str, Argument], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments)})"


Steps = tuple[PassStep, ...]

_LEGAL = ("LegalizeOps",)

RULES: tuple[PassRule, ...] = (
    PassRule("AdjustMatmulOrder", loose=True),
    PassRule("AttachGlobalSymbol"),
    PassRule("CanonicalizeBindings"),
    PassRule("CombineParallelMatmul"),
    PassRule("ComputePrimValue"),
    PassRule("ConvertToDataflow", ((), (("min_size", 1),), (("min_size", 4),))),
    PassRule("DataflowUseInplaceCalls", after=_LEGAL),
    PassRule("DeadCodeElimination"),
    PassRule("DecomposeOpsForInference"),
    PassRule("EliminateCommonSubexpr", ((), (("call_only", True),))),
    PassRule("ExpandMatmulOfSum", loose=True),
    PassRule("ExpandTupleArguments"),
    PassRule("FastMathTransform", loose=True),
    PassRule("FoldBatchnormToConv2D", loose=True),
    PassRule("FoldConstant"),
    PassRule(
        "FuseOps", ((), (("fuse_opt_level", 1),), (("fuse_opt_level", 0),)), ("LegalizeOps", "AnnotateTIROpPattern")
    ),
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
    PassRule("ReorderTakeAfterMatmul", loose=True),
    PassRule("RewriteDataflowReshape", after=_LEGAL),
    PassRule("SpecializePrimFuncBasedOnCallSite", after=_LEGAL),
    PassRule("SplitLayoutRewritePreproc", after=_LEGAL),
    PassRule("ToMixedPrecision", loose=True),
    PassRule("ToNonDataflow"),
    PassRule(
        "TopologicalSort",
        ((), (("order", "breadth-first"),), (("direction", "from-outputs"),)),
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


def rule(name: str) -> PassRule | None:
    """The rule of a pass, None for one that is not in the table."""
    return _BY_NAME.get(name)


def loose(steps: Sequence[PassStep]) -> bool:
    """Whether a sequence may change results by more than rounding."""
    return any(found.loose for step in steps if (found := rule(step.name)))


def is_legal(steps: Sequence[PassStep]) -> bool:
    """Whether every pass stands behind those that it needs."""
    seen: set[str] = set()
    for step in steps:
        found = rule(step.name)
        if found is None or not set(found.after) <= seen:
            return False
        seen.add(step.name)
    return True


def legalised(steps: Sequence[PassStep]) -> Steps:
    """The sequence with what its passes need put before them."""
    done: list[PassStep] = []
    seen: set[str] = set()

    def add(step: PassStep) -> None:
        for name in _BY_NAME[step.name].after:
            if name not in seen:
                add(PassStep(name))
        done.append(step)
        seen.add(step.name)

    for step in steps:
        add(step)
    return tuple(done)


def draw_step(rng: random.Random) -> PassStep:
    """One pass with arguments."""
    found = rng.choice(RULES)
    return PassStep(found.name, rng.choice(found.arguments))


def draw(rng: random.Random, length: int) -> Steps:
    """A legal sequence of about so many passes."""
    return legalised([draw_step(rng) for _ in range(length)])


def extended(steps: Sequence[PassStep], rng: random.Random) -> Steps:
    """The sequence with one more pass at a random place."""
    place = rng.randint(0, len(steps))
    return legalised([*steps[:place], draw_step(rng), *steps[place:]])


def crossed(first: Sequence[PassStep], second: Sequence[PassStep], rng: random.Random) -> Steps:
    """The beginning of one sequence and the end of another."""
    return legalised([*first[: rng.randint(0, len(first))], *second[rng.randint(0, len(second)) :]])
