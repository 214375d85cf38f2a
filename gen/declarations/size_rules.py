"""Sizes that stand elsewhere than in shapes: in the values of an input, or repeated by attributes. No
relation between sizes tells of them.
"""

import enum


class SizeRule(enum.Enum):
    """How sizes of an operator's outputs, or its attributes, follow from what no shape holds. Sources: the
    ONNX operator pages.
    """

    NONE = 0
    # those of the first input in their order, some multiplied together or taken apart: Reshape, Squeeze
    REGROUPED = 1
    GROWN = 2  # those of the first input or larger, aligned from the back: Expand
    RESCALED = 3  # each multiplied by a factor, or what an input says: Resize
    CUT = 4  # between bounds, which inputs of equal length give: Slice
    FILLED = 5  # those that an input lists, and nothing else: ConstantOfShape
    PARTED = 6  # along one axis the parts of the first input's: Split
    JOINED = 7  # along one axis the sum of all inputs': Concat
    INDEXED = 8  # as many as there are indices, which point into an axis of the first input: Gather
    FILTERED = 9  # attributes repeat sizes of the second input, a filter for each group of channels: Conv
    FILTERED_BACK = 10  # the same, where groups part the filter's first axis: ConvTranspose
