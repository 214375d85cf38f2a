"""`reduce` on real onnxruntime bugs inside large models, beside Polygraphy's `debug reduce` where a Python has it.

    python benchmarks/reduce.py [FOLDER] [--polygraphy PYTHON] [--linear] [--only ID]

FOLDER holds manifest.json (id, model, ort, culprit_optimizer, known_min_nodes) and the models. Both tools are given the same check:
the target and its unoptimised build, compared as opsieve compares them, in warm workers. `cured` says that the result is well
when the culprit pass is switched off; `-j2` must give the same bytes. Seconds are wall time of the command, start-up included, the
better of two runs; Polygraphy's are of one run, without the start of the workers that answer its check.
"""

import argparse
import json
import shlex
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import onnx

from opsieve.backends.registry import resolve
from opsieve.backends.target import Target
from opsieve.backends.workers import Workers
from opsieve.gen.intake import open_case
from opsieve.reducer.check import TargetCheck, Validator
from opsieve.reducer.discover import find
from opsieve.reducer.order import count_nodes
from opsieve.reducer.recording import recorded
from opsieve.reducer.subject import Subject

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "cases" / "reduce"
CLIENT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode() + b"\\n"); sys.exit(s.recv(1)[0])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED if SHARED.is_dir() else ROOT / "samples")
    parser.add_argument("--polygraphy", type=Path, help="a Python that has polygraphy and onnxruntime")
    parser.add_argument("--linear", action="store_true", help="Polygraphy's linear mode too")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = [case for case in json.loads((options.folder / "manifest.json").read_text()) if options.only in case["id"]]
    rows = []
    for case in cases:
        row = ours(options.folder / case["model"], case)
        if options.polygraphy:
            for mode in ("bisect", "linear") if options.linear else ("bisect",):
                row[mode] = polygraphy(options.folder / case["model"], case, options.polygraphy, mode)
        rows.append(row)
        show(case, row)
    for key in ("node_checks", "checks", "seconds"):
        values = [row[key] for row in rows]
        print(f"{key}: median {statistics.median(values):g}, max {max(values):g}")


def target_of(case: dict[str, Any]) -> Target:
    with Workers() as workers:
        here = workers.version(Target("onnxruntime"))
    same = here.rpartition(".")[0] == case["ort"].rpartition(".")[0]
    return resolve("onnxruntime" if same else f"onnxruntime=={case['ort']}")


def ours(model: Path, case: dict[str, Any]) -> dict[str, Any]:
    """The command as a user types it: cold, start-up included."""
    target = target_of(case)
    with tempfile.TemporaryDirectory() as scratch:
        results, models = [], []
        for place, extra in enumerate((["-j1"], ["-j1"], ["-j2"], ["--seed=1"], ["--seed=2"])):
            folder = Path(scratch) / str(place)
            command = [
                sys.executable,
                "-c",
                "from opsieve.reducer.cli import main; main()",
                str(model),
                "-t",
                str(target),
                "-o",
                str(folder),
            ]
            since = time.perf_counter()
            done = subprocess.run([*command, "--json", *extra], capture_output=True, text=True, check=True)
            result = json.loads(done.stdout)
            results.append({**result, "seconds": time.perf_counter() - since})
            models.append((folder / "case.reduced.onnx").read_bytes())
        row = dict(min(results[:2], key=lambda item: float(item["seconds"])))
        row["jobs_equal"] = models[0] == models[1] == models[2]
        row["seeds"] = [item["nodes_after"] + item["inner_nodes_after"] for item in (results[0], *results[3:])]
        row["cured"] = cured(Path(scratch) / "0", target, case["culprit_optimizer"])
        return row


def cured(folder: Path, target: Target, culprit: str) -> bool:
    """Whether the result is well without the culprit pass, and ill with it."""
    case = open_case(folder)
    with Workers() as workers:
        premise = find(case, [target], None, workers)
        start = Subject(case.program.proto, case.inputs, {})
        without = resolve(target.with_options(disabled_optimizers=culprit.replace("|", "+")))
        check = TargetCheck(workers, without, premise.failure, premise.arbiter, "loose")
        answer = next(iter(check.ask([start])))
        # `gone` alone would also be said of a build that could not be asked.
        return answer.kind == "gone" and answer.why in ("ok", "it agrees")


def polygraphy(model: Path, case: dict[str, Any], python: Path, mode: str) -> dict[str, Any]:
    """Polygraphy with the same check behind a socket."""
    target = target_of(case)
    opened = open_case(model)
    asked: list[str] = []
    with Workers() as workers, tempfile.TemporaryDirectory() as scratch:
        premise = find(opened, [target], None, workers)
        start = Subject(opened.program.proto, opened.inputs, {})
        values = dict(recorded(start, workers.baseline(target), workers).values)
        check = TargetCheck(workers, target, premise.failure, premise.arbiter, "fingerprint")

        def ask(path: str) -> str:
            proto = onnx.load(path)
            initial = {tensor.name for tensor in proto.graph.initializer}
            names = [info.name for info in proto.graph.input if info.name not in initial]
            inputs = {name: {**values, **opened.inputs}[name] for name in names}
            subject = Subject(proto, inputs, {})
            if any(Validator(workers, start).complaints([subject])):
                return "invalid"
            return next(iter(check.ask([subject]))).kind

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    asked.append(ask(f"{scratch}/{self.rfile.readline().decode().strip()}"))
                except Exception as error:  # noqa: BLE001  whatever is wrong with what Polygraphy made, it is not the failure
                    asked.append(f"invalid ({type(error).__name__})")
                self.wfile.write(b"\1" if asked[-1] == "same" else b"\0")

        place, client, result = f"{scratch}/socket", Path(scratch) / "client.py", Path(scratch) / "out.onnx"
        client.write_text(CLIENT)
        with socketserver.UnixStreamServer(place, Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            command = [
                str(python.parent / "polygraphy"),
                "debug",
                "reduce",
                str(model),
                "-o",
                str(result),
                "--mode",
                mode,
            ]
            line = [str(python), "-I", "-S", str(client), place, "polygraphy_debug.onnx"]
            since = time.perf_counter()
            done = subprocess.run(
                [*command, "--check", *line], capture_output=True, text=True, cwd=scratch, check=False
            )
            seconds = time.perf_counter() - since
            server.shutdown()
        row: dict[str, Any] = {"checks": len(asked), "seconds": seconds, "invalid": sum("invalid" in a for a in asked)}
        if not result.exists():
            return {**row, "died": True, "why": shlex.join(done.stderr.strip().splitlines()[-1:])[:160]}
        final = ask(str(result))
        return {**row, "nodes": sum(count_nodes(onnx.load(result))), "bytes": result.stat().st_size, "same": final}


def show(case: dict[str, Any], row: dict[str, Any]) -> None:
    print(
        f"{case['id']:30} {row['nodes_before']:>4} -> {row['nodes_after'] + row['inner_nodes_after']} "
        f"(known {case['known_min_nodes']}), {row['bytes_after']} B; checks {row['node_checks']} nodes, {row['checks']} all; "
        f"refused before a check {row['invalid_candidates']}; {row['seconds']:.2f} s (better of 2); same {row['same']}, cured {row['cured']}, "
        f"minimal {row['minimal']}, -j1 = -j2 {row['jobs_equal']}, nodes by seed {row['seeds']}"
    )
    for mode in ("bisect", "linear"):
        if mode in row:
            print(f"    polygraphy {mode}: {row[mode]}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
