"""Turn a worker's answer, or its end, into an observation."""

import os
import re
import signal
import statistics
from dataclasses import replace
from typing import Any

from opsieve.backends.observation import OBJECTION, Hazard, Observation, Outcome
from opsieve.backends.registry import ResolvedTarget
from opsieve.backends.stacks import death_message, frame_lines, frames, native
from opsieve.backends.workers.zygotes import work_clock, zygote

# Compilers that cannot allocate often abort; their message tells this from a failed check.
NO_MEMORY = re.compile(r"bad_alloc|[Cc]annot allocate memory|[Oo]ut of memory|LLVM ERROR: out of memory")
# Set in every worker: the same hash order, and one thread whatever library computes. Backends add their own.
KNOBS = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def read_reply(target: ResolvedTarget, version: str, reply: dict[str, Any], body: memoryview) -> Observation:
    """Make an observation from a worker's reply; an invalid reply is an error of the program that sent it."""
    try:
        # The reply is untrusted: a compiler that overwrites memory can produce any JSON and any types in it.
        return _read_reply(target, version, reply, body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = (
            f"its answer makes no sense ({type(error).__name__}), as when a program writes over its process's"
            " memory"
        )
        return Observation(target.display, version, "error", "run", exception="GarbledAnswer", message=what)


def _read_reply(target: ResolvedTarget, version: str, reply: dict[str, Any], body: memoryview) -> Observation:
    from opsieve.backends.workers.inside import wire

    seconds = dict(reply["seconds"])
    if reply.get("repeats"):
        seconds["run"] = statistics.median(reply["repeats"])
    hazards = tuple(
        Hazard(item["rule"], item["node"], item["operator"], tuple(item["outputs"]))
        for item in reply.get("hazards", ())
    )
    source = target.backend
    outputs = wire.unpack_values(reply["outputs"], body, 0)[0] if reply["ok"] else None
    answer = Observation(
        target.display,
        version,
        "ok",
        outputs=outputs,
        seconds=seconds,
        cpu_seconds=statistics.median(reply.get("cpu") or [0.0]),
        peak_memory=reply["peak"],
        log=reply.get("log", ""),
        notes=tuple(reply.get("notes", ())),
        hazards=hazards,
        knobs={**KNOBS, **target.facts.environment},
        reached=tuple(reply["reached"]) if "reached" in reply else None,
    )
    if reply["ok"]:
        return answer
    # Only the backend knows which of its exceptions mean an unsupported feature.
    outcome: Any = source.classify(reply["stage"], reply["exception"], reply["message"])
    return replace(
        answer,
        outcome=outcome,
        stage=reply["stage"],
        exception=reply["exception"],
        message=reply["message"] or reply["exception"],
        traceback=reply["traceback"],
        frames=tuple(frame_lines.frame_of(function, file, line) for function, file, line in reply["frames"]),
    )


def derive_observation(observation: Observation, target: ResolvedTarget, version: str) -> Observation:
    """Derive the observation of a pass-through target from its host's; seconds and memory are the host's."""
    knobs = {**KNOBS, **target.facts.environment}
    return replace(observation, target=target.display, version=version, knobs=knobs, reached=None)


def object_to(observation: Observation, objection: str) -> Observation:
    """Return the observation of a run to whose outputs an oracle of the user's objects."""
    return replace(observation, outcome="error", outputs=None, exception=OBJECTION, message=objection)


def is_killed_from_outside(death: zygote.Death, limits: zygote.Limits, kills: int) -> bool:
    """Whether something other than the OOM killer killed the worker, given its count of `kills` before.

    A process with half its limit resident counts as out of memory in any case.
    """
    # A hang is ended by our own SIGKILL, and is no sign of another killer.
    killed = (
        os.WIFSIGNALED(death.status) and os.WTERMSIG(death.status) == signal.SIGKILL and not death.timed_out
    )
    return (
        killed
        and not (death.closed or death.excess)
        and death.peak < limits.memory // 2
        and work_clock.count_oom_kills() == kills
    )


def read_death(
    target: ResolvedTarget, version: str, death: zygote.Death, limits: zygote.Limits, kills: int = -1
) -> Observation:
    """Make an observation from the end of a worker; `kills` as in `is_killed_from_outside`, -1 if not
    counted.
    """
    killed = os.WTERMSIG(death.status) if os.WIFSIGNALED(death.status) else 0
    outcome: Outcome = "crash"
    exception, message = "", death_message.summary(death.log)
    if death.timed_out:
        # The signal is ours and says nothing about the compiler.
        outcome, killed, message = "hang", 0, f"no answer within {limits.seconds:g} s"
    elif death.excess:
        outcome, killed, message = "out-of-memory", 0, death.excess
    elif death.closed:
        outcome, exception, killed = "error", "ChannelClosed", 0
        message = "the process closed the channel of its answers"
    elif killed == signal.SIGXFSZ:
        outcome, exception, message = (
            "error",
            "OutputLimit",
            f"wrote more than {limits.printed >> 20} MiB to one file",
        )
    elif is_killed_from_outside(death, limits, kills):
        message = "something killed the process twice, and not for want of memory"
    # Its limit on address space makes an allocation fail; a kill comes from the machine running out.
    elif killed == signal.SIGKILL:
        outcome, message = "out-of-memory", "the kernel killed the process, as it does when memory runs out"
    elif killed == signal.SIGABRT and NO_MEMORY.search(death.log):
        outcome = "out-of-memory"
    elif killed:
        message = message or signal.Signals(killed).name
    else:
        message = f"the process ended by itself with exit code {os.waitstatus_to_exitcode(death.status)}"
    return Observation(
        target.display,
        version,
        outcome,
        # Worker admits only the three stages
        death.stage,  # type: ignore[arg-type]
        exception=exception,
        message=message,
        frames=frames.parse_log(death.log, native.build_id),
        signal=killed,
        peak_memory=death.peak,
        log=death.log,
        knobs={**KNOBS, **target.facts.environment},
        reached=death.reached,
    )
