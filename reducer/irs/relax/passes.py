"""The dimensions in which a Relax module is made smaller: results, blocks, branches, calls, bindings, sizes,
types, values; and a function made main.

An edit may leave a module that TVM refuses: then it is rejected and no longer shows the failure, at the price
of one test.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from opsieve.gen.irs.relax import tree as R, types as T
from opsieve.gen.irs.relax.cleaning import Unread, clean_module, plain, prune_module
from opsieve.gen.irs.relax.edits import (
    bindings_of,
    inline_seq,
    make_literal,
    make_ones,
    replace_binding,
    replace_function,
    yield_leaf,
)
from opsieve.gen.irs.relax.walk import Retyped, all_bindings, all_names, captures, functions, reads, renew
from opsieve.gen.irs.view import FreshNames
from opsieve.gen.model.tensors import Value
from opsieve.reducer.engine.census import Part
from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.irs.relax.edits import RelaxEdits, put_module, tree_of
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmPass, TvmSubject
from opsieve.reducer.passes import nodes, values
from opsieve.reducer.problem.order import value_complexity


def unread_parts(subject: TvmSubject) -> Iterator[TvmEdit]:
    """Drop each unread binding, parameter and function, first with everything that only it read, then
    alone.
    """
    found = tree_of(subject).unread
    # Functions first: one of them often holds all other unread parts.
    parts = [("the module", name, Unread(functions=frozenset([name]))) for name in sorted(found.functions)]
    parts += [(f, x, Unread(bindings=frozenset([(f, x)]))) for f, x in sorted(found.bindings)]
    parts += [(f, x, Unread(parameters=frozenset([(f, x)]))) for f, x in sorted(found.parameters)]
    # The larger cut first; the failure may need what only this part reads, so that the part alone comes
    # second.
    for change, how in ((clean_module, ""), (prune_module, " alone")):
        for owner, name, part in parts:
            apply = partial(_without, part=part, change=change)
            # A local function without one of its parameters is simpler too.
            simplified = frozenset([name, owner])
            yield TvmEdit(
                f"drop {name} of {owner}{how}", frozenset([f"{name} of {owner}"]), apply, simplified
            )


def _without(
    subject: TvmSubject, part: Unread, change: Callable[[R.Module, Unread], R.Module]
) -> TvmSubject | None:
    tree = tree_of(subject)
    now = tree.unread
    kept = Unread(
        now.bindings - part.bindings, now.parameters - part.parameters, now.functions - part.functions
    )
    return put_module(subject, change(tree.module, kept))


@dataclass
class Signatures:
    """Dimensions whose edits keep the parameters and bindings that they leave unread."""

    keeping: Sequence[TvmPass]
    name: str = "signatures"

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """Yield the edits of these dimensions."""
        for dimension in self.keeping:
            for edit in dimension.edits(subject):
                yield replace(edit, label=f"{edit.label}, what it read is kept")


def relax_parts(subject: TvmSubject) -> Iterator[Part[TvmSubject]]:
    """Yield the bindings and parameters of a module, and the values that are fed."""
    module = tree_of(subject).module
    # The last binding stays: without it main computes nothing.
    single = sum(1 for _ in module.main.body.bindings()) == 1
    for name, binding in bindings_of(module):
        last = "main has one binding" if name == "main" and single else ""
        yield Part("bindings", binding.var.name, last or _is_ones(binding) * "it makes ones")
    yield from (Part("parameters", param.name) for param in module.main.params)
    for tensor in _EDITS.view(subject).tensors():
        yield Part("values", tensor.key + "=", "" if value_complexity(tensor.array) else "all is zero")


def _is_ones(binding: R.Binding) -> bool:
    """Return whether a binding is a call that makes ones."""
    kind = binding.var.type
    return isinstance(kind, T.RelaxTensorType) and binding.value == make_ones(kind)


def _results(edits: RelaxEdits, subject: TvmSubject) -> Iterator[TvmEdit]:
    """Make main return an earlier value."""
    main = tree_of(subject).module.main
    for binding in main.body.bindings():
        if isinstance(binding.var.type, T.RelaxTensorType | T.TupleType) and binding.var != main.body.body:
            yield edits.change(f"yield {binding.var.name}", "result", partial(yield_leaf, leaf=binding.var))


def _blocks(edits: RelaxEdits, subject: TvmSubject) -> Iterator[TvmEdit]:
    """Turn dataflow blocks into plain ones."""
    for name, function in functions(tree_of(subject).module):
        if any(block.dataflow for block in function.body.blocks):

            def change(module: R.Module, name: str = name) -> R.Module | None:
                found = module.get(name)
                if not isinstance(found, R.Function):
                    return None
                return replace_function(module, name, replace(found, body=plain(found.body)))

            yield edits.change(f"no dataflow block in {name}", f"blocks of {name}", change)


def _projections(edits: RelaxEdits, subject: TvmSubject) -> Iterator[TvmEdit]:
    """Replace a field of a tuple by the value it was built from."""
    found = [binding for _, binding in bindings_of(tree_of(subject).module)]
    built = {each.var.name: each.value for each in found if isinstance(each.value, R.Tuple)}
    for binding in found:
        value = binding.value
        if isinstance(value, R.Projection) and isinstance(value.tuple, R.Var) and value.tuple.name in built:
            name, whole = binding.var.name, built[value.tuple.name]
            change = partial(inline_seq, var=binding.var, seq=R.Seq((), whole.fields[value.index]))
            yield edits.change(f"the field itself for {name}", name, change)


def _simpler_arguments(edits: RelaxEdits, subject: TvmSubject) -> Iterator[TvmEdit]:
    """Make the numbers among the arguments and attributes of calls smaller; pass one argument twice."""
    for _, binding in bindings_of(tree_of(subject).module):
        call = binding.value
        for smaller in (
            _with_simpler(call) if isinstance(binding, R.Bind) and isinstance(call, R.Call) else ()
        ):

            def change(module: R.Module, old: R.Binding = binding, new: R.Call = smaller) -> R.Module | None:
                # An edit that was merged before may have changed the call.
                is_there = any(old == other for _, other in bindings_of(module))
                return replace_binding(module, old.var.name, R.Bind(old.var, new)) if is_there else None

            yield edits.change(f"a simpler argument in {binding.var.name}", binding.var.name, change)


def _with_simpler(call: R.Call) -> Iterator[R.Call]:
    """Yield the call with a smaller number or another of its arguments, in each place."""
    for at, arg in enumerate(call.args):
        others = [other for other in call.args if other != arg and other.type == arg.type]
        if isinstance(arg, R.Scalar):
            others += [replace(arg, value=less) for less in values.list_lesser(arg.value)]
        for other in others:
            yield replace(call, args=(*call.args[:at], other, *call.args[at + 1 :]))
    attrs = call.attrs or R.Attributes("", ())
    for name, value in attrs.items:
        whole = value if isinstance(value, tuple) else (value,)
        for at, item in enumerate(whole):
            for less in values.list_lesser(item):
                made = (*whole[:at], less, *whole[at + 1 :])
                pairs = {**dict(attrs.items), name: made if whole is value else less}
                yield replace(call, attrs=R.Attributes(attrs.kind, tuple(pairs.items())))


def _symbols(edits: RelaxEdits, subject: TvmSubject) -> Iterator[TvmEdit]:
    """Replace a symbol by its size in the fed values."""
    for param in tree_of(subject).module.main.params:
        shape = param.type.shape if isinstance(param.type, T.RelaxTensorType) else None
        for place, size in enumerate(shape or ()):
            if isinstance(size, T.Sym):
                number = int(np.asarray(subject.inputs[param.name]).shape[place])
                change = partial(
                    edits.refit, change=Retyped(partial(T.resolve_size, known={size.name: number}))
                )
                yield TvmEdit(f"{number} for {size.name}", frozenset(["sizes"]), change)


# The size that stands for a symbol in invented values: larger than 1, which broadcasts.
_SYMBOL = 2


def hoist_functions(edits: RelaxEdits, subject: TvmSubject) -> Iterator[TvmEdit]:
    """Yield each function as main, the smallest first."""
    module = tree_of(subject).module
    found: list[tuple[str, R.Function]] = []
    for name, function in functions(module):
        if name != "main":
            found.append((name, function))
        found += [
            (binding.var.name, binding.value)
            for binding in all_bindings(function.body)
            if isinstance(binding.value, R.Function) and not captures(binding.value)
        ]
    as_main = partial(_as_main, edits)
    # The smallest main that fails ends the search at once.
    for name, function in sorted(found, key=lambda item: sum(1 for _ in all_bindings(item[1].body))):
        yield TvmEdit(f"{name} for main", frozenset(["main"]), partial(as_main, function=function))
    for name, function in [("main", module.main), *found]:
        for place, (var, _, depth) in enumerate(iter_reached(function.body)):
            if isinstance(var.type, T.RelaxTensorType | T.TupleType) and (depth or name != "main"):
                change = partial(as_main, function=function, place=place)
                yield TvmEdit(f"{var.name} of {name} for main", frozenset(["main"]), change)


def iter_reached(
    seq: R.Seq, before: tuple[R.Binding, ...] = (), depth: int = 0
) -> Iterator[tuple[R.Var, tuple[R.Binding, ...], int]]:
    """Yield every variable bound in a sequence or one of its branches, the bindings up to it with its
    branches taken, and their number.
    """
    for binding in plain(seq).bindings():
        if isinstance(binding.value, R.If):
            for side in (binding.value.then, binding.value.other):
                yield from iter_reached(side, before, depth + 1)
        before = (*before, binding)
        yield binding.var, before, depth


def _as_main(
    edits: RelaxEdits, subject: TvmSubject, function: R.Function, place: int | None = None
) -> TvmSubject | None:
    module = tree_of(subject).module
    made = renew(function, FreshNames(all_names(module)))
    assert isinstance(made, R.Function)
    if place is not None:
        var, before, _ = list(iter_reached(made.body))[place]
        made = replace(made, body=R.Seq((R.BindingBlock(before),), var), result=var.type)
    read = reads(made.body)
    params, given, first = [], {}, list[R.Binding]()
    for old, param in zip(function.params, made.params, strict=True):
        kind = param.type
        if isinstance(kind, T.RelaxTensorType) and kind.shape is not None and kind.dtype:
            # A tensor can be fed; any other parameter needs a literal in front of the body.
            params.append(param)
            given[param.name] = subject.inputs[old.name] if old in module.main.params else ones(kind)
        elif param.name in read:
            value = make_literal(kind)
            if value is None:
                return None
            first.append(R.Bind(param, value))
    body = R.Seq(((R.BindingBlock(tuple(first)),) if first else ()) + made.body.blocks, made.body.body)
    main = replace(module.main, params=tuple(params), body=body, result=made.result)
    return edits.settle(subject, replace_function(module, "main", main), given)


def ones(kind: T.RelaxTensorType) -> Value:
    """Make a tensor of ones of a type, with small sizes for its symbols."""
    known = dict.fromkeys(T.symbols(kind), _SYMBOL)
    shape = [T.size_value(size, known) for size in kind.shape or ()]
    return np.ones(shape, np.dtype(kind.dtype))


def _dimensions(edits: RelaxEdits) -> list[TvmPass]:
    """Return the dimensions that change the module, in the order of a round."""
    # The dimensions that may remove most come first, because they make all later tests cheaper.
    listed: dict[str, Callable[[RelaxEdits, TvmSubject], Iterator[TvmEdit]]] = {
        "functions": hoist_functions,
        "results": _results,
        "outputs": nodes.drop_outputs,
        "bodies": nodes.open_bodies,
        "projections": _projections,
        "bypass": nodes.bypass_operations,
        "nodes": nodes.drop_operations,
        "inputs": values.freeze_inputs,
        "blocks": _blocks,
        "symbols": _symbols,
        "arguments": _simpler_arguments,
        "dimensions": values.shrink_dimensions,
        "dtypes": values.simplify_dtypes,
    }
    return [ListedPass(name, partial(each, edits)) for name, each in listed.items()]


_EDITS = RelaxEdits()
PASSES: tuple[TvmPass, ...] = (
    ListedPass("unread", unread_parts),
    *_dimensions(_EDITS),
    ListedPass("values", partial(values.simplify_values, _EDITS)),
    # Last, since it repeats all dimensions: only failures that depend on a signature need it.
    Signatures(
        [
            *_dimensions(RelaxEdits("reads")),
            # These leave more without a reader than the part that they drop.
            *(
                each
                for each in _dimensions(RelaxEdits("all"))
                if each.name in ("results", "outputs", "bodies")
            ),
        ]
    ),
)
