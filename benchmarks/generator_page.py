"""All figures of docs/benchmarks/generator.md by one command, one measurement after the other: tables into
one file, plots into a folder.

    python benchmarks/generator_page.py OUT.md [--images DIR] [--seed 820000] [--small] [--nnsmith PYTHON]
    [--isra CHECKOUT] [--before CHECKOUT] [--only WORD]

OUT.md is written anew and grows with each step: its command, the date, the load of the machine before and
after, the CPU seconds of it and of all it started, and what it printed. `--nnsmith` and `--isra` are those of
benchmarks/structure.py; without them the steps beside peers are left out. `--before` is the checkout of an
earlier opsieve. `--only` keeps the steps whose title has the word; `--small` is a try at a twentieth of the
size. A step that fails is noted, and the next one runs.
"""

import argparse
import datetime
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = ("opsieve", "onnx", "onnxruntime", "numpy", "z3-solver", "torch")
MIXED = "isra,hirfuzz,pattern,chains,function-rewrite,mutate,nnsmith,mix"


@dataclass(frozen=True, slots=True)
class Step:
    """A section of the page: its title, and the script of this folder with its arguments."""

    title: str
    command: tuple[str, ...]


def steps(given: argparse.Namespace) -> list[Step]:
    """What is measured, the quick and comparative first."""
    models = 10 if given.small else 200
    rounds, images = ("1" if given.small else "3"), str(given.images)
    sizes = "10,30" if given.small else "10,30,100,300,1000"
    seeded = ("--models", str(models), "--seed", str(given.seed))
    found = [
        Step(
            "Speed",
            ("speed.py", "--nodes", sizes, "--rounds", rounds, "--image", f"{images}/generator-speed.svg"),
        )
    ]
    if given.nnsmith:
        peer = ("--nnsmith", given.nnsmith, "--sizes", "10" if given.small else "10,20")
        found.append(
            Step(
                "Structure beside NNSmith",
                ("structure.py", "mix", "nnsmith", *seeded, "--rounds", rounds, *peer),
            )
        )
    if given.isra:
        peer = ("--isra", str(given.isra), "--sizes", "10" if given.small else "10,20")
        found.append(
            Step(
                "Structure beside Isra",
                ("structure.py", "mix", "mix:isra", *seeded, "--rounds", rounds, *peer),
            )
        )
    before = ("--before", str(given.before)) if given.before else ()
    planted = (
        *("--sets", str(models // 10), "--seconds", "0.5" if given.small else "6"),
        *("--seed", str(given.seed)),
    )
    validity = (
        "generator.py",
        "--seed",
        str(given.seed),
        "--strategies",
        MIXED,
        "--models",
        str(24 * models),
    )
    found += [
        Step("Planted faults, mix", ("planted_chains.py", "mix", *planted, *before)),
        Step("Planted faults, chains", ("planted_chains.py", "chains", *planted)),
        Step("Validity", validity),
    ]
    return [step for step in found if given.only.lower() in step.title.lower()]


def cpu_seconds() -> float:
    """What finished child processes have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(step: Step) -> str:
    """The section of a step."""
    begun, load, used = time.monotonic(), os.getloadavg()[0], cpu_seconds()
    command = [sys.executable, str(HERE / step.command[0]), *step.command[1:]]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    failed = f"\nFAILED with {ran.returncode}: {ran.stderr.strip()[-600:]}" if ran.returncode else ""
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"## {step.title}\n\n`python benchmarks/{' '.join(step.command)}`, {when}, load {load:.1f} before and"
        f" {os.getloadavg()[0]:.1f} after, {cpu_seconds() - used:.0f} s of CPU time,"
        f" {time.monotonic() - begun:.0f} s by the clock.\n\n```\n{ran.stdout.rstrip()}{failed}\n```\n\n"
    )


def versions(packages: Sequence[str]) -> str:
    """What is installed, and the machine."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return (
        f"{', '.join(found)}; Python {platform.python_version()}, {platform.machine()} {platform.system()},"
        f" {os.cpu_count()} cores."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=Path, default=HERE.parent / "docs" / "images")
    parser.add_argument("--seed", type=int, default=820_000)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--nnsmith", metavar="PYTHON")
    parser.add_argument("--isra", type=Path, metavar="CHECKOUT")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    given.images.mkdir(parents=True, exist_ok=True)
    given.out.write_text(f"# Figures of the generator\n\n{versions(PACKAGES)}\n\n", encoding="utf-8")
    for step in steps(given):
        section = run(step)
        print(section, flush=True)
        with given.out.open("a", encoding="utf-8") as page:
            page.write(section)


if __name__ == "__main__":
    main()
