"""HirFuzz's three rewrites of functions (section 3.3.2, figure 4): other chains of calls, the same results.

1. `closure`   a function becomes the local closure of a new one, which calls it and is called in its place
2. `wrapped`   a function is wrapped by one without parameters that yields it; calls go through what that
   yields
3. `returned`  a new function returns the call of the function; calls go to the new one

`REWRITERS` applies them to programs, as metamorphic relations use them.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from opsieve.gen.irs import ir, view
from opsieve.gen.irs.relax import reading, tree as R, types as T, writing
from opsieve.gen.irs.relax.body import Body
from opsieve.gen.irs.relax.program import RelaxProgram
from opsieve.gen.irs.relax.walk import all_names, functions
from opsieve.gen.irs.tvm.nodes import MalformedGraph, ObjectNode
from opsieve.gen.model.tensors import Value

Rewrite = Callable[[R.Module, str], R.Module]


def closure(module: R.Module, name: str) -> R.Module:
    """Turn the function into a local closure of a new function of its name."""
    function, names = _function(module, name), view.FreshNames(all_names(module))
    # Among the attributes is the global symbol, which a local function must not have.
    inner = replace(function, attrs=())
    return _with(module, {name: _caller(function, names, lambda body: body.bind(inner, inner.type, "f"))})


def wrap_function(module: R.Module, name: str) -> R.Module:
    """Return the function from a new one without parameters, and call it through that."""
    function, names = _function(module, name), view.FreshNames(all_names(module))
    inner_name, maker_name = names.fresh(f"{name}_inner"), names.fresh(f"{name}_wrapped")
    inner = replace(function, attrs=())
    # The maker yields a local function that calls the original one.
    local = _caller(inner, names, lambda body: R.GlobalVar(inner_name, inner.type))
    body = Body(names)
    maker = R.Function((), body.seq(body.bind(local, local.type, "f")), local.type)
    # In the place of the original: get the function, call it.
    get = R.Call(R.GlobalVar(maker_name, maker.type), (), local.type)
    outer = _caller(function, names, lambda body: body.bind(get, local.type))
    return _with(module, {inner_name: inner, maker_name: maker, name: outer})


def return_call(module: R.Module, name: str) -> R.Module:
    """Move the function's body to a new function whose call it returns."""
    function, names = _function(module, name), view.FreshNames(all_names(module))
    inner = names.fresh(f"{name}_inner")
    moved = replace(function, attrs=())
    outer = _caller(function, names, lambda body: R.GlobalVar(inner, moved.type))
    return _with(module, {inner: moved, name: outer})


def _caller(
    function: R.Function, names: view.FreshNames, callee: Callable[[Body], R.GlobalVar | R.Var]
) -> R.Function:
    """Return a function of the same signature that returns a call of what `callee` gives in its body."""
    params, renamed = _signature(function, names)
    body, kind = Body(names, list(params)), renamed(function.result)
    result = body.bind(R.Call(callee(body), params, kind), kind)
    return replace(function, params=params, body=body.seq(result), result=kind)


REWRITES: dict[str, Rewrite] = {"closure": closure, "wrapped": wrap_function, "returned": return_call}


def rewritten(module: R.Module, rng: random.Random) -> tuple[R.Module, str]:
    """Return the module after one of the rewrites on one of its functions, and which."""
    name = rng.choice([name for name, _ in functions(module)])
    rewrite = rng.choice(sorted(REWRITES))
    return REWRITES[rewrite](module, name), f"{rewrite} {name}"


def _function(module: R.Module, name: str) -> R.Function:
    found = module.get(name)
    if not isinstance(found, R.Function):
        raise ValueError(f"the module has no function {name} of Relax")
    return found


def _with(module: R.Module, changed: dict[str, R.Function]) -> R.Module:
    """Replace functions of the module, with new ones before the original. A recursive function then calls the
    new one of its name, which has the same results.
    """
    made: list[tuple[str, R.Function | ObjectNode]] = []
    for name, function in module.functions:
        if name in changed:
            made += [(new, item) for new, item in changed.items() if module.get(new) is None]
        made.append((name, changed.get(name, function)))
    return R.Module(tuple(made), module.attrs)


def _signature(
    function: R.Function, names: view.FreshNames
) -> tuple[tuple[R.Var, ...], Callable[[T.Type], T.Type]]:
    """Return parameters of the same types with new names and symbols, and a function that renames symbols."""
    found = {
        name: T.Sym(names.fresh(name + "_")) for param in function.params for name in T.symbols(param.type)
    }
    params = tuple(
        R.Var(names.fresh(param.name + "_"), T.concrete(param.type, found)) for param in function.params
    )
    return params, lambda kind: T.concrete(kind, found)


def _rewrite(name: str, program: RelaxProgram, inputs: Mapping[str, Value], seed: str) -> ir.Rewritten | None:
    """Return the module after a rewrite of its last function, or of the one that a seed chooses."""
    try:
        module = reading.from_json(program.module.decode())
    except (MalformedGraph, UnicodeDecodeError):
        # It holds nodes that the trees of gen/irs/relax lack.
        return None
    places = [each for each, _ in functions(module)]
    if not places:
        return None
    place = places[(int(seed) if seed else len(places) - 1) % len(places)]
    text = writing.to_json(REWRITES[name](module, place)).encode()
    changed = replace(program, module=text, script="", script_is_exact=False)
    # The rewrites give parameters new names and keep their order.
    return ir.Rewritten(
        changed, {new: inputs[old] for old, new in zip(program.inputs(), changed.inputs(), strict=True)}
    )


REWRITERS: Mapping[str, ir.Rewriter[RelaxProgram]] = {name: partial(_rewrite, name) for name in REWRITES}
