"""Judge a case again, with its wrong elements and a map of them, in a process started by the app.

python -m opsieve.tui.app.services.replay CASE TARGET [--offline] prints one JSON object
"""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any


def main() -> int:
    """Judge and print; return 0 for every verdict, 2 for bad input."""
    from opsieve.backends.judge.judge import judge_program
    from opsieve.backends.judge.oracles import SECOND_ORACLES
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.questions.observation_cache import ObservationCache
    from opsieve.backends.workers.workers import Workers
    from opsieve.backends.workers.zygotes.zygote import Limits, Unavailable
    from opsieve.gen.case.case import open_case
    from opsieve.gen.errors import BadInput
    from opsieve.triage.export.export_input import find_expected

    # The app alone writes these words, so that they need no parser.
    offline = "--offline" in sys.argv
    place, name = [word for word in sys.argv[1:] if word != "--offline"]
    try:
        case, target = open_case(Path(place)), resolve(name)
        with Workers(
            Limits(seconds=60.0), offline=offline, say=lambda text: print(text, file=sys.stderr)
        ) as workers:
            lab = ObservationCache(workers)
            # A target is no witness for itself.
            oracles = [oracle for oracle in SECOND_ORACLES if oracle != target]
            judged = judge_program(
                case.program, case.inputs, target, lab, expected=case.expected, oracles=oracles
            )
            seen = judged.observations[0]
            right, source = find_expected(case, judged.verdict, seen.outputs, lab)
    except (BadInput, Unavailable) as error:
        print(str(error), file=sys.stderr)
        return 2
    verdict = judged.verdict
    from opsieve.tui.app.services.tensor_difference import compare_values

    report: dict[str, Any] = {
        "target": target.display,
        "version": seen.version,
        "verdict": verdict.verdict,
        "kind": verdict.kind or "",
        "stage": verdict.stage or "",
        "reason": verdict.reason,
        # The app shows 20 lines of it, and the whole report goes through a pipe.
        "message": verdict.message[:4000],
        "blame": verdict.blame,
        "oracles": [str(oracle) for oracle in verdict.oracles],
        "outcomes": [
            [each.target, each.version, each.outcome, round(each.total_seconds, 3)]
            for each in judged.observations
        ],
        "source": source,
        "tensors": [
            asdict(each)
            for name, wanted in right.items()
            for each in compare_values(
                name, (seen.outputs or {}).get(name), wanted.value, wanted.within, wanted.dtype
            )
        ],
        "error_maps": _make_error_maps(seen.outputs or {}, right),
    }
    json.dump(report, sys.stdout)
    return 0


def _make_error_maps(outputs: dict[str, Any], right: Any) -> list[dict[str, Any]]:
    from opsieve.tui.app.services.tensor_difference import make_error_map

    found = []
    for name, wanted in right.items():
        got = outputs.get(name)
        made = (
            None
            if got is None or isinstance(got, (list, tuple))
            else make_error_map(got, wanted.value, wanted.within)
        )
        if made is not None:
            # JSON has no infinity and no NaN.
            worst = made.worst if math.isfinite(made.worst) else None
            drawn = {"shape": list(made.shape), "rows": list(made.rows), "fraction": made.fraction}
            found.append({"output": name, **drawn, "worst": worst, "within": wanted.within})
    return found


if __name__ == "__main__":
    sys.exit(main())
