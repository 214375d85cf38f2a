"""How often the generator of Relax modules makes each optional choice: rates between 0 and 1."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphRates:
    """Rates, each named by its choice."""

    # Types and shapes.
    # A parameter of main has a type that the result has
    of_result: float = 0.5
    # In one of two shapes that broadcast
    side_of_one: float = 0.12
    # Of one of the two
    fewer_sides: float = 0.2

    # Constructs.
    # A variable rather than a literal, where there is one
    in_scope: float = 0.9
    cached: float = 0.2
    # An inner variable of a dataflow block
    exported: float = 0.3
    # For a tensor whose shape was dropped.
    named_sizes: float = 0.6
    # Each of them
    named_size: float = 0.6
    more_computed: float = 0.6
    copied: float = 0.5
    known_function: float = 0.5
    # A parameter of a function that is not a tensor.
    other_field: float = 0.3
    of_own_type: float = 0.6
    symbolic_side: float = 0.6
    carried: float = 0.5
    applied_twice: float = 0.5

    # Attributes and inputs of operators.
    # Either value is as good
    flag: float = 0.5
    negative_axis: float = 0.3
    # Each of several axes
    negative_of_many: float = 0.2
    # Omitted where the default is equal.
    left_out: float = 0.5
    uneven_pieces: float = 0.5
    # A size that is broadcast
    one: float = 0.4
    fewer_dimensions: float = 0.3
    # A product of int8 summed up in int32
    narrow_factors: float = 0.5
    second_vector: float = 0.5
    # A letter of an einsum
    first_has: float = 0.7
    # One that the first has
    second_has: float = 0.3
    ceil: float = 0.2
    pads_count: float = 0.3
    kept_ones: float = 0.5
    exclusive: float = 0.3
    negative_begin: float = 0.2
    whole_exponent: float = 0.5


RATES = GraphRates()
