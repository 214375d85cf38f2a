"""Which operators a diversity figure is about: corpora with allowed input counts, and families.

A corpus maps an operator to its least and largest number of inputs.
"""

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from onnx import defs

Corpus: TypeAlias = Mapping[str, tuple[int, int]]

MOST_INPUTS = 5  # Isra counts more inputs than these as these

# The corpus of Isra's evaluation (its `bc.json`): 65 operators of opset 13, by the numbers of inputs that
# they take there.
_ISRA: dict[tuple[int, int], str] = {
    (1, 1): (
        "Identity Abs Neg Reciprocal Floor Ceil Erf Sign Exp Softsign Softmax Sigmoid HardSigmoid Relu"
        " LeakyRelu Sin Cos Flatten MaxPool AveragePool LpPool SpaceToDepth ReduceMax ReduceMean ReduceMin"
        " ReduceProd ReduceSumSquare ReduceL1 ReduceL2 Round ReduceLogSumExp Sqrt Selu Transpose Elu Tanh"
        " ThresholdedRelu GlobalAveragePool GlobalMaxPool Softplus"
    ),
    (2, 2): "Add Sub Mul Div MatMul Expand PRelu Gather Reshape Tile Unsqueeze Compress",
    (5, 5): "BatchNormalization",
    (1, 2): "Split ReduceSum",
    (1, 4): "Resize",
    (1, 5): "Max Min Mean Concat Sum",
    (2, 3): "Conv Gemm",
    (2, 4): "Pad",
    (3, 5): "Slice",
}
ISRA_CORPUS: Corpus = {name: degrees for degrees, names in _ISRA.items() for name in names.split()}

FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(names.split())
    for family, names in {
        "arithmetic": "Add Sub Mul Div Mod Pow Max Min Mean Sum",
        "unary": (
            "Abs Neg Sign Ceil Floor Round Reciprocal Sqrt Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh"
            " Tanh Asinh Acosh Atanh Clip IsInf IsNaN Identity Det"
        ),
        "activation": (
            "Relu LeakyRelu PRelu Elu Selu Celu Gelu Mish Swish SwiGLU HardSigmoid HardSwish Sigmoid Softplus"
            " Softsign ThresholdedRelu Shrink Softmax LogSoftmax Hardmax"
        ),
        "logic": (
            "And Or Xor Not Equal Less LessOrEqual Greater GreaterOrEqual Where BitShift BitwiseAnd BitwiseOr"
            " BitwiseXor BitwiseNot"
        ),
        "reduction": (
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum"
            " ReduceLogSumExp ReduceSumSquare ArgMax ArgMin CumSum CumProd"
        ),
        "matrix": "MatMul Gemm Einsum",
        "convolution": "Conv ConvTranspose DeformConv Col2Im CausalConvWithState",
        "pooling": (
            "MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxUnpool MaxRoiPool"
            " RoiAlign"
        ),
        "normalisation": (
            "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization"
            " LRN LpNormalization MeanVarianceNormalization Dropout"
        ),
        "recurrent": "RNN LSTM GRU",
        "attention": "Attention LinearAttention RotaryEmbedding TensorScatter",
        "shape": (
            "Reshape Transpose Flatten Squeeze Unsqueeze Expand Tile Pad Slice Split Concat DepthToSpace"
            " SpaceToDepth Shape Size CenterCropPad ReverseSequence Trilu"
        ),
        "indexing": (
            "Gather GatherElements GatherND ScatterElements ScatterND Compress OneHot TopK Unique NonZero"
            " NonMaxSuppression"
        ),
        "image": "Resize GridSample AffineGrid ImageDecoder",
        "conversion": "Cast CastLike BitCast",
        "quantisation": (
            "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul ConvInteger"
            " MatMulInteger"
        ),
        "source": (
            "Constant ConstantOfShape EyeLike Range RandomNormal RandomNormalLike RandomUniform"
            " RandomUniformLike Bernoulli Multinomial"
        ),
        "control flow": "If Loop Scan SequenceMap",
        "sequence": (
            "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength"
            " SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement"
        ),
        "text": "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer",
        "signal": "DFT STFT BlackmanWindow HammingWindow HannWindow MelWeightMatrix",
        "loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    }.items()
}
_FAMILY = {name: family for family, names in FAMILIES.items() for name in names}


def family(operator: str) -> str:
    """The family of an operator, `other domains` outside ai.onnx, `other` for one of ai.onnx that is in no
    family.
    """
    return _FAMILY.get(operator, "other domains" if "::" in operator else "other")


@cache
def standard_corpus() -> Corpus:
    """Every operator of ai.onnx in its newest version, with the input counts of its schema, up to
    `MOST_INPUTS`.

    Deprecated operators and those of the training domain are not in it.
    """
    schemas = sorted(defs.get_all_schemas(), key=lambda schema: str(schema.name))
    return {
        schema.name: (min(schema.min_input, MOST_INPUTS), min(schema.max_input, MOST_INPUTS))
        for schema in schemas
        if schema.domain == "" and not schema.deprecated
    }
