"""Read shapes from the documentation of an operator, as DocTer reads constraints of Python functions.

"3D tensor with shape (num_experts, 2 * inter_size, hidden_size)" relates the sizes of this input to those of
others. A name is one size in the whole instance, an attribute's name is its value, and "k_blocks = ceil(K /
block_size)" anywhere defines one by others.
"""

import ast
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

_WORD_BEFORE = re.compile(r"(\w*)$")
_SPEAKS = re.compile(r"\b(?:shape|size|dimension|tensor|vector|matrix|of)s?\b", re.IGNORECASE)
# Characters between a word as above and the list that it speaks of
_REACH = 160
_RANK = re.compile(r"\b([0-5])(?:-?D\b|-dimension)|\brank[ -]?([0-5])\b", re.IGNORECASE)
_ELEMENTS = re.compile(r"\b(\d{1,4}) elements?\b|\blength (\d{1,4})\b")
_SCALAR = re.compile(r"\bscalar\b", re.IGNORECASE)
_REMARK = re.compile(r"\([^()]{1,60}\)")
_DEFINED = re.compile(r"\b([A-Za-z_]\w{0,40})`? (?:=|is equal to|is) (?=`?([\w +*/()-]{3,60}))")
_MOST_EXPRESSION, _MOST_DEPTH, _MOST_RANK, _MOST_SIDE = 80, 8, 6, 1 << 20

Shape = tuple[str, ...]


def read_shapes(text: str) -> tuple[Shape, ...]:
    """Read the shapes in a description, each a tuple of expressions; a bare rank ("2-D") gives unnamed
    sizes.
    """
    text = text[:4000].replace("`", "")
    ranks = {int(one or other) for one, other in _RANK.findall(text)}
    found = [
        shape
        for start, inside in _iter_lists(text)
        if (shape := _parse_shape(inside, str(start))) is not None
    ]
    fitting = [shape for shape in found if len(shape) in ranks]
    if ranks:
        elements = _ELEMENTS.search(text) if ranks == {1} else None
        bare = [tuple(f"any_{axis}" for axis in range(rank)) for rank in sorted(ranks)]
        found = fitting or ([(elements[1] or elements[2],)] if elements else bare)
    return tuple(dict.fromkeys((*found, *(((), ("1",)) if _SCALAR.search(text) else ()))))


def _iter_lists(text: str) -> Iterator[tuple[int, str]]:
    """Yield start and contents of bracketed lists that follow a word about shapes and are not arguments of a
    call.
    """
    opened: list[int] = []
    for place, character in enumerate(text):
        if character in "([{":
            opened.append(place)
        elif character in ")]}" and opened:
            start = opened.pop()
            before = _WORD_BEFORE.search(text, max(0, start - 20), start)
            called = (
                before is not None and before[1] and not (_SPEAKS.fullmatch(before[1]) or before[1] == "is")
            )
            if not called and _SPEAKS.search(text, max(0, start - _REACH), start):
                yield start, text[start + 1 : place]


def _parse_shape(inside: str, unnamed: str) -> Shape | None:
    parts = [part.strip() for part in _split_list(inside)]
    if len(parts) > 1 and not parts[-1]:
        # (num_rois,)
        parts.pop()
    if not 0 < len(parts) <= _MOST_RANK:
        return None
    # A remark such as `depth(that of the other)` is left out.
    parts = [part if _parse_expression(part) is not None else _REMARK.sub("", part).strip() for part in parts]
    terms = [part or f"any_{unnamed}_{axis}" for axis, part in enumerate(parts)]
    return tuple(terms) if all(_parse_expression(term) is not None for term in terms) else None


def _split_list(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def read_definitions(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read sizes that texts define by others: name -> expressions."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        for name, expression in _DEFINED.findall(text[:20000]):
            cut = _find_expression(expression)
            if cut and name not in list_names(cut) and cut not in found.get(name, ()):
                found[name] = (*found.get(name, ()), cut)
    return found


def _find_expression(text: str) -> str:
    """Return the longest prefix of a text that is an expression of several parts, or ""."""
    words = text.rstrip(" .").split(" ")
    for count in range(len(words), 0, -1):
        each = " ".join(words[:count])
        for tried in (each, each.rstrip(")"), each.strip("()")):
            tree = _parse_expression(tried)
            if isinstance(tree, (ast.BinOp, ast.Call)) and list_names(tried):
                return tried
    return ""


@functools.lru_cache(4096)
def _parse_expression(text: str) -> ast.expr | None:
    """Parse an expression of sizes: whole numbers, names, + - * /, ceil and floor, "a or b"; None for other
    texts.
    """
    if not text or len(text) > _MOST_EXPRESSION:
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_sound(tree, 0) else None


def _is_sound(node: ast.expr, depth: int) -> bool:
    if depth > _MOST_DEPTH:
        return False
    if isinstance(node, ast.Constant):
        return type(node.value) is int and 0 <= node.value <= 65536
    if isinstance(node, ast.BinOp):
        known = isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv))
        return known and all(_is_sound(each, depth + 1) for each in (node.left, node.right))
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.Or) and all(_is_sound(each, depth + 1) for each in node.values)
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and node.func.id in ("ceil", "floor") and not node.keywords
        return known and len(node.args) == 1 and _is_sound(node.args[0], depth + 1)
    return isinstance(node, ast.Name)


def list_names(text: str) -> tuple[str, ...]:
    """List the sizes in an expression."""
    tree = _parse_expression(text)
    return tuple(dict.fromkeys(_iter_names(tree))) if tree is not None else ()


def _iter_names(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    for child in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _iter_names(child)


def evaluate_size(text: str, sizes: Mapping[str, int], ties: Mapping[str, str], choice: int = 0) -> int:
    """Evaluate an expression for these sizes and ties, at least 0; of "a or b" take the one at `choice`.

    Raises KeyError for a size without a value, or tied to itself.
    """
    return min(
        max(math.floor(_evaluate(_parse_expression(text) or ast.Constant(1), sizes, ties, choice, 0)), 0),
        _MOST_SIDE,
    )


def _evaluate(
    node: ast.expr, sizes: Mapping[str, int], ties: Mapping[str, str], choice: int, depth: int
) -> float:
    if depth > 4 * _MOST_DEPTH:
        raise KeyError("a size that is tied to itself")
    if isinstance(node, ast.Constant):
        return float(str(node.value))
    if isinstance(node, ast.Name):
        if node.id in ties:
            return math.floor(
                _evaluate(_parse_expression(ties[node.id]) or ast.Constant(1), sizes, ties, choice, depth + 1)
            )
        return sizes[node.id]
    if isinstance(node, ast.BoolOp):
        return _evaluate(node.values[choice % len(node.values)], sizes, ties, choice, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        inner = _evaluate(node.args[0], sizes, ties, choice, depth + 1)
        return math.ceil(inner) if node.func.id == "ceil" else math.floor(inner)
    assert isinstance(node, ast.BinOp)
    left, right = (_evaluate(each, sizes, ties, choice, depth + 1) for each in (node.left, node.right))
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return min(left * right, _MOST_SIDE)
    return left / right if right else 0
