"""How often the generator and the mutations of TIR make each optional choice: rates between 0 and 1."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TirRates:
    """Rates, each named by its choice."""

    # Expressions.
    leaf: float = 0.15
    negative: float = 0.2
    # A divisor is kept positive by a Max instead of being a constant.
    divisor_kept_positive: float = 0.2
    constant_shift: float = 0.7
    index_moved: float = 0.3
    index_backwards: float = 0.15
    # An index is wrapped by a remainder instead of being clamped at both ends.
    index_wrapped: float = 0.85
    index_divided: float = 0.4
    # An index is made of two variables.
    index_of_two: float = 0.6

    # Statements and loops.
    # The stored value is combined with the old one.
    updated: float = 0.25
    has_else: float = 0.5
    # An allocated buffer is written a second time.
    written_again: float = 0.5
    # A loop's condition has a second part
    ends_by_more: float = 0.3
    # A condition on a loop's variable asks about its last value
    upper_end: float = 0.5
    extent_varies: float = 0.2
    # It has no annotation.
    bare_loop: float = 0.75
    pipelined: float = 0.06
    # A loop gets a software pipeline where its annotations are changed.
    pipelined_anew: float = 0.3
    stages_in_order: float = 0.6
    # The check that a split loop needs is marked as likely.
    said_likely: float = 0.7

    # Mutations.
    # The statement is replaced rather than given a neighbour.
    replaced_whole: float = 0.2
    put_before: float = 0.5
    leaf_by_leaf: float = 0.5
    swapped: float = 0.5
    statement_wanted: float = 0.5
    loop_of_other_kind: float = 0.6
    loop_changed: float = 0.5
    reindexed: float = 0.7
    usual_tag: float = 0.9
    more_in_thread: float = 0.3
    filled_first: float = 0.4
    behind_branch: float = 0.5
    bare_double_buffer: float = 0.5

    # Passes.
    any_order: float = 0.5
    some_flat: float = 0.3
    no_options: float = 0.6
    new_sequence: float = 0.5


RATES = TirRates()
