"""Single expressions of Python code changed, as a programmer's slip would: what the seeded-fault benchmarks
put into compilers.
"""

import ast
from collections.abc import Iterator
from typing import Any

KINDS = ("negate", "turn", "raise", "swap", "default", "misspell", "attribute", "check")
TURNED = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
MISSPELT = {"shape": "shapes", "dtype": "dtypes", "ty": "typ", "struct_info": "struct"}
CHECKS = (  # FIRST and LAST are what the function gets, MANY and FEW sizes of it
    'ValueError(f"rank {len(str(FIRST))} is not what {number} wants")',
    'TypeError("inputs of this kind are not handled")',
    'AssertionError(f"unexpected attributes {LAST} of node")',
    'ValueError(f"input 0 has {FIRST} which cannot be lowered")',
    'TypeError(f"cannot infer type: expected {FEW} but got {MANY} for {FIRST}")',
)


def sites(function: ast.FunctionDef) -> Iterator[tuple[str, Any]]:
    """Every place that can be changed: the kind of change, and the node, or for a check the statement that it
    comes before.
    """
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            yield "negate", node
        if isinstance(node, ast.Compare):
            yield "turn", node
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield "raise", node
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield "misspell", node
        if isinstance(node, ast.Call) and len(node.args) >= 2:
            yield "swap", node
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                yield "default", node
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in MISSPELT:
            yield "attribute", node
    for at in range(1, len(function.body)):
        yield "check", at


def change(function: ast.FunctionDef, kind: str, node: Any, number: int) -> None:
    if kind == "negate":
        node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
    elif kind == "turn":
        node.ops[0] = TURNED[type(node.ops[0])]()
    elif kind == "raise":
        node.value += 1
    elif kind == "misspell":
        node.value += "_"
    elif kind == "swap":
        node.args[:2] = node.args[1::-1]
    elif kind == "default":
        node.args[1] = ast.copy_location(ast.Constant(None), node.args[1])
    elif kind == "attribute":
        node.attr = MISSPELT[node.attr]
    else:
        insert_check(function, node, number)


def insert_check(function: ast.FunctionDef, at: int, number: int) -> None:
    text = CHECKS[number % len(CHECKS)].replace("{number}", function.name)
    condition = "True" if number % 2 else "(len(str(FIRST)) + FEW) % 2 == 0"
    check = ast.parse(_spoken(f"if {condition}: raise {text}", function)).body[0]
    for node in ast.walk(check):
        ast.copy_location(node, function.body[at])
    function.body.insert(at, check)


def _spoken(check: str, function: ast.FunctionDef) -> str:
    """A check in terms of the function's parameters: a converter's `inputs` and `attr` where it has them,
    else the first and the last.
    """
    every = function.args
    names = [each.arg for each in (*every.posonlyargs, *every.args, *every.kwonlyargs)]
    names = [name for name in names if name not in ("self", "cls")] or names or ["None"]
    first, many = ("inputs[0]", "len(inputs)") if "inputs" in names else (names[0], f"len(str({names[0]}))")
    last, few = ("attr", "len(attr)") if "attr" in names else (names[-1], f"len(str({names[-1]}))")
    for word, meant in (("FIRST", first), ("LAST", last), ("MANY", many), ("FEW", few)):
        check = check.replace(word, meant)
    return check
