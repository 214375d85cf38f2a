"""Reductions killed at a random moment and started again until they end: what was reached is never lost, and
the end is the same.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from benchmarks.reducing.scaled import model

_LONGEST = 200  # calls of one reduction


def report(kills: int, seed: int) -> None:
    """Kill so many times in all, and print what was lost."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="opsieve-killed-") as folder:
        place = Path(folder)
        onnx.save(model(400, "wide"), place / "model.onnx")
        since = time.monotonic()
        wanted = _undisturbed(place)
        longest = time.monotonic() - since
        done = lost = other = rounds = 0
        while done < kills:
            rounds += 1
            out = place / f"out{rounds}"
            nodes = 1 << 30
            for _ in range(_LONGEST):
                ended = _run(place, out, None if done >= kills else draw.uniform(0, longest))
                done += not ended
                kept = _nodes(out)
                lost += kept > nodes
                nodes = min(nodes, kept)
                if ended:
                    break
            other += (out / "case.reduced.onnx").read_bytes() != wanted
            print(f"reduction {rounds}: {done} kills so far, {nodes} nodes at the end", flush=True)
    print(
        f"{done} kills in {rounds} reductions: the best was lost {lost} times, the result was another {other}"
        " times"
    )


def _undisturbed(place: Path) -> bytes:
    _run(place, place / "whole", None)
    return (place / "whole" / "case.reduced.onnx").read_bytes()


def _run(place: Path, out: Path, seconds: float | None) -> bool:
    """One call, killed after so many seconds; whether it ended by itself. CalledProcessError when it ended in
    any other way than with a result.
    """
    command = [
        sys.executable,
        "-m",
        "opsieve",
        "reduce",
        str(place / "model.onnx"),
        "-t",
        "fake:crash@Tanh>Exp",
    ]
    command += ["-o", str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    story = out / "reduction.json"
    if process.returncode != 0 or not story.exists() or not json.loads(story.read_text()).get("minimal"):
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said)
    return True


def _nodes(out: Path) -> int:
    """Nodes of the best that a folder holds; what cannot be read counts as lost, what is not there yet as
    nothing reached.
    """
    best = out / "case.reduced.onnx"
    if not best.exists():
        return 1 << 30
    try:
        return len(onnx.load(best).graph.node)
    except Exception as error:  # noqa: BLE001 -- whatever protobuf raises, the file is no model
        print(json.dumps({"unreadable": str(error)[:200]}))
        return 1 << 31
