"""Changes to a module that is there: a subtree replaced by a generated one of the same type, or by one of a
wrong type.

The RFC names both ("A program mutator", "programs that are known to be incorrect"). It works on generated
modules and on modules read from TVM's JSON alike.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from opsieve.gen.irs.relax import catalogue, declaration, edits, policies, tree as R, types as T, walk
from opsieve.gen.irs.relax.body import Body
from opsieve.gen.irs.relax.generator import Generator
from opsieve.gen.irs.relax.known_faults import lending, list_settled, with_own_sides
from opsieve.gen.irs.relax.types import symbols
from opsieve.gen.irs.view import FreshNames
from opsieve.gen.model.program import FAULT


@dataclass(frozen=True, slots=True)
class Place:
    """A binding that may be replaced: its function, its variable, the variables in scope before it, and its
    enclosing bindings.
    """

    function: str
    var: R.Var
    scope: tuple[R.Var, ...]
    symbols: frozenset[str]
    dataflow: bool
    depth: int


def places(module: R.Module) -> Iterator[Place]:
    """Yield the bindings of tensors that an operation computes, in order.

    Recursive functions are left out: a generated value could replace the condition that ends the recursion.
    """
    table = dict(module.functions)
    for name, function in walk.functions(module):
        if not walk.is_recursive(table, name):
            yield from _in_function(name, function, (), frozenset(), 0)


def _in_function(
    name: str, function: R.Function, scope: tuple[R.Var, ...], known: frozenset[str], depth: int
) -> Iterator[Place]:
    bound = {
        size.name
        for p in function.params
        if isinstance(p.type, T.RelaxTensorType)
        for size in p.type.shape or ()
        if isinstance(size, T.Sym)
    }
    yield from _in_seq(name, function.body, (*scope, *function.params), known | bound, depth)


def _in_seq(
    name: str, seq: R.Seq, scope: tuple[R.Var, ...], known: frozenset[str], depth: int
) -> Iterator[Place]:
    for block in seq.blocks:
        inner = scope
        for binding in block.bindings:
            value = binding.value
            if (
                isinstance(binding, R.Bind)
                and isinstance(binding.var.type, T.RelaxTensorType)
                and isinstance(value, R.Call)
            ):
                yield Place(name, binding.var, inner, known, block.dataflow, depth)
            if isinstance(value, R.If):
                for side in (value.then, value.other):
                    yield from _in_seq(name, side, inner, known, depth + 1)
            # A local function that reads its own name is recursive.
            elif isinstance(value, R.Function) and binding.var.name not in walk.reads(value):
                yield from _in_function(name, value, inner, known, depth + 1)
            inner = (*inner, binding.var)
            if isinstance(binding, R.MatchCast):
                known = known | frozenset(symbols(binding.type))
        # Variables of a dataflow block end with it; exported ones stay.
        scope = tuple(var for var in inner if not var.dataflow)


def mutate_module(
    module: R.Module,
    rng: random.Random,
    policy: policies.GenerationPolicy,
    sizes: Mapping[str, int] | None = None,
    solutions: catalogue.Solutions | None = None,
) -> R.Module | None:
    """Replace one operation by a generated expression of the same type; returns `None` if the module has no
    such operation.

    `sizes` are the values of symbols in the current run; bindings that depend on symbols without a value
    stay.
    """
    sizes = sizes or {}
    possible = [place for place in places(module) if _is_known(place.var.type, place, sizes)]
    if not possible:
        return None
    place = rng.choice(possible)
    kept = {name: sizes[name] for name in place.symbols if name in sizes}
    scope = [var for var in place.scope if _is_known(var.type, place, sizes)]
    # What calls the function is not called in it, so that no recursion comes to be.
    table = dict(module.functions)
    above = {place.function, *walk.find_callers(table, place.function)}
    below = {name: function for name, function in table.items() if name not in above}
    generator = Generator(rng, policy, solutions, FreshNames(walk.all_names(module)), below)
    function = table[place.function]
    assert isinstance(function, R.Function)
    body = Body(generator.names, scope, kept, place.dataflow, place.depth, list_settled(function.body))
    made = generator.expr(place.var.type, body, rng.randint(1, policy.fuel))
    table |= generator.functions
    table[place.function] = replace(function, body=_splice(function.body, place, body.blocks(), made))
    changed = R.Module(tuple(sorted(table.items(), key=lambda item: item[0] == "main")), module.attrs)
    # A module that had the pattern before may keep it: it comes from a corpus.
    return (
        changed
        if policy.known_faults or any(map(lending, dict(walk.functions(module)).values()))
        else with_own_sides(changed)
    )


def _is_known(kind: T.Type, place: Place, sizes: Mapping[str, int]) -> bool:
    return all(name in sizes and name in place.symbols for name in symbols(kind))


def _splice(seq: R.Seq, place: Place, blocks: tuple[R.BindingBlock, ...], made: R.Expr) -> R.Seq:
    done: list[R.BindingBlock] = []
    for block in seq.blocks:
        bindings: list[R.Binding] = []
        for binding in block.bindings:
            if binding.var.name == place.var.name:
                # The block is cut in two here, since generated blocks may be of the other kind.
                if bindings:
                    done.append(R.BindingBlock(tuple(bindings), block.dataflow))
                    bindings = []
                done += blocks
                bindings.append(R.Bind(binding.var, made))
                continue
            value = binding.value
            if isinstance(value, R.If):
                value = replace(
                    value,
                    then=_splice(value.then, place, blocks, made),
                    other=_splice(value.other, place, blocks, made),
                )
            elif isinstance(value, R.Function):
                value = replace(value, body=_splice(value.body, place, blocks, made))
            bindings.append(replace(binding, value=value))
        if bindings:
            done.append(R.BindingBlock(tuple(bindings), block.dataflow))
    return R.Seq(_join_blocks(done), seq.body)


def _join_blocks(blocks: list[R.BindingBlock]) -> tuple[R.BindingBlock, ...]:
    """Merge neighbouring blocks of one kind: a dataflow block that was cut in two reads its own variables."""
    done: list[R.BindingBlock] = []
    for block in blocks:
        if done and done[-1].dataflow == block.dataflow:
            done[-1] = R.BindingBlock(done[-1].bindings + block.bindings, block.dataflow)
        else:
            done.append(block)
    return tuple(done)


def incorrect(module: R.Module, rng: random.Random) -> tuple[R.Module, str] | None:
    """Break one call of the module: an argument has another element type or size, or is missing.

    Returns the module, which records the defect in an attribute, and the defect; `None` if no call qualifies.
    Operands of these operators must agree, and a function accepts only its signature, so the result is always
    invalid.
    """
    sites = [
        (name, binding)
        for name, binding in edits.bindings_of(module)
        if isinstance(binding, R.Bind) and isinstance(binding.value, R.Call) and _breakable(binding.value)
    ]
    if not sites:
        return None
    name, binding = rng.choice(sites)
    call = binding.value
    assert isinstance(call, R.Call)
    place = len(call.args) - 1
    old = call.args[-1].type
    wrong = "float64" if isinstance(old, T.RelaxTensorType) and old.dtype != "float64" else "float32"
    found: list[tuple[str, tuple[R.Expr, ...]]] = [
        ("argument", (declaration.number(wrong, 1),)),
        ("missing argument", ()),
    ]
    # A vector of one more broadcasts not with the first operand, nor fits a product with it or a signature.
    beside = call.args[0].type if isinstance(call.op, R.RelaxOperator) else old
    size = beside.shape[-1] if isinstance(beside, T.RelaxTensorType) and beside.shape else None
    if isinstance(old, T.RelaxTensorType) and old.dtype and isinstance(size, int) and size > 1:
        found.append(("size of argument", (declaration.numbers(old.dtype, (size + 1,), [1] * (size + 1)),)))
    kind, args = rng.choice(found)
    broken = R.Bind(binding.var, replace(call, args=(*call.args[:place], *args)))
    what = call.op.name if isinstance(call.op, R.RelaxOperator | R.GlobalVar) else "call"
    said = f"{what} {kind} {place} in {name}"
    changed = edits.replace_binding(module, binding.var.name, broken)
    return replace(changed, attrs=(*module.attrs, (FAULT, said))), said


_AGREEING = frozenset(
    f"relax.{name}"
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "matmul")
)


def _breakable(call: R.Call) -> bool:
    if isinstance(call.op, R.RelaxOperator):
        return call.op.name in _AGREEING and isinstance(call.args[0].type, T.RelaxTensorType)
    return (
        isinstance(call.op, R.GlobalVar)
        and bool(call.args)
        and isinstance(call.args[-1].type, T.RelaxTensorType)
    )
