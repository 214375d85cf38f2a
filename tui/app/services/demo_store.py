"""The store of `opsieve tui --demo`: the samples as failures, with the observations of samples/observe.py. No
compiler runs.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from opsieve.backends.verdict import Verdict
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.model.files import read_file
from opsieve.triage.fingerprint.component import NOTHING
from opsieve.tui.samples import SAMPLES

OBSERVED = "observed.jsonl"
# Fixed, so that the store is the same each time.
_SEED = 1


def make_demo(folder: Path) -> Path:
    """Make the store in `folder` unless it exists, and return the folder.

    Raises:
        BadInput: If the samples are missing.
    """
    # Here and not above: the interface starts without loading the store's writing side.
    import msgspec

    from opsieve.backends.observation import Observation
    from opsieve.gen.case.case import open_case
    from opsieve.triage.fingerprint import fingerprint, program_graph
    from opsieve.triage.review.review import review_store
    from opsieve.triage.store import failure_record, finished_test
    from opsieve.triage.store.store import Store

    class Observed(msgspec.Struct):
        sample: str
        target: str
        verdict: Verdict
        observations: list[Observation]
        dtype: str

    if (folder / "index.sqlite").is_file():
        return folder
    path = SAMPLES / OBSERVED
    if not path.is_file():
        raise BadInput(
            f"the samples are not part of this installation: there is no {shown(path, 200)}; take a checkout"
            " of the repository"
        )
    lines = [msgspec.json.decode(line, type=Observed, strict=False) for line in read_file(path).splitlines()]
    campaign = finished_test.Campaign(
        "samples", "samples", _SEED, tuple(dict.fromkeys(line.target for line in lines))
    )
    tests = []
    for number, line in enumerate(lines):
        case = open_case(SAMPLES / line.sample)
        outputs: dict[str, Any] | None = None
        if line.verdict.mismatch is not None:
            outputs = {line.verdict.mismatch.output: failure_record.AbsentOutput(line.dtype)}
        # The samples hold no outputs: only their dtype is known.
        seen = (replace(line.observations[0], outputs=outputs), *line.observations[1:])
        operators = sorted(set(case.program.operators()))
        finding = finished_test.FoundFailure(
            line.target,
            line.verdict,
            fingerprint.make_fingerprint(
                line.verdict, seen[0], operators, NOTHING, program_graph.ProgramNames(case.program)
            ),
            seen,
        )
        answers: dict[str, tuple[str, float]] = {
            line.target: (str(line.verdict.verdict), sum(line.observations[0].seconds.values()))
        }
        tests.append(
            finished_test.FinishedTest(
                number,
                replace(case, parameters={**case.parameters, "target": line.target}),
                answers,
                (finding,),
            )
        )
    with Store(folder) as store:
        store.begin_campaign(campaign)
        store.record_tests(campaign, tests)
    review_store(folder)
    return folder
