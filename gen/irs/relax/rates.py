"""How often the generator of Relax modules makes each optional choice: rates between 0 and 1."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphRates:
    """Rates, each named by its choice."""

    # Types and shapes.
    of_result: float = 0.5  # a parameter of main has a type that the result has
    side_of_one: float = 0.12  # in one of two shapes that broadcast
    fewer_sides: float = 0.2  # of one of the two

    # Constructs.
    in_scope: float = 0.9  # a variable rather than a literal, where there is one
    cached: float = 0.2
    exported: float = 0.3  # an inner variable of a dataflow block
    named_sizes: float = 0.6  # of a tensor whose shape was forgotten
    named_size: float = 0.6  # each of them
    more_computed: float = 0.6
    copied: float = 0.5
    known_function: float = 0.5
    other_field: float = 0.3  # a function takes what is no tensor, too
    of_own_type: float = 0.6
    symbolic_side: float = 0.6
    carried: float = 0.5
    applied_twice: float = 0.5

    # Attributes and inputs of operators.
    flag: float = 0.5  # either value is as good
    negative_axis: float = 0.3
    negative_of_many: float = 0.2  # each of several axes
    left_out: float = 0.5  # where the default says the same
    uneven_pieces: float = 0.5
    one: float = 0.4  # a size that is broadcast
    fewer_dimensions: float = 0.3
    narrow_factors: float = 0.5  # a product of int8 summed up in int32
    second_vector: float = 0.5
    first_has: float = 0.7  # a letter of an einsum
    second_has: float = 0.3  # one that the first has
    ceil: float = 0.2
    pads_count: float = 0.3
    kept_ones: float = 0.5
    exclusive: float = 0.3
    negative_begin: float = 0.2
    whole_exponent: float = 0.5


RATES = GraphRates()
