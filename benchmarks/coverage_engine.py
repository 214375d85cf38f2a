"""What coverage of a stock wheel costs, in one process: planting, the steady state against no probes,
agreement of repeats.

    python -m benchmarks.coverage_engine onnxruntime|tvm functions|blocks [--rounds 40] [--cache FOLDER]

The compiler is imported here, as in a worker. A round runs the same programs with no probes and with all
probes but those reached long ago. Rounds alternate, and so does what comes first in them; after each change
the programs run twice untimed, since planting has walked through all of the code. Then they run ten times,
and the least CPU time of these is the round's, since other load only adds. The ratio is the median over
rounds with a bootstrapped interval of 95 %; `traps` are those that came in the timed parts. Then programs are
run again and again with every probe planted anew: `unstable` is what some runs of the first seconds reached
and others did not, which is set aside (triage/campaign/calibration.py does the same), `unstable_after` what
of the rest the next five disagree on.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from opsieve.backends.coverage.coverage import own_libraries
from opsieve.backends.coverage.points import points_of
from opsieve.backends.coverage.tracer import NEW, Tracer, modules
from opsieve.backends.registry import plugin

OPERATORS = ("Relu", "Softmax", "Tanh", "Erf", "Sigmoid", "Exp")
CALIBRATING, SECONDS, REPEATS = 8, 2.5, 5
TIMES = 10  # that the programs are run in each half of a round; the least counts


def model(operator: str) -> bytes:
    """One operator over a small tensor."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", [x], [y])
    opset = helper.make_opsetid("", 17)
    made: bytes = helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
    return made


def runner(backend: str) -> Callable[[], None]:
    """Compiles and runs every program once."""
    fed, models = np.ones((4, 8), np.float32), [model(operator) for operator in OPERATORS]
    if backend == "onnxruntime":
        import onnxruntime

        def ort() -> None:
            for item in models:
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = 1
                session = onnxruntime.InferenceSession(item, options, providers=["CPUExecutionProvider"])
                session.run(None, {"x": fed})

        return ort
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    def tvm_() -> None:
        for item in models[:2]:
            relax.build(from_onnx(onnx.load_model_from_string(item)), tvm.target.Target("llvm"))

    return tvm_


def paired(ratios: list[float]) -> tuple[float, tuple[float, float]]:
    """Their median, and a bootstrapped interval of 95 % for it."""
    rng = random.Random(0)
    again = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(1000))
    return statistics.median(ratios), (again[25], again[974])


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("kind")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cache", type=Path, default=Path("/tmp/opsieve-points"))
    given = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = "1"
    run = runner(given.backend)
    run()
    begun = time.process_time()
    libraries = own_libraries(plugin(given.backend).backend, [path for path, _ in modules()])
    points = [points_of(path, given.kind, given.cache, root) for path, root in libraries]
    found = time.process_time() - begun
    total = sum(len(item.addresses) for item in points)
    hits = os.memfd_create("hits")
    os.ftruncate(hits, total)
    begun = time.process_time()
    tracer = Tracer(hits, total)
    for item in points:
        tracer.add(str(item.library), str(item.file), len(item.addresses))
    planted = tracer.plant()
    planting = time.process_time() - begun

    def cost() -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    def reached() -> set[int]:
        tracer.begin_again()
        replanted.append(cost())
        return {note & ~NEW for note in tracer.notes()}

    first = cost()
    without, steady, traps = [], [], 0
    for number in range(given.rounds):
        for planted_now in ((False, True), (True, False))[number % 2]:
            if planted_now:
                tracer.plant()
            else:
                tracer.clear()
            run()
            run()
            before = int(tracer.counts[1])
            (steady if planted_now else without).append(min(cost() for _ in range(TIMES)))
            traps += int(tracer.counts[1]) - before
    replanted: list[float] = []
    reached()  # loads what is loaded once
    early, begun = [reached() for _ in range(CALIBRATING)], time.monotonic()
    while time.monotonic() - begun < SECONDS:
        early.append(reached())
    late = [reached() for _ in range(REPEATS)]
    unstable = set.union(*early) - set.intersection(*early)
    after = set.union(*late) - set.intersection(*late) - unstable
    ratio, interval = paired([after / before for before, after in zip(without, steady, strict=True)])
    facts = {
        "backend": given.backend,
        "kind": given.kind,
        "probes": planted,
        "find_points_cpu_s": round(found, 2),
    }
    facts |= {"plant_cpu_s": round(planting, 3), "first_run_cpu_s": round(first, 3)}
    facts |= {
        "no_probes_cpu_s": round(statistics.median(without), 4),
        "steady_cpu_s": round(statistics.median(steady), 4),
    }
    facts |= {
        "steady_over_none": [round(value, 3) for value in (ratio, *interval)],
        "least": round(min(steady) / min(without), 3),
        "traps": traps,
        "all_again_cpu_s": round(statistics.median(replanted), 3),
    }
    facts |= {
        "reached": [len(item - unstable) for item in late],
        "unstable": len(unstable),
        "unstable_after": len(after),
    }
    facts |= {"foreign": tracer.foreign, "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
