"""What the house asks of a program, of a module of Relax: its inputs, outputs, operators."""

from opsieve.gen.irs.relax.tree import Call, Module, RelaxOperator
from opsieve.gen.irs.relax.types import RelaxTensorType, TupleType, Type
from opsieve.gen.irs.relax.walk import expressions, functions


def inputs(module: Module) -> dict[str, RelaxTensorType]:
    """What main takes, by name, in order; sizes may be symbols.

    Raises:
        ValueError: there is no main, or it takes something that is no tensor.
    """
    found: dict[str, RelaxTensorType] = {}
    for param in module.main.params:
        if not isinstance(param.type, RelaxTensorType):
            raise ValueError(f"main takes {param.name}, which is no tensor")
        found[param.name] = param.type
    return found


def outputs(module: Module) -> dict[str, Type]:
    """The tensors that main yields: `output_0`, `output_1`, ... in the order in which they stand in nested
    tuples.
    """
    return {f"output_{place}": kind for place, kind in enumerate(_flat(module.main.result))}


def _flat(kind: Type) -> list[Type]:
    if isinstance(kind, TupleType):
        return [part for field in kind.fields for part in _flat(field)]
    return [kind]


def operators(module: Module) -> list[str]:
    """The operator of every call, function by function, branches and local functions included."""
    return [
        expr.op.name
        for _, function in functions(module)
        for expr in expressions(function.body)
        if isinstance(expr, Call) and isinstance(expr.op, RelaxOperator)
    ]
