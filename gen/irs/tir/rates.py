"""How often the generator and the mutations of TIR make each optional choice: rates between 0 and 1."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TirRates:
    """Rates, each named by its choice."""

    # Expressions.
    leaf: float = 0.15
    negative: float = 0.2
    divisor_kept_positive: float = 0.2  # by a Max, rather than a constant
    constant_shift: float = 0.7
    index_moved: float = 0.3
    index_backwards: float = 0.15
    index_wrapped: float = 0.85  # by a remainder, rather than cut off at both ends
    index_divided: float = 0.4
    index_of_two: float = 0.6  # variables

    # Statements and loops.
    updated: float = 0.25  # what is stored is joined with what was there
    has_else: float = 0.5
    written_again: float = 0.5  # an allocated buffer
    ends_by_more: float = 0.3  # a loop's condition has a second part
    upper_end: float = 0.5  # a condition on a loop's variable asks about its last value
    extent_varies: float = 0.2
    bare_loop: float = 0.75  # nothing is said of it
    pipelined: float = 0.06
    pipelined_anew: float = 0.3  # where a loop's kind is changed
    stages_in_order: float = 0.6
    said_likely: float = 0.7  # of the check that a split loop needs

    # Mutations.
    replaced_whole: float = 0.2  # a statement, rather than one put beside it
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
