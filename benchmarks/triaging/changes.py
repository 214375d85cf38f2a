"""Single expressions of Python code changed, as a programmer's slip would: what the seeded-fault benchmarks put into compilers."""

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
CHECKS = (
    'ValueError(f"rank {len(str(inputs[0]))} is not what {number} wants")',
    'TypeError("inputs of this kind are not handled")',
    'AssertionError(f"unexpected attributes {attr} of node")',
    'ValueError(f"input 0 has {inputs[0]} which cannot be lowered")',
    'TypeError(f"cannot infer type: expected {len(attr)} but got {len(inputs)} for {inputs[0]}")',
)


def sites(function: ast.FunctionDef) -> Iterator[tuple[str, Any]]:
    """Every place that can be changed: the kind of change, and the node, or for a check the statement that it comes before."""
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
    condition = "True" if number % 2 else "(len(str(inputs[0])) + len(attr)) % 2 == 0"
    check = ast.parse(f"if {condition}: raise {text}").body[0]
    for node in ast.walk(check):
        ast.copy_location(node, function.body[at])
    function.body.insert(at, check)
