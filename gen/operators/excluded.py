"""Operators that the generator never uses, each with its reason. Their declarations serve models that users
bring.

Sources: the ONNX operator pages; those of ai.onnx.ml and ai.onnx.preview.training.
"""

from opsieve.gen.declarations import properties, tensor
from opsieve.gen.declarations.declaration import Operator, SizeRule
from opsieve.gen.operators.resize_sampling import resize_scales

# The reasons stand on the reference page of operators, so that they are phrased for users.
_NO_ORACLE = "no two compilers draw the same numbers, so no oracle has an answer"
_REPLACED = "withdrawn: another operator has its place since before the oldest opset that is generated"
_OTHER_DOMAIN = "its operator set is no part of what compilers for inference take"
_MADE = "onnxruntime makes it of others while it optimises"
_UNDRAWN = "programs are not made of it yet; it decides by values"
# Plausible values of the first two inputs: a learning rate, and the number of the step.
_STEP = {0: tensor.POSITIVE, 1: tensor.Domain(1, 3)}


def random(name: str, **more: object) -> Operator:
    """Declare an operator that draws random numbers."""
    return Operator(
        name,
        excluded=_NO_ORACLE,
        undefined=(properties.random_numbers,),
        random=True,
        **more,  # type: ignore[arg-type]
    )


OPERATORS = (
    random("Bernoulli", usual={0: tensor.Domain(0, 1)}, rounding=properties.Rounding.JUMPS),
    random("Multinomial", rounding=properties.Rounding.JUMPS),
    *map(random, ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")),
    Operator(
        "ImageDecoder", excluded="its input is a file format, and compilers differ in the pixels by design"
    ),
    Operator(
        "Constant",
        excluded="every leaf may be one (gen/graph/graph_builder.py)",
        rounding=properties.Rounding.EXACT,
    ),
    Operator(
        "SequenceEmpty", excluded="made where something is put into it at once (gen/operators/sequences.py)"
    ),
    Operator(
        "Scatter",
        excluded=_REPLACED,
        usual={1: tensor.axis_index(0)},
        undefined=(properties.repeated_elements,),
    ),
    Operator(
        "Upsample",
        excluded=_REPLACED,
        usual={1: resize_scales},
        size_rule=SizeRule.RESCALED,
        rounding=properties.Rounding.COMPUTES,
    ),
    Operator(
        "ArrayFeatureExtractor",
        domain="ai.onnx.ml",
        excluded=_OTHER_DOMAIN,
        usual={1: tensor.dim_index(0, -1)},
    ),
    *(
        Operator(
            name,
            domain="com.microsoft",
            excluded=_MADE,
            scales=scales,
            rounding=properties.Rounding.REQUANTISES,
        )
        for name, scales in (
            ("QGemm", (1, 4, 7)),
            ("QLinearAveragePool", (1, 3)),
            ("QLinearWhere", (2, 5, 7)),
        )
    ),
    *(
        Operator(name, domain="com.microsoft", excluded=_UNDRAWN, rounding=properties.Rounding.COMPUTES)
        for name in ("MoE", "QMoE", "DynamicTimeWarping", "CropAndResize", "DynamicQuantizeLSTM")
    ),
    *(
        Operator(name, domain="ai.onnx.preview.training", excluded=_OTHER_DOMAIN, usual=_STEP)
        for name in ("Adagrad", "Adam", "Momentum")
    ),
)
