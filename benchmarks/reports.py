"""Public reports (reports.toml) replayed on what is installed: our verdict beside what became of the thread.

    python -m benchmarks.reports [FOLDER_OF_MODELS]

A report agrees where an open one still fails, or one that is fixed or closed passes. What disagrees is to be
explained by a person.
"""

import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from opsieve.triage.judging import JudgeRequest, JudgeResult, judge_models

REPORTS = Path(__file__).with_name("reports.toml")
SAMPLES = Path(__file__).parents[1] / "samples"
SECONDS = 30.0


def main() -> int:
    """Print the table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    counts: Counter[str] = Counter()
    print("| report | what it says | thread | target | verdict | agrees |\n|---|---|---|---|---|---|")
    for report in tomllib.loads(REPORTS.read_text())["report"]:
        verdict, version, reason = judged(report, folder)
        agrees = agreement(str(report["state"]), verdict)
        counts[agrees] += 1
        print(
            f"| {report['issue']} | {report['what']} | {report['state']} | {report['target']} {version} |"
            f" {verdict} | {agrees} |"
        )
        print(f"{report['issue']}: {reason}", file=sys.stderr)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 0


def judged(report: Mapping[str, Any], folder: Path | None) -> tuple[str, str, str]:
    """The verdict on the report's model, the version asked, and the reason."""
    with tempfile.TemporaryDirectory() as scratch:
        for path, inputs in model_of(report, folder, Path(scratch)):
            for found in judge_models(
                [path], JudgeRequest((report["target"],), inputs=inputs), lambda _: None
            ):
                if isinstance(found, JudgeResult):
                    facts = found.facts()
                    return str(facts["verdict"]), str(facts["version"]), str(facts["reason"])
                return "refused", "", found.reason
    return "not run", "", "its model is not here"


def model_of(
    report: Mapping[str, Any], folder: Path | None, scratch: Path
) -> Iterator[tuple[Path, Path | None]]:
    """The file of the report's model, and that of its inputs where the report gives them; nothing where it is
    not here.
    """
    if "sample" in report:
        yield SAMPLES / report["sample"], None
    elif "text" in report:
        model = onnx.parser.parse_model(report["text"])
        onnx.save(model, scratch / "model.onnx")
        if "inputs" not in report:
            yield scratch / "model.onnx", None
            return
        kinds = {
            item.name: onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
            for item in model.graph.input
        }
        values: dict[str, Any] = {
            name: np.array(value, kinds[name]) for name, value in report["inputs"].items()
        }
        np.savez(scratch / "inputs.npz", **values)
        yield scratch / "model.onnx", scratch / "inputs.npz"
    elif folder is not None and (folder / report["file"]).exists():
        yield folder / report["file"], None


def agreement(state: str, verdict: str) -> str:
    """Whether a verdict and the state of a thread are of one mind."""
    if verdict not in ("pass", "fail"):
        return "not said"
    return "yes" if (state == "open") == (verdict == "fail") else "no"


if __name__ == "__main__":
    sys.exit(main())
