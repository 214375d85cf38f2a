"""Modules of one call each, of every operator: kernels to begin with are lowered from these."""

import random
from collections.abc import Iterator

from opsieve.gen.irs.relax import tree as R
from opsieve.gen.irs.relax.catalogue import UNBUILDABLE, operators
from opsieve.gen.irs.relax.declaration import Declared, Draw, Given, Want
from opsieve.gen.irs.relax.known_faults import fault_of
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.writing import to_json


def iter_single_calls(seed: int) -> Iterator[RelaxProgram]:
    """Yield one module for each operator that TVM can build; equal seeds give equal modules."""
    draw = Draw(random.Random(seed))
    for name, declared in operators().items():
        if name not in UNBUILDABLE:
            yield RelaxProgram(to_json(make_single_call(declared, draw)).encode(), (), name)


def make_single_call(declared: Declared, draw: Draw) -> R.Module:
    """Make a module whose main is one call of an operator, with a parameter for each operand."""
    # A kernel on scalars alone has nothing to mutate.
    kind, solution = min(
        (declared.sample(draw) for _ in range(4)),
        key=lambda made: (fault_of(declared.name, made[0], made[1].attrs), made[0].rank == 0),
    )
    params: list[R.Var] = []

    def make_operand(given: Given) -> R.Expr:
        if isinstance(given, tuple):
            return R.Tuple(tuple(map(make_operand, given)))
        if not isinstance(given, Want):
            return given
        params.append(R.Var(f"x{len(params)}", given.type))
        return params[-1]

    whole = solution.whole or kind
    call = R.Call(
        R.RelaxOperator(declared.name), tuple(map(make_operand, solution.args)), whole, solution.attrs
    )
    result = R.Var("y", whole)
    body = R.Seq((R.BindingBlock((R.Bind(result, call),)),), result)
    main = R.Function(tuple(params), body, whole, True, (("global_symbol", "main"),))
    return R.Module((("main", main),))
