"""How often samplers take what an operator leaves open: rates between 0 and 1, beside `Style`
(gen/declarations/builder.py), which holds them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplerRates:
    """Named by what happens at that rate. The same name in two operators is the same decision."""

    # Attributes and inputs that may be left out; `default`: an attribute is written though it has its
    # default.
    attribute: float = 0.5
    unlikely_attribute: float = 0.4
    rare_attribute: float = 0.3
    default: float = 0.5
    likely_input: float = 0.6
    optional_input: float = 0.5
    rare_input: float = 0.3

    # Axes and positions, counted from the back or left to the default.
    negative_axis: float = 0.3
    negative_cache_axis: float = 0.5
    negative_start: float = 0.25
    negative_end: float = 0.25
    end_beyond: float = 0.25  # a slice ends beyond the last element, or is counted from the back
    all_axes: float = 0.12
    all_axes_named: float = 0.2
    padded_axes: float = 0.3  # only some are named
    negative_pad: float = 0.2
    axis_left_out: float = 0.3

    # Shapes and orders.
    to_scalar: float = 0.2
    inferred_size: float = 0.4  # -1 in a shape
    copied_size: float = 0.2  # 0 in a shape
    copied_open_size: float = 0.3
    new_axis: float = 0.4
    all_ones: float = 0.2  # every axis of size 1 is squeezed, none named
    default_order: float = 0.15

    # Windows: convolutions and pools.
    strided: float = 0.6
    dilated: float = 0.3
    dilated_transposed: float = 0.2
    auto_pad: float = 0.2
    padded: float = 0.5
    open_padded: float = 0.6  # where sizes are open
    uneven_pads: float = 0.4
    grouped: float = 0.4
    depthwise: float = 0.5

    # Products and normalisations.
    batched_product: float = 0.6
    stretched_batch: float = 0.2
    vector_product: float = 0.1
    no_statistics: float = 0.8

    # Quantised operators.
    whole_tensor: float = 0.5
    blocked: float = 0.3

    # Bodies and sequences.
    branch_grown: float = 0.7  # else a branch only hands something on
    handed_on: float = 0.5
    planted_body: float = 0.7  # where a strategy plants something into bodies
    loop_condition: float = 0.4
    no_turn: float = 0.2  # of loops that collect nothing
    early_end: float = 0.3
    second_scan: float = 0.3
    other_scan_axis: float = 0.5
    into_empty: float = 0.3
    no_position: float = 0.4
