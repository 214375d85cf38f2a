"""Attribution over a folder of cases whose guilty passes are known: the answer, the probes, the CPU seconds.

    python benchmarks/attribution.py CASES [NAME]...

CASES holds `releases/manifest.json` with `pass_attribution` for some of its cases, `reduce/manifest.json`
with models and their culprits, and `bugs/*/meta.json` with a `backend`. Each case is asked by the command
itself, so the seconds hold the start of Python and of the compiler.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BACKENDS = {"ort": "onnxruntime", "ov": "openvino", "tvm": "tvm"}


def main() -> None:
    root, names = Path(sys.argv[1]), sys.argv[2:]
    asked = [*from_manifest(root / "releases"), *from_models(root / "reduce"), *from_bugs(root / "bugs")]
    for folder, target, known in asked:
        if names and folder.stem not in names:
            continue
        told = attribute(folder, target)
        found = told.get("error") or f"{told['answer']} {' + '.join(told['passes'])}"
        levels = " ".join(f"{name}:{answer}" for name, answer in told.get("levels", {}).items())
        kept = f", {len(told['kept'])} kept on" if told.get("kept") else ""
        figures = f"{told['probes']:>4} probes {told['seconds_cpu']:>6.2f} s" if "probes" in told else ""
        print(
            f"{folder.stem:<34}{target:<24}{figures}  {found}{kept}  alone {told.get('alone')}  [{levels}] "
            f" known: {known}"
        )


def from_manifest(folder: Path) -> list[tuple[Path, str, str]]:
    """Case, target and what is known, of the cases of released wheels."""
    cases: list[dict[str, Any]] = json.loads((folder / "manifest.json").read_text())["cases"]
    return [
        (folder / case["dir"], f"onnxruntime=={pair['ver']}", " ".join(pair["guilty"]) or "not a pass")
        for case in cases
        for pair in case.get("pass_attribution") or []
    ]


def from_models(folder: Path) -> list[tuple[Path, str, str]]:
    """The same of larger models, each a file."""
    cases: list[dict[str, Any]] = json.loads((folder / "manifest.json").read_text())
    return [
        (folder / case["model"], f"onnxruntime=={case['ort']}", case["culprit_optimizer"]) for case in cases
    ]


def from_bugs(folder: Path) -> list[tuple[Path, str, str]]:
    """The same of the other cases."""
    found = []
    for path in sorted(folder.glob("*/meta.json")):
        meta = json.loads(path.read_text())
        kind, _, level = meta["backend"].partition(":")
        target = level if kind == "xform" else BACKENDS[kind] + (f":{level.lower()}" if level else "")
        found.append((path.parent, target, meta["note"]))
    return found


def attribute(folder: Path, target: str) -> dict[str, Any]:
    """What the command prints, or its complaint."""
    command = [sys.executable, "-m", "opsieve", "attribute", str(folder), "--target", target, "--json"]
    for name in ("inputs", "expected"):
        if (folder / f"{name}.npz").exists():
            command += [f"--{name}", str(folder / f"{name}.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (
        json.loads(done.stdout)
        if done.returncode == 0
        else {"error": done.stderr.strip().splitlines()[-1][:300]}
    )


if __name__ == "__main__":
    main()
