"""Every operator of other domains that the reference evaluates, by family."""

from opsieve.backends.reference.contrib import (
    activations,
    attention,
    block_quantised,
    evaluation,
    layouts,
    normalisations,
    quantised,
    recurrent,
    tokens,
)

DOMAIN = "com.microsoft"
# What onnxruntime has a kernel for on the CPU and the reference does not compute, with the reason.
NOT_COMPUTED = {
    "BeamSearch": "its result hangs on a decoder graph by conventions that no page has",
    "GreedySearch": "its result hangs on a decoder graph by conventions that no page has",
    "WhisperBeamSearch": "its result hangs on a decoder graph by conventions that no page has",
    "Sampling": "it draws random numbers",
    "MatMulFpQ4": "its weights are packed as the processor at hand likes them",
    "SparseToDenseMatMul": "its operand is sparse, which no test case carries",
    "MaxpoolWithMask": (
        'its page says "for internal use", and its kernel stops at the first element that is masked'
    ),
}
_FAMILIES = (activations, attention, block_quantised, layouts, normalisations, quantised, recurrent, tokens)
OPERATORS = (
    *(each for family in _FAMILIES for each in evaluation.classes(DOMAIN, family.FUNCTIONS)),
    *evaluation.classes("", normalisations.STANDARD_DOMAIN),
)
