"""Check what must not change: bytes from equal seeds, verdicts, reductions, fingerprints, JSON keys, exit
codes.

    python benchmarks/invariants.py [--quick] [--only ROW...]   compare with benchmarks/invariants.json
    python benchmarks/invariants.py --update [--only ROW...]    write the table
    python benchmarks/invariants.py --list                      print the names of the rows

`--only` takes beginnings of names, such as `bytes/`, `reduce/tvm` or `logs`. `--quick` checks the rows that
take two minutes of CPU together. A row that was computed from the same sources is not computed again, so an
interrupted run goes on where it was (`--fresh` forgets). `--repository FOLDER` computes the rows of another
checkout, with its own .venv. Exit code 1 if a row differs; a row that cannot be computed here (a compiler is
not installed, `../shared` is missing) is named and does not count as a difference.

Almost every row runs the commands, so the table survives a change of the code behind them.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from invariant_facts import commands_by_group, digest_of

HERE = Path(__file__).resolve().parent
TABLE = HERE / "invariants.json"
PRODUCT = ("src", "gen", "backends", "triage", "reducer", "bisect", "tui")
LIBRARIES = (
    "numpy", "onnx", "onnxruntime", "apache-tvm", "z3-solver", "onnxoptimizer", "onnxsim", "onnxscript",
    "onnxslim", "onnx-ir",
)  # fmt: skip
ONNX_STRATEGIES = (
    "isra", "nnsmith", "disruptive", "mix", "declarative", "randoop", "pad-slice", "hirfuzz", "pattern",
    "chains", "mutate", "documented", "function-rewrite",
)  # fmt: skip
TVM_STRATEGIES = ["relax", "relax-passes", "relax-mutate", "tir"]
# Optimisers and compilers that the development environment installs.
INSTALLED = ["onnxruntime", "tvm", "onnxoptimizer", "onnxsim", "onnxscript", "onnxslim"]


class NotHere(Exception):
    """A row cannot be computed on this machine."""


@dataclass(frozen=True)
class Checkout:
    """A repository with its virtual environment."""

    root: Path
    python: str

    def run(self, *words: str, cwd: Path, minutes: float = 30) -> subprocess.CompletedProcess[str]:
        """Run Python with words, in a scratch folder and with answers of compilers kept there."""
        environment = {
            **os.environ,
            "OPSIEVE_PROBES": str(cwd / "probes"),
            "COLUMNS": "100",
            "PYTHONPATH": str(self.root / "tests" / "support"),
        }
        return subprocess.run(
            [self.python, "-W", "ignore", *words],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * minutes,
        )

    def opsieve(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "opsieve", *words, cwd=cwd)

    def facts(self, *words: str, cwd: Path) -> Any:
        """A row of invariant_facts.py, in a process that imports this checkout."""
        done = self.run(str(HERE / "invariant_facts.py"), str(self.root), *words, cwd=cwd)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return json.loads(done.stdout)

    @property
    def shared(self) -> Path:
        """The shared cases, beside the checkout."""
        folder = self.root.parent / "shared" / "cases"
        if not folder.is_dir():
            raise NotHere(f"{folder} is missing")
        return folder


@dataclass(frozen=True)
class Row:
    """A row of the table: its name and how it is computed in a scratch folder."""

    name: str
    compute: Callable[[Checkout, Path], Any]
    quick: bool = field(default=False, kw_only=True)


def digest_of_cases(folder: Path) -> str:
    """Digest of the programs and their inputs, without case.json, which names versions."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "case.json"):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def generate(*options: str) -> Callable[[Checkout, Path], Any]:
    """Rows of digests: small and larger programs of one strategy."""

    def compute(checkout: Checkout, scratch: Path) -> Any:
        value = {}
        few = "nnsmith" in options
        for name, more in (
            ("small", ["-n", "4" if few else "16", "--nodes", "4-9"]),
            ("large", ["-n", "2" if few else "6", "--nodes", "15-30", "--seed", "300", "--dynamic", "0.3"]),
        ):
            done = checkout.opsieve("gen", *options, *more, "-o", name, cwd=scratch)
            if "no strategy" in done.stderr or "unknown strategy" in done.stderr:
                raise NotHere(done.stderr.strip()[:200])
            value[name] = digest_of_cases(scratch / name) if not done.returncode else done.stderr[-300:]
        return value

    return compute


def count_valid(strategy: str) -> Callable[[Checkout, Path], Any]:
    """How many programs of a strategy TVM accepts, and what TVM makes of some of them."""

    def compute(checkout: Checkout, scratch: Path) -> Any:
        done = checkout.opsieve(
            *f"gen --strategy {strategy} -n 80 --nodes 4-9 --check --json -o made".split(), cwd=scratch
        )
        answer = json.loads(done.stdout)
        names = [f"made/{strategy}-{number}" for number in range(24)]
        ran = checkout.opsieve("run", *names, "-t", "tvm", "--json", cwd=scratch)
        return {
            "programs": answer["models"],
            "valid": answer["valid"],
            "of 24 run": count_verdicts(json.loads(ran.stdout))["tvm"],
        }

    return compute


def count_verdicts(answer: dict[str, Any]) -> dict[str, dict[str, int]]:
    """How often each verdict, with the kind of failure, was given on each target."""
    counts: dict[str, Counter[str]] = {}
    for result in answer["results"]:
        word = " ".join(filter(None, (result["verdict"], result["kind"])))
        counts.setdefault(result["target"].partition("=")[0], Counter())[word] += 1
    return {target: dict(sorted(count.items())) for target, count in sorted(counts.items())}


def judge_shared(folder: str, pattern: str, targets: list[str]) -> Callable[[Checkout, Path], Any]:
    """Verdict counts over shared cases on what is installed."""

    def compute(checkout: Checkout, scratch: Path) -> Any:
        models = sorted(str(path) for path in (checkout.shared / folder).glob(pattern))
        words = [word for target in targets for word in ("-t", target)]
        done = checkout.opsieve("run", *models, *words, "--offline", "--json", cwd=scratch)
        return {"exit": done.returncode, **count_verdicts(json.loads(done.stdout))}

    return compute


def read_bugs(folder: Path) -> dict[str, Any]:
    """Read the collection of bugs of a checkout, which need not be this one."""
    cases: dict[str, Any] = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))["cases"]
    return cases


def reduce_sample(folder: Path) -> Callable[[Checkout, Path], Any]:
    """Size and certificate of the reduction of a sample."""

    def compute(checkout: Checkout, scratch: Path) -> Any:
        target = target_here(checkout, read_bugs(folder.parent)[folder.name]["bug"]["fails"])
        done = checkout.opsieve(
            *("reduce", str(folder), "-t", target, "--offline", "-j1", "-o", "out", "--json"), cwd=scratch
        )
        if done.returncode == 2 and "install" in done.stderr:
            raise NotHere(f"{target} is not installed")
        if done.returncode:
            return {"exit": done.returncode}
        answer = json.loads(done.stdout)
        census = {
            kind: f"{each['simplest']} simplest, {each['tried']} tried of {each['parts']}"
            for kind, each in answer["census"].items()
        }
        keys = ("kind", "fingerprint", "nodes_after", "inner_nodes_after", "bytes_after", "same", "minimal")
        return {**{key: answer[key] for key in keys}, "level": answer["level"], "census": census}

    return compute


_versions: dict[Path, dict[str, str]] = {}


def target_here(checkout: Checkout, text: str) -> str:
    """The target without its release where that is the installed one."""
    if checkout.root not in _versions:
        doctor = json.loads(checkout.opsieve("doctor", "--json", cwd=checkout.root).stdout)
        _versions[checkout.root] = {each["name"]: each["version"] for each in doctor["backends"]}
    name, _, rest = text.partition("==")
    release, colon, options = rest.partition(":")
    return name + colon + options if _versions[checkout.root].get(name) == release else text


def cluster_logs(checkout: Checkout, scratch: Path) -> Any:
    """Clusters of the shared records of failures."""
    done = checkout.opsieve(
        "triage", "--logs", str(checkout.shared / "logs" / "dl_failures.jsonl.gz"), "--json", cwd=scratch
    )
    rows = [[each["index"], each["cluster"], each["kind"]] for each in json.loads(done.stdout)["assignments"]]
    return {
        "records": len(rows),
        "clusters": len({cluster for _, cluster, _ in rows}),
        "digest": digest_of(rows),
    }


def run_drill(name: str) -> Callable[[Checkout, Path], Any]:
    """Whether the commands withstand hostile files of a class."""

    def compute(checkout: Checkout, scratch: Path) -> Any:
        drill = checkout.root / "tests" / "support" / "hostile_drill.py"
        done = checkout.run(str(drill), *name.split(","), "--every", "16", cwd=scratch)
        return {"exit": done.returncode, "faults": done.stdout[-500:] if done.returncode else 0}

    return compute


def ask(*words: str) -> Callable[[Checkout, Path], Any]:
    """A row that invariant_facts.py computes."""
    return lambda checkout, scratch: checkout.facts(*words, cwd=scratch)


def rows_of(checkout: Checkout) -> list[Row]:
    """All rows, the quick ones first."""
    samples = [checkout.root / "samples" / name for name in read_bugs(checkout.root / "samples")]
    # One reduction of each IR is quick.
    quick = {
        "resnet-pad-maxpool-wrong-value",
        "pad-conv-weight-load-error",
        "tvm-cast-bool-error",
        "tvm-cse-block-error",
    }
    rows = [
        Row("logs/corpus", ask("logs"), quick=True),
        Row("logs/shared", cluster_logs, quick=True),
        *(Row(f"bytes/{name}", generate("--strategy", name), quick=True) for name in ONNX_STRATEGIES),
        Row("bytes/mix, special values", generate("--values", "special"), quick=True),
        Row("bytes/mix, all domains", generate("--ops", "*")),
        *(Row(f"tvm-bytes/{name}", generate("--strategy", name), quick=True) for name in TVM_STRATEGIES),
        *(
            Row(f"commands/{name}", ask("commands", name), quick=name != "set-up")
            for name in commands_by_group()
        ),
        Row("drills/sandbox", ask("sandbox"), quick=True),
        *(
            Row(f"reduce/{folder.name}", reduce_sample(folder), quick=folder.name in quick)
            for folder in samples
        ),
        *(Row(f"valid/{name}", count_valid(name)) for name in TVM_STRATEGIES),
        Row("verdicts/truth", ask("truth")),
        Row("verdicts/bugs", judge_shared("bugs", "*", INSTALLED)),
        Row("verdicts/releases", judge_shared("releases", "o*", ["onnxruntime", "onnxoptimizer"])),
        Row("verdicts/reduce", judge_shared("reduce", "*.onnx", ["onnxruntime"])),
        Row("verdicts/verdicts", judge_shared("verdicts", "*o*", ["onnxruntime", "reference"])),
        Row("drills/stores", run_drill("index schemas")),
    ]
    return sorted(rows, key=lambda row: not row.quick)


def digest_of_sources(root: Path) -> str:
    """Digest of all that a row is computed from: the product, the samples and the tests' data."""
    digest = hashlib.sha256()
    for folder in (*PRODUCT, "samples", "tests/support", "tests/corpus", "benchmarks/research"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and "results" not in path.parts:
                digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    digest.update((root / "pyproject.toml").read_bytes())
    for name in ("invariants.py", "invariant_facts.py"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Installed versions of the libraries that the rows hang on."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def compare(before: Any, now: Any, at: str = "") -> Iterator[str]:
    """Sentences that tell where two values differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            here = f"{at} > {key}" if at else key
            if key not in now or key not in before:
                yield f"{here}: {'gone' if key not in now else 'new'} ({json.dumps(before.get(key, now.get(key)))[:200]})"
            else:
                yield from compare(before[key], now[key], here)
    elif before != now and at.endswith("keys"):
        gone, new = set(before.split()) - set(now.split()), set(now.split()) - set(before.split())
        yield f"{at}: gone {', '.join(sorted(gone)) or '-'}; new {', '.join(sorted(new)) or '-'}"
    elif before != now:
        yield f"{at}: {json.dumps(before)} -> {json.dumps(now)}"


def text_of(table: dict[str, Any]) -> str:
    """The table as JSON that a diff shows well: a line for each row, or for each value of a long one."""
    rows = []
    for name, value in table["rows"].items():
        line = json.dumps(value, ensure_ascii=False)
        if len(line) > 400:
            inner = (f"   {json.dumps(key)}: {json.dumps(each)}" for key, each in value.items())
            line = "{\n" + ",\n".join(inner) + "\n  }"
        rows.append(f"  {json.dumps(name)}: {line}")
    head = json.dumps({"versions": table["versions"]}, indent=1).removesuffix("\n}")
    return head + ',\n "rows": {\n' + ",\n".join(rows) + "\n }\n}\n"


def compute(row: Row, checkout: Checkout) -> Any:
    """A row's value, {"not here": REASON} or {"error": MESSAGE}."""
    with tempfile.TemporaryDirectory(prefix="invariants-") as scratch:
        try:
            return row.compute(checkout, Path(scratch))
        except NotHere as error:
            return {"not here": str(error)}
        except (RuntimeError, ValueError, KeyError, OSError, subprocess.SubprocessError) as error:
            return {"error": f"{type(error).__name__}: {error}"[-1500:]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], metavar="ROW")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="rows computed at once")
    parser.add_argument("--repository", type=Path, default=HERE.parent)
    options = parser.parse_args()
    root = options.repository.resolve()
    own = root / ".venv" / "bin" / "python"
    checkout = Checkout(root, str(own) if own.exists() else sys.executable)
    rows = [
        row
        for row in rows_of(checkout)
        if row.name.startswith(tuple(options.only)) and (row.quick or not options.quick)
    ]
    if options.list or not rows:
        print("\n".join(f"{row.name}{' (quick)' * row.quick}" for row in rows) or "no such row")
        return 0 if rows else 2
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {"versions": {}, "rows": {}}
    if not options.update and table["versions"] != versions():
        print(
            "Installed versions differ from those of the table: "
            + "; ".join(compare(table["versions"], versions()))
        )
    progress = HERE / "results" / "invariants" / f"{digest_of_sources(root)}.json"
    progress.parent.mkdir(parents=True, exist_ok=True)
    done = json.loads(progress.read_text()) if progress.exists() and not options.fresh else {}
    different = 0

    def timed(row: Row) -> tuple[Row, Any, float]:
        since = time.perf_counter()
        return (
            row,
            done[row.name] if row.name in done else compute(row, checkout),
            time.perf_counter() - since,
        )

    with ThreadPoolExecutor(options.jobs) as pool:
        for row, value, seconds in pool.map(timed, rows):
            if "error" not in value:
                done[row.name] = value
                progress.write_text(json.dumps(done))
            before = table["rows"].get(row.name)
            if "not here" in value or (before and "not here" in before):
                state = f"not compared: {value.get('not here') or before.get('not here')}"
            elif before is None:
                state = "new"
            else:
                state = "DIFFERS" if before != value else "same"
            different += state in ("DIFFERS", "new")
            print(f"{row.name:44} {state} ({seconds:.0f} s)", flush=True)
            if state in ("DIFFERS", "new"):
                print("\n".join(f"    {line}" for line in compare(before or {}, value)), flush=True)
            # A row that cannot be computed here keeps the value that another machine gave it.
            if options.update and "error" not in value and (before is None or "not here" not in value):
                table["rows"][row.name] = value
    if options.update:
        table = {"versions": versions(), "rows": dict(sorted(table["rows"].items()))}
        TABLE.write_text(text_of(table), encoding="utf-8")
        return 0
    print(f"{len(rows) - different} of {len(rows)} rows are as in the table.")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
