"""Edits of Relax modules as trees: they drop parts that lost their last reader, and avoid patterns at which
TVM is known to fail.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from typing import Literal

import numpy as np

from opsieve.gen.irs.relax import cleaning, reading, tree as R, types as T, writing
from opsieve.gen.irs.relax.edits import (
    bindings_of,
    calls_of,
    constants_of,
    inline_call,
    inline_seq,
    make_literal,
    make_ones,
    replace_binding,
    replace_constant,
    replace_reads,
    yield_leaf,
)
from opsieve.gen.irs.relax.known_faults import patterns
from opsieve.gen.irs.relax.walk import Retyped, bodies, functions, make_constant, reads
from opsieve.gen.irs.tvm.nodes import MalformedGraph, to_numpy
from opsieve.gen.irs.view import Array, Opening, Operation, SizeClass, StoredTensor, TypeClass
from opsieve.gen.model.tensors import Value
from opsieve.reducer.irs.tvm.subject import TvmEdit, TvmSubject
from opsieve.reducer.problem.order import PLAIN_DTYPES

Change = Callable[[R.Module], R.Module | None]
# A module without bindings has no edits, so that no pass has to ask whether the tree is there.
_EMPTY = R.Module((("main", R.Function((), R.Seq((), R.Tuple(())), T.TupleType(()))),))


@dataclass(frozen=True)
class Tree:
    """A module, with cached properties."""

    module: R.Module

    @cached_property
    def known_patterns(self) -> frozenset[str]:
        """Return the patterns in it at which TVM is known to fail."""
        return patterns(self.module)

    @cached_property
    def unread(self) -> cleaning.Unread:
        """The parts without a reader; a failure may still need them."""
        return cleaning.unread(self.module)


@lru_cache(maxsize=64)
def read_tree(data: bytes) -> Tree:
    """Read the tree of a module; a module that a tree cannot hold gives an empty one, which has no edits."""
    try:
        module = reading.from_json(data.decode("utf-8"))
    except (MalformedGraph, ValueError):
        return Tree(_EMPTY)
    # Every pass starts at main.
    return Tree(module if isinstance(module.get("main"), R.Function) else _EMPTY)


def tree_of(subject: TvmSubject) -> Tree:
    """Return the tree of a subject's module."""
    return read_tree(subject.program.data)


def put_module(
    subject: TvmSubject, module: R.Module, inputs: Mapping[str, Value] | None = None
) -> TvmSubject | None:
    """Return the subject with another module, and with other values if given.

    Returns `None` if the module is the same, reads undefined names, or has a pattern at which TVM is known to
    fail and which the subject lacks: that would be another failure.
    """
    tree = tree_of(subject)
    # Known patterns of the subject itself may stay: its failure may be one of them.
    if not cleaning.is_closed(module) or module == tree.module or not patterns(module) <= tree.known_patterns:
        return None
    given = subject.inputs if inputs is None else dict(inputs)
    return TvmSubject(subject.program, given).with_module(writing.to_json(module).encode())


@dataclass(frozen=True)
class RelaxView:
    """A module: the bindings of all its functions, and the values that main is fed."""

    module: R.Module
    fed: Mapping[str, Value]

    @cached_property
    def _scopes(self) -> dict[str, tuple[R.Binding, tuple[R.Var, ...]]]:
        """Every binding by its name, with the variables in scope before it."""
        found = {}
        for _, function in functions(self.module):
            for binding, scope in _in_seq(function.body, function.params):
                found[binding.var.name] = binding, scope
        return found

    @cached_property
    def variables(self) -> dict[str, R.Var]:
        """The parameters of functions and the variables that are bound, by name."""
        params = [param for _, function in functions(self.module) for param in function.params]
        bound = [var for binding, scope in self._scopes.values() for var in (*scope, binding.var)]
        return {var.name: var for var in (*params, *bound)}

    def inputs(self) -> list[str]:
        """Return the parameters of all functions that a literal may stand for."""
        params = [param for _, function in functions(self.module) for param in function.params]
        return [param.name for param in params if isinstance(param.type, T.TupleType | T.RelaxTensorType)]

    def outputs(self) -> list[str]:
        """Return the positions of main's results, if it returns a tuple."""
        body = self.module.main.body.body
        return [str(place) for place in range(len(body.fields))] if isinstance(body, R.Tuple) else []

    def operations(self) -> list[Operation]:
        """Return the bindings. One that goes takes along what only it needs, so it touches all that stands
        behind it.
        """
        found, behind = [], dict[str, set[str]]()
        for name, (binding, scope) in self._scopes.items():
            read, var = reads(binding.value), binding.var
            behind[name] = {name, *read}.union(*(behind.get(other, ()) for other in read))
            # A variable of a dataflow block is not seen outside of it.
            own = [item.name for item in scope if item.name in read and item.dataflow <= var.dataflow]
            result = name if isinstance(var.type, T.TupleType | T.RelaxTensorType | T.FuncType) else ""
            found.append(Operation(name, name, tuple(own), result, frozenset(behind[name])))
        return found

    def type_of(self, name: str) -> T.Type | None:
        """Return the type of a variable."""
        var = self.variables.get(name)
        return None if var is None else var.type

    def scope(self, operation: Operation) -> Iterator[str]:
        """Return the variables bound before, outside of dataflow blocks."""
        return (var.name for var in self._scopes[operation.key][1] if not var.dataflow)

    def tensors(self) -> Iterator[StoredTensor]:
        """Return the values of main's parameters, and the constants of the module, named by a digest of
        their content.
        """
        for name, value in self.fed.items():
            yield StoredTensor(name, np.asarray(value), True)
        for constant in constants_of(self.module):
            array, digest = to_numpy(constant.array), sha256(constant.array.data).hexdigest()
            if array is not None:
                yield StoredTensor(f"constant {digest[:8]}", array, False)

    def openings(self) -> Iterator[Opening]:
        """Yield the sides of branches, and the bodies of functions that are called."""
        for name, binding in bindings_of(self.module):
            if isinstance(binding.value, R.If):
                for word, side in (("first", binding.value.then), ("second", binding.value.other)):
                    change = partial(inline_seq, var=binding.var, seq=side)
                    yield _opening(f"take the {word} side of {binding.var.name} in {name}", binding, change)
        for binding, function in calls_of(self.module):
            inlined = partial(inline_call, binding=binding, function=function)
            yield _opening(f"inline the call bound to {binding.var.name}", binding, inlined)

    def sizes(self) -> list[SizeClass]:
        """Return a class for each size, wherever it occurs."""
        found = {size for kind in self._tensors() for size in kind.shape or () if isinstance(size, int)}
        touches = frozenset(["sizes"])
        return [
            SizeClass("every dimension", size, touches, False, None)
            for size in sorted(found, reverse=True)
            if size > 1
        ]

    def dtypes(self) -> list[TypeClass]:
        """Return a class for each element type, wherever it occurs; conditions must stay booleans."""
        # The condition of an If is a bool, and an empty dtype stands for an unknown one.
        present = sorted({kind.dtype for kind in self._tensors()} - {"bool", ""})
        touches = frozenset(["types"])
        return [TypeClass("every value", dtype, touches, PLAIN_DTYPES, None) for dtype in present]

    def _tensors(self) -> Iterator[T.RelaxTensorType]:
        return (tensor for var in self.variables.values() for tensor in T.tensors(var.type))


def _opening(label: str, binding: R.Binding, change: Change) -> Opening:
    # The change holds the body as it is now, so that two openings may not be merged: they touch the same.
    return Opening(label, frozenset(["bodies"]), frozenset([binding.var.name]), change)


def _in_seq(seq: R.Seq, scope: tuple[R.Var, ...]) -> Iterator[tuple[R.Binding, tuple[R.Var, ...]]]:
    """Yield every binding, nested ones first, with the variables in scope before it."""
    for binding in seq.bindings():
        given = binding.value.params if isinstance(binding.value, R.Function) else ()
        for body in bodies(binding.value):
            yield from _in_seq(body, (*scope, *given))
        yield binding, scope
        scope = (*scope, binding.var)


@dataclass(frozen=True)
class RelaxEdits:
    """Edits of Relax modules. Of what they leave without a reader, `reads` keeps what only a dropped part
    read, and `all` keeps everything.
    """

    keeps: Literal["", "reads", "all"] = ""

    def settle(
        self, subject: TvmSubject, module: R.Module | None, inputs: Mapping[str, Value] | None = None
    ) -> TvmSubject | None:
        """Return the subject with a changed module, if any, without parts that lost their last reader; parts
        without a reader before the change stay, to be dropped by an edit of their own.
        """
        if module is None:
            return None
        before = tree_of(subject).unread
        if self.keeps == "reads":
            module = cleaning.prune_module(module, before, parameters=False)
        return put_module(subject, module if self.keeps else cleaning.clean_module(module, before), inputs)

    def change(self, label: str, touched: str, change: Change, part: str = "") -> TvmEdit:
        """Make an edit of the module alone; it simplifies `part`, or the part that it touches."""

        def apply(subject: TvmSubject) -> TvmSubject | None:
            return self.settle(subject, change(tree_of(subject).module))

        return TvmEdit(label, frozenset([touched]), apply, frozenset([part]) if part else None)

    def view(self, subject: TvmSubject) -> RelaxView:
        """Return the module as passes see it."""
        return RelaxView(tree_of(subject).module, subject.inputs)

    def drop_output(self, subject: TvmSubject, name: str) -> TvmSubject | None:
        """Drop a field of the tuple that main returns; a single remaining field is returned itself."""
        module = tree_of(subject).module
        body, place = module.main.body.body, int(name)
        if not isinstance(body, R.Tuple) or place >= len(body.fields):
            return None
        left = body.fields[:place] + body.fields[place + 1 :]
        return self.settle(subject, yield_leaf(module, left[0] if len(left) == 1 else R.Tuple(left)))

    def remove(self, subject: TvmSubject, operation: Operation) -> TvmSubject | None:
        """Replace a bound tensor by ones: a constant if it is small and static, else a call."""
        module = tree_of(subject).module
        found = next((b for _, b in bindings_of(module) if b.var.name == operation.key), None)
        if found is None:
            return None
        kind = found.var.type
        # A constant has no bindings before it that could go, so it is only made a plain literal.
        single = found.value if isinstance(found.value, R.Constant) else make_literal(kind)
        call = make_ones(kind) if isinstance(kind, T.RelaxTensorType) else None
        if single is not None:
            return self.settle(subject, replace_reads(module, found.var.name, single))
        if call is None or found.value == call:
            return None
        return self.settle(subject, replace_binding(module, found.var.name, R.Bind(found.var, call)))

    def replace(self, subject: TvmSubject, result: str, by: str, retype: bool) -> TvmSubject | None:
        """Replace a result by another variable of its type; returns `None` for another type, because types
        are not inferred.
        """
        view = self.view(subject)
        leaf = view.variables.get(by)
        if leaf is None or view.type_of(result) != leaf.type:
            return None
        return self.settle(subject, replace_reads(view.module, result, leaf))

    def open(self, subject: TvmSubject, opening: Opening) -> TvmSubject | None:
        """Replace a branch or call by its body."""
        return self.settle(subject, opening.place(tree_of(subject).module))

    def store(self, subject: TvmSubject, tensor: StoredTensor, array: Array) -> TvmSubject | None:
        """Replace a fed value, or a constant of the module."""
        if tensor.is_fed:
            changed = {**subject.inputs, tensor.name: array}
            return replace(subject, inputs=changed) if tensor.holds(subject.inputs.get(tensor.name)) else None
        module = tree_of(subject).module
        for constant in constants_of(module):
            if tensor.holds(to_numpy(constant.array)):
                new = make_constant(array, constant.array.dtype)
                return self.settle(subject, replace_constant(module, constant, new))
        return None

    def freeze(self, subject: TvmSubject, name: str) -> TvmSubject | None:
        """Replace a parameter by a literal: the value fed to main, or else ones."""
        view, value = self.view(subject), subject.inputs.get(name)
        kind = view.type_of(name)
        if kind is None:
            return None
        leaf = make_literal(kind)
        if isinstance(kind, T.RelaxTensorType) and T.is_static(kind) and kind.dtype and value is not None:
            leaf = make_constant(np.asarray(value), kind.dtype)
        return None if leaf is None else self.settle(subject, replace_reads(view.module, name, leaf))

    def resize(self, subject: TvmSubject, sizes: SizeClass, size: int, keep_last: bool) -> TvmSubject | None:
        """Replace a size by a smaller one wherever it occurs."""
        return self.refit(subject, Retyped(lambda old: size if old == sizes.size else old))

    def retype(self, subject: TvmSubject, classes: Sequence[TypeClass], dtype: str) -> TvmSubject | None:
        """Replace an element type wherever it occurs."""
        old = classes[0].dtype
        return self.refit(subject, Retyped(lambda size: size, lambda name: dtype if name == old else name))

    def refit(self, subject: TvmSubject, change: Retyped) -> TvmSubject | None:
        """Change every type, and cut or repeat the fed values to fit."""
        module = change.module(tree_of(subject).module)
        fed = dict(subject.inputs)
        for param in module.main.params:
            kind = param.type
            if isinstance(kind, T.RelaxTensorType) and kind.shape is not None and kind.dtype:
                # A symbolic axis keeps the length of the fed value.
                value = np.asarray(fed[param.name])
                shape = [s if isinstance(s, int) else value.shape[n] for n, s in enumerate(kind.shape)]
                fed[param.name] = np.resize(value, shape).astype(kind.dtype)
        return self.settle(subject, module, fed)
