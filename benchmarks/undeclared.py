"""Write docs/reference/operators.md: the operators of onnx that opsieve does not generate, by reason.

python benchmarks/undeclared.py [--write]
"""

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.defs

from opsieve.gen.declarations.catalogue import known_operators, operators

_MAP = "its input or output is a map, which no generated value is"
_TRADITIONAL = "its operator set is no part of what compilers for inference take"
# The reason of each other domain of onnx, and of the operators in it that have their own.
_ELSEWHERE: dict[str, tuple[str, dict[str, str]]] = {
    "ai.onnx.ml": (_TRADITIONAL, {"CastMap": _MAP, "DictVectorizer": _MAP, "ZipMap": _MAP}),
    "ai.onnx.preview": ("a preview, which may change: onnxruntime has no kernel of it", {}),
    "ai.onnx.preview.training": (
        "a step of training, a preview: its operator set is no part of what compilers for inference take",
        {"Gradient": "a preview: it differentiates the graph around it, and onnxruntime has no kernel of it"},
    ),
}
PAGE = Path(__file__).parent.parent / "docs/reference/operators.md"


def page() -> str:
    """The page as Markdown."""
    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    declared = [schema for schema in schemas if schema.name in operators()]
    lines = [
        "# Operators that are not generated",
        "",
        (
            f"{len(declared)} of the {len(schemas)} operators in ONNX {onnx.__version__}'s own domain have a"
            " declaration (`gen/operators/`). The others, by reason"
        ),
        "(`python benchmarks/undeclared.py --write` writes this page):",
        "",
        *_by_reason(_rows(schemas)),
        "",
        "## Other domains of onnx",
        "",
        *_by_reason(_elsewhere()),
    ]
    return "\n".join(lines) + "\n"


def _by_reason(rows: Iterator[tuple[str, str]]) -> list[str]:
    """List each reason with its operators."""
    reasons: dict[str, list[str]] = {}
    for operator, reason in sorted(rows):
        reasons.setdefault(reason, []).append(f"`{operator}`")
    return [
        line
        for reason, operators in reasons.items()
        for line in textwrap.wrap(
            f"- {', '.join(operators)}: {reason}", 120, subsequent_indent="  ", break_on_hyphens=False
        )
    ]


def _rows(schemas: list[onnx.defs.OpSchema]) -> Iterator[tuple[str, str]]:
    for schema in schemas:
        if schema.name not in operators():
            found = known_operators().get(schema.name)
            yield schema.name, found.excluded if found and found.excluded else "not declared yet"


def _elsewhere() -> Iterator[tuple[str, str]]:
    for schema in onnx.defs.get_all_schemas():
        if schema.domain and f"{schema.domain}::{schema.name}" not in operators():
            usual, special = _ELSEWHERE.get(schema.domain, ("not declared yet", {}))
            found = known_operators().get(f"{schema.domain}::{schema.name}")
            why = (
                "withdrawn"
                if schema.deprecated
                else special.get(schema.name) or (found and found.excluded) or usual
            )
            yield f"{schema.domain}::{schema.name}", why


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
