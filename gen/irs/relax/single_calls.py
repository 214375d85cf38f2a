"""Modules of one call each, of every operator: kernels to begin with are lowered from these."""

import random
from collections.abc import Iterator

from opsieve.gen.irs.relax import catalogue, declaration, known_faults, program, tree as R, writing


def iter_single_calls(seed: int) -> Iterator[program.RelaxProgram]:
    """Yield one module for each operator that TVM can build; equal seeds give equal modules."""
    draw = declaration.Draw(random.Random(seed))
    for name, declared in catalogue.operators().items():
        if name not in catalogue.UNBUILDABLE:
            yield program.RelaxProgram(writing.to_json(make_single_call(declared, draw)).encode(), (), name)


def make_single_call(declared: declaration.Declared, draw: declaration.Draw) -> R.Module:
    """Make a module whose main is one call of an operator, with a parameter for each operand."""
    # A kernel on scalars alone has nothing to mutate.
    kind, solution = min(
        (declared.sample(draw) for _ in range(4)),
        key=lambda made: (known_faults.fault_of(declared.name, made[0], made[1].attrs), made[0].rank == 0),
    )
    params: list[R.Var] = []

    def make_operand(given: declaration.Given) -> R.Expr:
        if isinstance(given, tuple):
            return R.Tuple(tuple(map(make_operand, given)))
        if not isinstance(given, declaration.Want):
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
