"""Judge every sample where its bug is and keep what was seen in observed.jsonl, for `opsieve tui --demo`.

    python samples/observe.py

Needs the compilers that the samples name (`opsieve doctor`); installs releases of onnxruntime. A sample whose
compiler is not there keeps the line that it has.
"""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from demo import SAMPLES, samples

from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.oracles import SECOND_ORACLES
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Unavailable
from opsieve.gen.case.case import open_case
from opsieve.triage.corpus.corpus_file import Bug
from opsieve.triage.store.failure_record import encode_mismatch

OBSERVED = SAMPLES / "observed.jsonl"
PATH = re.compile(r"(?:/[\w.+@-]++)++")
MARKERS = (
    "/site-packages/",
    "/opsieve/releases/",
    "/backends/",
    "/lib/python3",
    "/lib/libpython",
    "/bin/python",
)
LONGEST = 20_000  # characters of a log or a traceback


def main() -> int:
    """Write the file anew; 1 when a sample does not fail."""
    kept = (
        {line["sample"]: line for line in map(json.loads, OBSERVED.read_text().splitlines())}
        if OBSERVED.exists()
        else {}
    )
    wrong = 0
    with Workers(say=lambda sentence: print(sentence, file=sys.stderr)) as workers:
        lab = ObservationCache(workers)
        for folder, sample in samples():
            target = resolve(sample.fails)
            try:
                if target.name != "onnxruntime":
                    if workers.version(target.with_release("")) != target.release:
                        raise Unavailable(f"{target} is not what is installed")
                    target = target.with_release("")
                line = observe(folder, sample, target, lab)
            except Unavailable as error:
                print(f"{folder.name}: {error}", file=sys.stderr)
                continue
            wrong += line["verdict"]["verdict"] != "fail"
            kept[folder.name] = line
            print(folder.name, line["verdict"]["verdict"], line["verdict"]["kind"])
    names = [folder.name for folder, _ in samples() if folder.name in kept]
    OBSERVED.write_text("".join(impersonal(json.dumps(kept[name])) + "\n" for name in names))
    return int(wrong > 0)


def observe(folder: Path, sample: Bug, target: ResolvedTarget, lab: ObservationCache) -> dict[str, Any]:
    """One line: the target as the sample names it, the verdict, the observations without their outputs, the
    dtype of the wrong one.
    """
    case = open_case(folder)
    judged = judge_program(
        case.program, case.inputs, target, lab, expected=case.expected, oracles=SECOND_ORACLES
    )
    mismatch = judged.verdict.mismatch
    value = (judged.observations[0].outputs or {}).get(mismatch.output) if mismatch else None
    return {
        "sample": folder.name,
        "target": resolve(sample.fails).display,
        "verdict": {**asdict(judged.verdict), "mismatch": encode_mismatch(mismatch) if mismatch else None},
        "observations": [seen_of(asdict(each)) for each in judged.observations],
        "dtype": "" if value is None else str(np.asarray(value).dtype),
    }


def impersonal(text: str) -> str:
    """Text whose paths begin where the machine ends."""
    return PATH.sub(lambda found: _from_marker(found[0]), text)


def _from_marker(path: str) -> str:
    cut = max(path.find(marker) for marker in MARKERS)
    return path if cut < 0 else path[cut:]


def seen_of(observation: dict[str, Any]) -> dict[str, Any]:
    """An observation as text of a sane length."""
    seen = {**observation, "outputs": None}
    for name in ("log", "traceback", "message"):
        seen[name] = seen[name][-LONGEST:]
    return seen


if __name__ == "__main__":
    sys.exit(main())
