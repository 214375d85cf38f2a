"""The names that onnxruntime's `disabled_optimizers` takes: the union over releases 1.17 to 1.31.

A name that a release does not know is ignored by it, so one list serves all. Transformers were read from verbose logs
("GraphTransformer X modified"). Those logs do not show rewrite rules: their names are known ones that stand as strings in the
library of 1.31.1; that each acts was seen only for the rules that a case has blamed.
"""

# They only apply rules; disabling one disables all of its rules, so the rules are asked first.
HOSTS = ("Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer")
RULES = (
    "EliminateIdentity", "EliminateSlice", "EliminateDropout", "UnsqueezeElimination", "ExpandElimination",
    "CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion",
    "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion",
    "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion", "ClipQuantRewrite",
    "ReluQuantRewrite",
)  # fmt: skip
TRANSFORMERS = (
    "EnsureUniqueDQForNodeUnit", "DoubleQDQPairsRemover", "ConstantSharing", "CommonSubexpressionElimination",
    "ConstantFolding", "MatMulAddFusion", "ReshapeFusion", "FreeDimensionOverrideTransformer",
    "QDQPropagationTransformer", "RocmBlasAltImpl", "TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider",
    "QDQS8ToU8Transformer", "QDQSelectorActionTransformer", "GemmActivationFusion", "MatMulIntegerToFloatFusion",
    "DynamicQuantizeMatMulFusion", "ConvActivationFusion", "GeluFusion", "LayerNormFusion",
    "SimplifiedLayerNormFusion", "AttentionFusion", "EmbedLayerNormFusion", "GatherToSplitFusion",
    "GatherToSliceFusion", "MatmulTransposeFusion", "BiasGeluFusion", "SkipLayerNormFusion", "FastGeluFusion",
    "QuickGeluFusion", "BiasSoftmaxFusion", "BiasDropoutFusion", "MatMulScaleFusion", "MatMulActivationFusion",
    "QDQFinalCleanupTransformer", "NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion",
    "RemoveDuplicateCastTransformer", "ShapeInputMerge", "GatherSliceToSplitFusion", "MatMulNBitsFusion",
    "GeluFusionL1", "GeluFusionL2", "LayerNormFusionL1", "LayerNormFusionL2", "WeightBiasQuantization",
    "GroupQueryAttentionFusion", "FuseFp16InitializerToFp32NodeTransformer", "WhereDummyDq",
    "SliceConcatToSpaceToDepthFusion", "BiasSkipLayerNormFusion", "MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion",
    "GroupQueryAttentionPreNormFusion",
)  # fmt: skip
LEVELS = ("disable_all", "basic", "extended", "all")  # each does what the one before it does, and more
