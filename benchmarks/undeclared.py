"""Which operators of ONNX's own domain no program is made of, each with its reason: the table of docs/reference/operators.md.

python benchmarks/undeclared.py [--write]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.defs

from opsieve.gen.spec.catalogue import known, operators

PAGE = Path(__file__).parent.parent / "docs/reference/operators.md"


def page() -> str:
    """The page as Markdown."""
    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    declared = [schema for schema in schemas if schema.name in operators()]
    lines = [
        "# Operators that programs are not made of",
        "",
        f"Of the {len(schemas)} operators of ONNX {onnx.__version__} in its own domain {len(declared)} are declared (`gen/operators/`). The others, with the reason",
        "(`python benchmarks/undeclared.py --write` makes this page):",
        "",
        "| operator | reason |",
        "|---|---|",
        *sorted(_rows(schemas)),
    ]
    return "\n".join(lines) + "\n"


def _rows(schemas: list[onnx.defs.OpSchema]) -> Iterator[str]:
    for schema in schemas:
        if schema.name not in operators():
            found = known().get(schema.name)
            why = found.excluded if found is not None and found.excluded else "not declared yet"
            yield f"| {schema.name} | {why} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
