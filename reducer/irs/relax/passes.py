"""The dimensions in which a Relax module is made smaller: results, blocks, branches, calls, bindings, sizes,
types, values.

An edit may leave a module that TVM refuses: then it is rejected and no longer shows the failure, at the price
of one test.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np

from opsieve.gen.irs.relax.body import FreshNames
from opsieve.gen.irs.relax.declaration import attributes
from opsieve.gen.irs.relax.reading import from_json
from opsieve.gen.irs.relax.renaming import all_names
from opsieve.gen.irs.relax.tree import (
    Attributes,
    Bind,
    Binding,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    MatchCast,
    Module,
    Projection,
    RelaxOperator,
    Scalar,
    Seq,
    ShapeValue,
    Tuple,
    Var,
)
from opsieve.gen.irs.relax.types import (
    FuncType,
    RelaxTensorType,
    ShapeType,
    Size,
    Sym,
    TupleType,
    Type,
    resized,
    tensors,
)
from opsieve.gen.irs.relax.walk import Rebuild, Substitute, all_bindings, called, functions, reads
from opsieve.gen.irs.tvm.nodes import Dtype, MalformedGraph
from opsieve.gen.irs.tvm.tensors import Array
from opsieve.reducer.engine.census import Part
from opsieve.reducer.engine.edit import Edit
from opsieve.reducer.irs.relax.cleaning import plain
from opsieve.reducer.irs.relax.hoisting import hoisted, literal
from opsieve.reducer.irs.relax.leaves import constant, fresh
from opsieve.reducer.irs.relax.local_functions import without_parameter
from opsieve.reducer.irs.relax.subject import RelaxSubject
from opsieve.reducer.irs.relax.unread import keeping_parameters, unread_parts
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmSubject

RelaxEdit: TypeAlias = Edit[RelaxSubject]


class RelaxPass:
    """One dimension: its name and what lists its edits."""

    def __init__(self, name: str, listed: Callable[[RelaxSubject], Iterator[RelaxEdit]]) -> None:
        self.name = name
        self._listed = listed

    def edits(self, subject: RelaxSubject) -> Iterator[RelaxEdit]:
        """Every single edit left."""
        return self._listed(subject)


class AsTvm:
    """A dimension of Relax trees as one of modules of TVM of either IR (reducer/tvm)."""

    def __init__(self, dimension: RelaxPass) -> None:
        self.name = dimension.name
        self._dimension = dimension

    def edits(self, subject: TvmSubject) -> Iterator[TvmEdit]:
        """The edits of the tree; none of a module that a tree cannot hold."""
        tree = _tree(subject)
        for edit in self._dimension.edits(tree) if tree else ():
            yield Edit(edit.label, edit.touches, partial(_through, edit), edit.parts)


def relax_parts(subject: TvmSubject) -> Iterator[Part[TvmSubject]]:
    """The bindings and parameters of a module, and the values that are fed."""
    tree = _tree(subject)
    for name, binding in _every(tree.module) if tree else ():
        last = name == "main" and len(list(tree.module.main.body.bindings())) == 1 if tree else False
        yield Part("bindings", binding.var.name, "main has one binding" if last else "")
    for param in tree.module.main.params if tree else ():
        yield Part("parameters", param.name)
        ones = (
            not (np.asarray(subject.inputs[param.name]) != 1).any() if param.name in subject.inputs else True
        )
        yield Part("values", f"value of {param.name}", "all is one" if ones else "")


def _through(edit: RelaxEdit, subject: TvmSubject) -> TvmSubject | None:
    tree = _tree(subject)
    made = edit.apply(tree) if tree else None
    if made is None:
        return None
    program = replace(
        subject.program, module=made.program.module, passes=made.steps, script="", script_is_exact=False
    )
    return TvmSubject(program, dict(made.inputs))


def _tree(subject: TvmSubject) -> RelaxSubject | None:
    try:
        return RelaxSubject(_module(subject.program.data), tuple(subject.program.passes), subject.inputs)
    except (MalformedGraph, UnicodeDecodeError, ValueError):
        return None


@lru_cache(maxsize=64)
def _module(data: bytes) -> Module:
    module = from_json(data.decode("utf-8"))
    if not isinstance(module.get("main"), Function):
        raise ValueError("the module has no function main")
    return module


def _results(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """Main yields less: a field of its tuple, or what it computed before."""
    main = subject.module.main
    body = main.body.body
    if isinstance(body, Tuple):
        for item in body.fields:
            yield _edit("yield one field", "result", partial(_yielding, leaf=item))
    for binding in main.body.bindings():
        if isinstance(binding.var.type, RelaxTensorType | TupleType) and binding.var != body:
            yield _edit(f"yield {binding.var.name}", "result", partial(_yielding, leaf=binding.var))


def _yielding(module: Module, leaf: Expr) -> Module | None:
    main = module.main
    bound = {param.name for param in main.params} | {binding.var.name for binding in main.body.bindings()}
    if isinstance(leaf, Var) and leaf.name not in bound:
        return None
    if isinstance(leaf, Var) and leaf.dataflow:
        main, leaf = replace(main, body=plain(main.body)), replace(leaf, dataflow=False)
    made = replace(main, body=Seq(main.body.blocks, leaf), result=leaf.type)
    return _with_main(module, made)


def _with_main(module: Module, main: Function) -> Module:
    return Module(tuple((n, main if n == "main" else f) for n, f in module.functions), module.attrs)


def _edit(label: str, touched: str, change: Callable[[Module], Module | None]) -> RelaxEdit:
    def apply(subject: RelaxSubject) -> RelaxSubject | None:
        made = change(subject.module)
        return None if made is None else subject.having(made)

    return Edit(label, frozenset([touched]), apply)


def _blocks(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """Dataflow blocks become plain ones."""
    for name, function in functions(subject.module):
        if any(block.dataflow for block in function.body.blocks):

            def change(module: Module, name: str = name) -> Module:
                table = tuple(
                    (n, replace(f, body=plain(f.body)) if n == name and isinstance(f, Function) else f)
                    for n, f in module.functions
                )
                return Module(table, module.attrs)

            yield _edit(f"no dataflow block in {name}", f"blocks of {name}", change)


def _projections(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """A field of a tuple that is built in sight is read as what it was built of."""
    built = {b.var.name: b.value for _, b in _every(subject.module) if isinstance(b.value, Tuple)}
    for _, binding in _every(subject.module):
        value = binding.value
        if isinstance(value, Projection) and isinstance(value.tuple, Var) and value.tuple.name in built:
            whole = built[value.tuple.name]
            assert isinstance(whole, Tuple)
            field = Bind(binding.var, whole.fields[value.index])
            yield _edit(
                f"the field itself for {binding.var.name}",
                binding.var.name,
                _Replace(binding.var.name, _always((field,))).module,
            )


def _always(bindings: tuple[Binding, ...]) -> Callable[[Binding], tuple[Binding, ...]]:
    return lambda binding: bindings


class _Replace(Rebuild):
    """Puts other bindings in the place of one."""

    def __init__(self, name: str, by: Callable[[Binding], tuple[Binding, ...]]) -> None:
        self.name, self.by = name, by

    def binding(self, binding: Binding) -> tuple[Binding, ...]:
        """The bindings that stand for the one named."""
        return self.by(binding) if binding.var.name == self.name else (binding,)


def _branches(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """A branch is replaced by one of its sides."""
    for name, binding in _every(subject.module):
        if isinstance(binding.value, If):
            for word, side in (("first", binding.value.then), ("second", binding.value.other)):
                flat = (*plain(side).bindings(), Bind(binding.var, side.body))
                taken = _edit(
                    f"take the {word} side of {binding.var.name} in {name}",
                    "branches",
                    _Replace(binding.var.name, _always(flat)).module,
                )
                yield replace(taken, parts=frozenset([binding.var.name]))


def _every(module: Module) -> Iterator[tuple[str, Binding]]:
    for name, function in functions(module):
        for binding in all_bindings(function.body):
            yield name, binding


def _calls(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """A call of a function is replaced by its body."""
    table = dict(functions(subject.module))
    local = {b.var.name: b.value for _, b in _every(subject.module) if isinstance(b.value, Function)}
    for _, binding in _every(subject.module):
        call = binding.value
        if not isinstance(call, Call):
            continue
        callee = None
        if isinstance(call.op, GlobalVar) and call.op.name not in called(
            table[call.op.name].body if call.op.name in table else Seq((), Tuple(()))
        ):
            callee = table.get(call.op.name)
        elif isinstance(call.op, Var):
            callee = local.get(call.op.name)
        if callee is not None:
            inlined = _edit(
                f"inline the call bound to {binding.var.name}",
                "calls",
                partial(_inlined, binding=binding, function=callee),
            )
            yield replace(inlined, parts=frozenset([binding.var.name]))


def _parameters(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """A parameter that a local function does not read goes, with its arguments."""
    for _, binding in _every(subject.module):
        if isinstance(binding.value, Function):
            read = reads(binding.value.body)
            for place, param in reversed(list(enumerate(binding.value.params))):
                if param.name not in read:
                    change = partial(without_parameter, name=binding.var.name, place=place)
                    yield _edit(f"drop {param.name} of {binding.var.name}", binding.var.name, change)


def _inlined(module: Module, binding: Binding, function: Function) -> Module | None:
    call = binding.value
    if not isinstance(call, Call) or len(call.args) != len(function.params):
        return None
    names = FreshNames(all_names(module))
    by: dict[str, Expr] = {param.name: arg for param, arg in zip(function.params, call.args, strict=True)}
    flat: list[Binding] = []
    for inner in _bindings(plain(function.body)):
        value = Substitute(by).expr(fresh(inner.value, names))
        var = replace(inner.var, name=names.fresh(inner.var.name + "_"))
        by[inner.var.name] = var
        flat.append(MatchCast(var, value, inner.type) if isinstance(inner, MatchCast) else Bind(var, value))
    flat.append(Bind(binding.var, Substitute(by).expr(function.body.body)))
    return _Replace(binding.var.name, lambda _: tuple(flat)).module(module)


def _bindings(seq: Seq) -> tuple[Binding, ...]:
    return tuple(seq.bindings())


def _replaced(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """What is bound, or fed, is replaced: by a variable of its type that is there before, by a constant, or
    by `full`.
    """
    for _, function in functions(subject.module):
        found = list(_scoped(function, ()))
        behind = {b.var.name: {b.var.name, *reads(b.value)} for b, _ in found}
        for names in behind.values():  # in order of binding, so that those of what is read are complete
            names.update(*(behind.get(other, ()) for other in list(names)))
        for binding, scope in reversed(found):
            for edit in _substitutes(binding.var, scope, binding.value):
                # What only this value needed goes with it, so the edit touches all that stands behind it.
                yield replace(edit, touches=frozenset(behind[binding.var.name]), parts=edit.touches)
        for param in function.params:
            yield from _substitutes(param, (), None)


def _scoped(function: Function, outer: tuple[Var, ...]) -> Iterator[tuple[Binding, tuple[Var, ...]]]:
    """Every binding with the variables in scope before it, those of the innermost body last."""
    yield from _in_seq(function.body, (*outer, *function.params))


def _in_seq(seq: Seq, scope: tuple[Var, ...]) -> Iterator[tuple[Binding, tuple[Var, ...]]]:
    for binding in seq.bindings():
        if isinstance(binding.value, If):
            for side in (binding.value.then, binding.value.other):
                yield from _in_seq(side, scope)
        elif isinstance(binding.value, Function):
            yield from _scoped(binding.value, scope)
        yield binding, scope
        scope = (*scope, binding.var)


def _substitutes(var: Var, scope: tuple[Var, ...], value: Expr | None) -> Iterator[RelaxEdit]:
    if not isinstance(var.type, TupleType | RelaxTensorType | FuncType):
        return
    others = [item for item in scope if item.type == var.type and not item.dataflow]
    for other in others[:2]:
        yield _edit(f"{other.name} for {var.name}", var.name, _Read(var.name, other).module)
    if not isinstance(var.type, RelaxTensorType):
        several = literal(var.type) if value is None else None  # of a parameter
        if several is not None:
            yield _edit(f"constants for {var.name}", var.name, _Read(var.name, several).module)
        return
    single = constant(var.type)
    if single is not None:
        yield _edit(f"a constant for {var.name}", var.name, _Read(var.name, single).module)
    elif value is not None and var.type.shape is not None and not _is_full(value):
        attrs = attributes("InitAttrs", dtype=Dtype(var.type.dtype))
        call = Call(RelaxOperator("relax.ones"), (ShapeValue(var.type.shape),), var.type, attrs)
        yield _edit(f"ones for {var.name}", var.name, _Replace(var.name, _always((Bind(var, call),))).module)


def _is_full(value: Expr) -> bool:
    return isinstance(value, Call) and isinstance(value.op, RelaxOperator) and value.op.name == "relax.ones"


class _Read(Substitute):
    """Reads of a variable become another leaf; where it is bound stays as it is."""

    def __init__(self, name: str, leaf: Expr) -> None:
        super().__init__({name: leaf})


class _Sizes(Rebuild):
    """Sizes and element types replaced wherever they stand, in constants and attributes too."""

    def __init__(self, size: Callable[[Size], Size], dtype: Callable[[str], str] = lambda name: name) -> None:
        self._size, self._dtype = size, dtype

    def type(self, kind: Type) -> Type:
        """A type."""
        if isinstance(kind, RelaxTensorType):
            shape = None if kind.shape is None else tuple(map(self._size, kind.shape))
            return RelaxTensorType(self._dtype(kind.dtype), shape, kind.rank)
        if isinstance(kind, TupleType):
            return TupleType(tuple(map(self.type, kind.fields)))
        if isinstance(kind, ShapeType) and kind.sizes is not None:
            return ShapeType(tuple(map(self._size, kind.sizes)))
        if isinstance(kind, FuncType):
            params = None if kind.params is None else tuple(map(self.type, kind.params))
            return FuncType(params, self.type(kind.result), kind.pure, kind.derive)
        return kind

    def leaf(self, expr: Expr) -> Expr:
        """A shape or constant."""
        if isinstance(expr, ShapeValue):
            return ShapeValue(tuple(map(self._size, expr.sizes)))
        if isinstance(expr, Constant):
            kind = self.type(expr.type)
            assert isinstance(kind, RelaxTensorType)
            return _as(expr, kind)
        if isinstance(expr, Scalar) and isinstance(expr.value, Sym):
            new = self._size(expr.value)
            return Scalar(new, expr.dtype)
        return expr

    def value(self, expr: Expr) -> Expr:
        """A call, with the element types among its attributes."""
        if isinstance(expr, Call) and expr.attrs is not None:
            items = tuple(
                (name, type(v)(self._dtype(v)) if isinstance(v, str) and "dtype" in name else v)
                for name, v in expr.attrs.items
            )
            return replace(expr, attrs=Attributes(expr.attrs.kind, items))
        return expr


def _as(expr: Constant, kind: RelaxTensorType) -> Constant:
    try:
        old = np.frombuffer(expr.array.data, np.dtype(expr.array.dtype))
        shape = [size for size in kind.shape or () if isinstance(size, int)]
        new = np.resize(old, shape).astype(np.dtype(kind.dtype))
    except TypeError:  # an element type that numpy has not
        return expr
    return Constant(Array(kind.dtype, tuple(shape), new.tobytes()))


def _exchange(old: int = 0, new: int = 0) -> Callable[[Size], Size]:
    return lambda size: new if size == old else size


def _float(old: str) -> Callable[[str], str]:
    return lambda name: "float32" if name == old else name


def _refitted(subject: RelaxSubject, change: _Sizes) -> RelaxSubject | None:
    """The subject with every type changed, and the values fed cut or repeated to fit."""
    made = subject.having(change.module(subject.module))
    if made is None:
        return None
    fed = {}
    for param in made.module.main.params:
        value, kind = np.asarray(made.inputs[param.name]), param.type
        if isinstance(kind, RelaxTensorType) and kind.shape is not None and kind.dtype:
            shape = [size if isinstance(size, int) else value.shape[n] for n, size in enumerate(kind.shape)]
            value = np.resize(value, shape).astype(kind.dtype)
        fed[param.name] = value
    return replace(made, inputs=fed)


def _sizes(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """A size is made smaller wherever it stands; a symbol becomes the number that it is."""
    known: dict[str, int] = {}
    found: set[int] = set()
    for _, function in functions(subject.module):
        kinds = [p.type for p in function.params] + [b.var.type for b in all_bindings(function.body)]
        for kind in kinds:
            for tensor in tensors(kind):
                found |= {size for size in tensor.shape or () if isinstance(size, int) and size > 1}
    for param in subject.module.main.params:
        if isinstance(param.type, RelaxTensorType):
            for place, size in enumerate(param.type.shape or ()):
                if isinstance(size, Sym):
                    known[size.name] = int(np.asarray(subject.inputs[param.name]).shape[place])
    for name, number in known.items():
        sizes: dict[str, Size] = {name: number}
        yield Edit(
            f"{number} for {name}",
            frozenset(["sizes"]),
            partial(_refitted, change=_Sizes(partial(resized, known=sizes))),
        )
    for old in sorted(found, reverse=True):
        for new in (1, 2) if old > 2 else (1,):
            yield Edit(
                f"{new} for sizes of {old}",
                frozenset(["sizes"]),
                partial(_refitted, change=_Sizes(_exchange(old, new))),
            )


def _dtypes(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """An element type is replaced by a plainer one wherever it stands."""
    kinds = [b.var.type for _, b in _every(subject.module)] + [p.type for p in subject.module.main.params]
    present = {tensor.dtype for kind in kinds for tensor in tensors(kind)}
    for old in sorted(present - {"float32", "bool", ""}):
        yield Edit(
            f"float32 for {old}",
            frozenset(["types"]),
            partial(_refitted, change=_Sizes(_exchange(), _float(old))),
        )


def _values(subject: RelaxSubject) -> Iterator[RelaxEdit]:
    """Ones are fed, and stand in constants."""
    for name in subject.inputs:

        def ones(now: RelaxSubject, name: str = name) -> RelaxSubject | None:
            value = np.asarray(now.inputs[name])
            return (
                replace(now, inputs={**now.inputs, name: np.ones_like(value)}) if (value != 1).any() else None
            )

        yield Edit(f"ones for {name}", frozenset([f"value of {name}"]), ones)


_CHANGES: tuple[RelaxPass, ...] = (
    RelaxPass("functions", hoisted),
    RelaxPass("results", _results),
    RelaxPass("branches", _branches),
    RelaxPass("projections", _projections),
    RelaxPass("bindings", _replaced),
    RelaxPass("calls", _calls),
    RelaxPass("parameters", _parameters),
    RelaxPass("blocks", _blocks),
    RelaxPass("sizes", _sizes),
    RelaxPass("dtypes", _dtypes),
)
PASSES: tuple[RelaxPass, ...] = (
    RelaxPass("unread", unread_parts),
    *_CHANGES,
    RelaxPass("values", _values),
    RelaxPass("signatures", keeping_parameters([each.edits for each in _CHANGES])),
)
