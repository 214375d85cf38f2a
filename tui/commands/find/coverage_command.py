"""`opsieve coverage`: the native code reached by a campaign, or a comparison of two."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsieve.gen.model.printable import count_noun
from opsieve.tui.commands import options

if TYPE_CHECKING:
    from opsieve.triage.campaign.coverage_record import CoverageRecord, LibraryComparison, OnlyOne

# Directories and functions of each side
_SHOWN = 12


@click.command()
@click.argument("first", metavar="A", type=options.PATH)
@click.argument("second", metavar="[B]", type=options.PATH, required=False)
@options.JSON
def command(first: Path, second: Path | None, as_json: bool) -> int:
    """Show the coverage recorded by opsieve fuzz --coverage, or compare two campaigns.

    A and B are stores (their latest campaign with coverage) or files STORE/coverage/ID.json. The comparison
    covers libraries of the same build: how much each campaign reached, how much only one did, and in which
    source directories.
    """
    from opsieve.triage.campaign.coverage_record import compare_coverage, load_record

    one = load_record(first)
    if second is None:
        click.echo(json.dumps(_list_facts(one)) if as_json else _write_text(one))
        return 0
    # Only libraries of one build-id have the same addresses.
    found = compare_coverage(one, load_record(second))
    if as_json:
        click.echo(
            json.dumps(
                {
                    "kind": one.kind,
                    "libraries": [
                        {
                            "library": item.library,
                            "build_id": item.build_id,
                            "probes": item.probes,
                            "a": item.first,
                            "b": item.second,
                            "both": item.both,
                            "only_a": _list_only(item.only_first),
                            "only_b": _list_only(item.only_second),
                            "source_known": round(item.source_known, 3),
                        }
                        for item in found
                    ],
                }
            )
        )
    else:
        click.echo("\n\n".join(_describe_comparison(item, one.kind) for item in found))
    return 0


def _list_facts(record: "CoverageRecord") -> dict[str, Any]:
    compilers = {
        name: {
            "reached": of.growth[-1][2] if of.growth else 0,
            "tests": of.growth[-1][1] if of.growth else 0,
            "seconds": of.growth[-1][0] if of.growth else 0.0,
            "libraries": [
                {
                    "name": Path(item.path).name,
                    "build_id": item.build_id,
                    "reached": len(item.addresses),
                    "probes": item.probes,
                }
                for item in of.libraries
            ],
        }
        for name, of in record.compilers.items()
    }
    return {"campaign": record.campaign, "kind": record.kind, "compilers": compilers}


def _write_text(record: "CoverageRecord") -> str:
    lines = [f"campaign {record.campaign}, {record.kind}"]
    for name, of in record.compilers.items():
        if of.growth:
            seconds, tests, count = of.growth[-1]
            lines.append(f"  {name}: {count:,} reached by {count_noun(tests, 'test')} in {seconds:.0f} s")
        lines += [
            f"    {Path(item.path).name}: {len(item.addresses):,} of {item.probes:,}"
            for item in of.libraries
            if item.probes
        ]
    return "\n".join(lines)


def _list_only(part: "OnlyOne") -> dict[str, Any]:
    return {
        "count": part.count,
        # Directories are few, so all of them fit.
        "directories": dict(part.directories),
        # A large difference would be megabytes of JSON.
        "files": dict(part.files[:200]),
        "functions": list(part.named[:1000]),
    }


def _describe_comparison(item: "LibraryComparison", kind: str) -> str:
    lines = [
        f"{item.library} ({item.build_id[:12]}), {item.probes:,} {kind}",
        (
            f"  A {item.first:,}, B {item.second:,}, both {item.both:,}, only A {item.only_first.count:,},"
            f" only B {item.only_second.count:,}"
        ),
    ]
    for name, part in (("A", item.only_first), ("B", item.only_second)):
        if not part.count:
            continue
        lines.append(f"  only {name}, by source directory:")
        lines += [f"    {count:6,}  {directory}" for directory, count in part.directories[:_SHOWN]]
        if len(part.directories) > _SHOWN:
            lines.append(f"    and {len(part.directories) - _SHOWN} more")
        if part.named:
            more = f" and {len(part.named) - _SHOWN} more" if len(part.named) > _SHOWN else ""
            lines.append(f"  only {name}, exported: {', '.join(part.named[:_SHOWN])}{more}")
    lines.append(f"  the source file is known of {item.source_known:.0%} of what only one reached")
    return "\n".join(lines)
