"""One call of `opsieve attribute`: the optimiser passes that cause a failure."""

import resource
import time
from collections.abc import Callable

from opsieve.backends.judge.oracle_names import add_oracles
from opsieve.backends.registry import resolve
from opsieve.backends.releases.consent import named_by_file
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.passes.pass_source import blame_passes
from opsieve.bisect.sessions.answers import PassAnswer, keep_culprit
from opsieve.bisect.sessions.request import BisectRequest
from opsieve.gen.case.open_case import open_case
from opsieve.gen.errors import BadInput


def attribute_passes(request: BisectRequest, say: Callable[[str], None]) -> PassAnswer:
    """Attribute a failure and keep the answer beside the case.

    Of the request, its case, target and values count.

    Raises:
        NoFailure: If the case passes on the target.
        BadInput: If the target's passes cannot be switched off.
    """
    if request.case is None:
        raise BadInput("name the CASE that fails")
    opened = open_case(request.case, request.inputs, request.expected, request.seed)
    named = request.target or named_by_file(opened.parameters.get("target", "onnxruntime"), request.offline)
    opened, target = add_oracles(opened, resolve(named), request.oracles)
    started = time.process_time()
    with Workers(request.run_limits, offline=request.offline, say=say) as workers:
        blamed = blame_passes(opened, target, ObservationCache(workers), request.policy)
    found, wanted = blamed.attribution, blamed.wanted
    # The CPU seconds of all child processes that have ended.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = PassAnswer(
        target=target.display,
        answer=found.answer,
        passes=found.passes,
        alone=found.alone,
        kept=found.kept,
        applications=found.applications,
        levels=found.levels,
        probes=found.probes,
        seconds_cpu=round((usage.ru_utime + usage.ru_stime) + time.process_time() - started, 3),
        fingerprint=wanted.key,
        symptom=wanted.symptom,
        beneath=blamed.beneath.symptom if blamed.beneath else "",
    )
    keep_culprit(request.case, "passes", answer.as_json())
    return answer
