"""Every single simplification of a TIR function or a Relax module, made without the reducer's code. Whether TVM
accepts a candidate is for the caller to check.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from opsieve.gen.errors import BadInput
from opsieve.gen.irs.relax import reading, tree as R, types as T, writing
from opsieve.gen.irs.relax.walk import Retyped, make_constant
from opsieve.gen.irs.tir.program import TirProgram
from opsieve.gen.irs.tvm.nodes import ObjectNode, Pairs, encode, to_numpy
from opsieve.gen.irs.tvm.program import TvmProgram

Inputs = dict[str, Any]
Candidate = tuple[str, TvmProgram, Inputs]
Path = tuple[str | int, ...]
_DIALECTS = ("tirx.", "s_tir.")


def smaller_programs(program: TvmProgram, inputs: Inputs) -> Iterator[Candidate]:
    """Yield candidates with what was done; each is fed what its parameters need."""
    for place in range(len(program.passes)):
        left = (*program.passes[:place], *program.passes[place + 1 :])
        yield f"no {program.passes[place]}", replace(program, passes=left), inputs
    for name, value in inputs.items():
        if np.asarray(value).any():
            yield f"zeros for {name}", program, {**inputs, name: np.zeros_like(value)}
    made = _functions(program) if isinstance(program, TirProgram) else _modules(program, inputs)
    for what, root, fed in made:
        try:
            found = replace(program, module=root.encode(), script="", script_is_exact=False)
            wanted = found.inputs()
        except (BadInput, ValueError):
            continue
        given = {**inputs, **fed}
        if wanted.keys() <= given.keys():
            yield what, found, {name: given[name] for name in wanted}


# TIR functions are nodes of TVM's JSON, which are compared by identity.


def _functions(program: TirProgram) -> Iterator[tuple[str, str, Inputs]]:
    """Yield modules with a smaller function."""
    function = program.entry
    key = next(name for name, node in program.functions.items() if node is function)
    for what, made in _smaller_functions(function):
        root = program.root
        if root is function:
            yield what, encode(made), {}
            continue
        table = root["functions"]
        assert isinstance(table, Pairs)
        pairs = tuple((name, made if str(name["name_hint"]) == key else node) for name, node in table.items)  # type: ignore[index, call-overload]
        yield what, encode(ObjectNode(root.type, {**root.fields, "functions": Pairs(pairs)}, root.raw)), {}


def _smaller_functions(function: ObjectNode) -> Iterator[tuple[str, ObjectNode]]:
    body = function["body"]
    read = {id(node) for _, node in _places(body)}
    params = function["params"]
    assert isinstance(params, tuple)
    for place, param in enumerate(params):
        if id(param) not in read and len(params) > 1:
            kept = (*params[:place], *params[place + 1 :])
            yield f"no parameter {place}", ObjectNode(function.type, {**function.fields, "params": kept})
    for path, node in _places(body):
        owner = _owner(body, path)
        is_threads = owner is not None and owner.type == "tirx.AttrStmt" and path[-1] == "value"
        for what, new in _simpler_nodes(path, node, is_threads):
            yield f"{what} at {path}", _put(function, ("body", *path), new)


def _owner(body: Any, path: Path) -> ObjectNode | None:
    """Return the node that has what stands at a path as a field."""
    found = None
    for step in path:
        found = body if isinstance(body, ObjectNode) else found
        body = body[step]
    return found


def _simpler_nodes(path: Path, node: ObjectNode, is_threads: bool) -> Iterator[tuple[str, Any]]:
    kind = _dtype(node)
    if node.type == "tirx.SeqStmt":
        items = node["seq"]
        assert isinstance(items, tuple)
        for place in range(len(items)):
            left = (*items[:place], *items[place + 1 :])
            yield f"without statement {place}", left[0] if len(left) == 1 else _with(node, seq=left)
    if (
        node.type.startswith(_DIALECTS)
        and not kind
        and node.type not in ("tirx.IterVar", "tirx.BufferRegion")
    ):
        zero = ObjectNode("ir.IntImm", {"span": None, "ty": _prim("int32"), "value": 0})
        yield f"nothing for {node.type}", ObjectNode("tirx.Evaluate", {"span": None, "value": zero})
        for inner, other in _places(node):
            if inner and other.type.startswith(_DIALECTS) and not _dtype(other):
                yield f"{other.type} for {node.type}", other
            elif inner and _dtype(other) and other.type not in ("ir.Var", "ir.IntImm", "ir.FloatImm"):
                yield (
                    f"{other.type} alone for {node.type}",
                    ObjectNode("tirx.Evaluate", {"span": None, "value": other}),
                )
    for name, value in node.fields.items():
        if isinstance(value, Pairs) and value.items:
            yield f"no {name} of {node.type}", _with(node, **{name: Pairs()})
        elif name in ("init", "else_case", "thread_binding") and value is not None:
            yield f"no {name} of {node.type}", _with(node, **{name: None})
        elif name in ("alloc_buffers", "match_buffers", "reads", "writes") and isinstance(value, tuple):
            for place in range(len(value)):
                yield (
                    f"no {name} {place} of {node.type}",
                    _with(node, **{name: (*value[:place], *value[place + 1 :])}),
                )
        elif name == "kind" and node.type == "tirx.For" and value:
            yield "a serial loop", _with(node, kind=0, thread_binding=None)
    if not kind or _is_buffer(node):
        return
    # Another index or bound may lie outside of a buffer; 0 and less never do.
    is_place = any(name in ("indices", "extent", "min", "region", "iter_values", "dom") for name in path)
    value = node.get("value")
    if node.type in ("ir.IntImm", "ir.FloatImm"):
        assert isinstance(value, int | float)
        # A part of an index may keep the whole inside its buffer.
        if is_place and not isinstance(path[-1], int) and path[-1] != "extent":
            return
        least = 1 if path[-1:] == ("extent",) or is_threads else 0
        for number in (0, 1, int(value) // 2):
            if least <= number < value:
                yield f"{number} for {value}", _with(node, value=type(value)(number))
        return
    for inner, other in _places(node):
        if inner and _dtype(other) == kind and not _is_buffer(other) and not is_place:
            yield f"{other.type} for {node.type}", other
    if "x" not in kind and "handle" not in kind:
        for number in (1,) if path[-1:] == ("extent",) or is_threads else (0,) if is_place else (0, 1):
            if path[-1:] != ("loop_var",) and path[-1:] != ("var",):
                real = "float" in kind
                fields_ = {"span": None, "ty": _prim(kind), "value": float(number) if real else number}
                yield (
                    f"{number} for {node.type}",
                    ObjectNode("ir.FloatImm" if real else "ir.IntImm", fields_),
                )


def _places(value: Any, path: Path = ()) -> Iterator[tuple[Path, ObjectNode]]:
    """Yield every node below a value with its path, types left out."""
    if isinstance(value, ObjectNode):
        yield path, value
        for name, inner in value.fields.items():
            if name not in ("ty", "span"):
                yield from _places(inner, (*path, name))
    elif isinstance(value, tuple):
        for place, inner in enumerate(value):
            yield from _places(inner, (*path, place))


def _put(value: Any, path: Path, new: Any) -> Any:
    """Replace what stands at a path of nodes, dataclasses and tuples."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return (*value[:step], _put(value[step], rest, new), *value[step + 1 :])
    if isinstance(value, ObjectNode):
        return _with(value, **{step: _put(value.fields[step], rest, new)})
    return replace(value, **{step: _put(getattr(value, step), rest, new)})


def _with(owner: ObjectNode, /, **changed: Any) -> ObjectNode:
    return ObjectNode(owner.type, {**owner.fields, **changed}, owner.raw)


def _prim(dtype: str) -> ObjectNode:
    from opsieve.gen.irs.tir import nodes

    return nodes.prim(dtype)


def _dtype(node: ObjectNode) -> str:
    kind = node.get("ty")
    return str(kind["dtype"]) if isinstance(kind, ObjectNode) and kind.type == "ir.PrimType" else ""


def _is_buffer(node: ObjectNode) -> bool:
    kind = node.get("ty")
    return isinstance(kind, ObjectNode) and kind.type == "tirx.BufferType"


# Relax modules are trees of frozen dataclasses, in which a variable is known by its name.


def _modules(program: TvmProgram, inputs: Inputs) -> Iterator[tuple[str, str, Inputs]]:
    """Yield modules that are smaller in one place, and what is fed to new parameters."""
    module = reading.from_json(program.data.decode())
    for what, made, fed in _smaller_modules(module, inputs):
        if _is_closed(made):
            yield what, writing.to_json(_without_unread(made)), fed
            yield f"{what}, the rest stays", writing.to_json(made), fed


def _smaller_modules(module: R.Module, inputs: Inputs) -> Iterator[tuple[str, R.Module, Inputs]]:
    main = module.main
    for name, _ in module.functions:
        if name != "main":
            yield (
                f"no {name}",
                replace(module, functions=tuple(f for f in module.functions if f[0] != name)),
                {},
            )
    for path, value in _parts(module):
        for what, new in _simpler_values(module, path, value):
            yield f"{what} at {path}", _put(module, path, new), {}
    place = next(at for at, (name, _) in enumerate(module.functions) if name == "main")
    for var in [*main.params, *(binding.var for binding in main.body.bindings())]:
        # A function as the result is a value that no test can compare.
        if not isinstance(var.type, T.RelaxTensorType | T.TupleType):
            continue
        ended = replace(main, body=replace(main.body, body=var), result=var.type)
        yield f"{var.name} returned", _put(module, ("functions", place, 1), ended), {}
    if isinstance(main.body.body, R.Tuple):
        for at in range(len(main.body.body.fields)):
            left = R.Tuple((*main.body.body.fields[:at], *main.body.body.fields[at + 1 :]))
            ended = replace(main, body=replace(main.body, body=left), result=left.type)
            yield f"no result {at}", _put(module, ("functions", place, 1), ended), {}
    for path, value in _parts(module):
        if isinstance(value, R.Bind | R.MatchCast) and path[1] == place and len(path) == 8:
            yield from _fed_for(module, place, path, value)
    for size in sorted({each for param in main.params for each in _sizes(param.type)}):
        for other in dict.fromkeys((1, size // 2)):
            if 0 < other < size:
                made = Retyped(lambda old, size=size, other=other: other if old == size else old).module(
                    module
                )  # type: ignore[misc]
                yield f"{other} for {size}", made, _fit(made, inputs)


def _fed_for(
    module: R.Module, place: int, path: Path, binding: R.Binding
) -> Iterator[tuple[str, R.Module, Inputs]]:
    """Yield the module with a parameter in the place of a binding of main."""
    kind = binding.var.type
    if isinstance(kind, T.RelaxTensorType) and T.is_static(kind) and kind.dtype:
        main = _put(module, path, None).functions[place][1]
        var = replace(binding.var, dataflow=False)
        main = replace(main, params=(*main.params, var), body=_renamed(_without_none(main.body), var))
        fed = np.ones([size for size in kind.shape or () if isinstance(size, int)], np.dtype(kind.dtype))
        yield f"{var.name} fed", _put(module, ("functions", place, 1), main), {var.name: fed}


def _simpler_values(module: R.Module, path: Path, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, R.BindingBlock):
        for at, binding in enumerate(value.bindings):
            name, kind = binding.var.name, binding.var.type
            for leaf in (*_in_scope(module, path, at), *_zeros(kind)):
                if leaf.type == kind:
                    yield (
                        f"{getattr(leaf, 'name', 'zeros')} for {name}",
                        _put(value, ("bindings", at, "value"), leaf),
                    )
            if isinstance(binding.value, R.If):
                for branch in (binding.value.then, binding.value.other):
                    inside = [each for block in branch.blocks for each in block.bindings]
                    last = R.Bind(binding.var, branch.body)
                    both = (*value.bindings[:at], *inside, last, *value.bindings[at + 1 :])
                    yield f"a branch for {name}", replace(value, bindings=both)
        if value.dataflow:
            yield "no dataflow block", replace(value, dataflow=False)
    elif isinstance(value, R.Scalar) and isinstance(value.value, int | float):
        for number in (0, 1, int(value.value) // 2):
            if 0 <= number < value.value:
                yield f"{number} for {value.value}", replace(value, value=type(value.value)(number))
    elif isinstance(value, R.Call):
        for at, (name, old) in enumerate(value.attrs.items if value.attrs else ()):
            for place, number in enumerate(old if isinstance(old, tuple) else (old,)):
                if isinstance(number, int | float) and number > 0:
                    new: Any = type(number)(0)
                    if isinstance(old, tuple):
                        new = (*old[:place], new, *old[place + 1 :])
                    yield f"0 for {name} of {value.op}", _put(value, ("attrs", "items", at, 1), new)
        for at, arg in enumerate(value.args):
            for other in value.args:
                if other != arg and other.type == arg.type:
                    yield f"argument {at} is another", _put(value, ("args", at), other)
    elif isinstance(value, R.Constant):
        array = to_numpy(value.array)
        if array is not None and array.any():
            yield "zeros for a constant", make_constant(np.zeros_like(array), value.array.dtype)


def _in_scope(module: R.Module, path: Path, at: int) -> list[R.Var]:
    """Return the variables bound before a binding of the block at a path."""
    found: list[R.Var] = []
    for end in range(2, len(path) + 1):
        owner, value = _get(module, path[: end - 1]), _get(module, path[:end])
        if isinstance(value, R.Function):
            found += value.params
        if isinstance(owner, tuple) and isinstance(value, R.BindingBlock | R.Bind | R.MatchCast):
            for each in owner[: int(path[end - 1])]:
                found += [
                    item.var for item in (each.bindings if isinstance(each, R.BindingBlock) else (each,))
                ]
    return [*found, *(item.var for item in _get(module, path).bindings[:at])]


def _get(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step] if isinstance(step, int) else getattr(value, step)
    return value


def _zeros(kind: Any) -> list[Any]:
    if isinstance(kind, T.RelaxTensorType) and T.is_static(kind) and kind.dtype and kind.shape is not None:
        return [make_constant(np.zeros([int(size) for size in kind.shape]), kind.dtype)]  # type: ignore[arg-type]
    return []


def _parts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every part of a module with its path, types left out."""
    if isinstance(value, tuple):
        for place, inner in enumerate(value):
            yield from _parts(inner, (*path, place))
    elif is_dataclass(value) and type(value).__module__ == R.__name__:
        yield path, value
        for each in fields(value):
            if each.name not in ("type", "result", "attrs", "type_args"):
                yield from _parts(getattr(value, each.name), (*path, each.name))


def _is_closed(module: R.Module) -> bool:
    """Return whether every variable that is read is bound somewhere."""
    bound = {value.var.name for _, value in _parts(module) if isinstance(value, R.Bind | R.MatchCast)}
    bound |= {p.name for _, value in _parts(module) if isinstance(value, R.Function) for p in value.params}
    names = {name for name, _ in module.functions}
    read = {value.name for _, value in _parts(module) if isinstance(value, R.Var)}
    called = {value.name for _, value in _parts(module) if isinstance(value, R.GlobalVar)}
    return read <= bound and called <= names


def _without_unread(module: R.Module) -> R.Module:
    """Drop bindings and parameters of main that nothing reads."""
    place = next(at for at, (name, _) in enumerate(module.functions) if name == "main")
    while True:
        read = {
            value.name
            for path, value in _parts(module)
            if isinstance(value, R.Var) and path[-1] != "var" and "params" not in path
        }
        gone = next(
            (
                path
                for path, value in _parts(module)
                if isinstance(value, R.Bind | R.MatchCast) and value.var.name not in read
            ),
            None,
        )
        if gone is None:
            main = module.main
            params = tuple(param for param in main.params if param.name in read)
            return _put(module, ("functions", place, 1), replace(main, params=params))  # type: ignore[no-any-return]
        seq = _get(module, gone[:-2])
        left = tuple(each for at, each in enumerate(seq.bindings) if at != gone[-1])
        module = _put(module, gone[:-1], left)
        if not left:
            blocks = _get(module, gone[:-3])
            module = _put(module, gone[:-3], tuple(block for block in blocks if block.bindings))


def _without_none(seq: R.Seq) -> R.Seq:
    blocks = [replace(b, bindings=tuple(each for each in b.bindings if each is not None)) for b in seq.blocks]
    return replace(seq, blocks=tuple(block for block in blocks if block.bindings))


def _renamed(value: Any, var: R.Var) -> Any:
    """Read another variable of the same name."""
    if isinstance(value, R.Var):
        return var if value.name == var.name else value
    if isinstance(value, tuple):
        return tuple(_renamed(item, var) for item in value)
    if is_dataclass(value) and type(value).__module__ == R.__name__ and not isinstance(value, type):
        names = [
            each.name for each in fields(value) if each.name not in ("type", "result", "attrs", "type_args")
        ]
        return replace(value, **{name: _renamed(getattr(value, name), var) for name in names})
    return value


def _sizes(kind: Any) -> list[int]:
    return (
        [size for size in kind.shape or () if isinstance(size, int)]
        if isinstance(kind, T.RelaxTensorType)
        else []
    )


def _fit(module: R.Module, inputs: Mapping[str, Any]) -> Inputs:
    """Cut the values that are fed to the parameters' sizes."""
    fed = dict(inputs)
    for param in module.main.params:
        kind = param.type
        if isinstance(kind, T.RelaxTensorType) and T.is_static(kind) and param.name in fed:
            fed[param.name] = np.resize(np.asarray(fed[param.name]), _sizes(kind))
    return fed
