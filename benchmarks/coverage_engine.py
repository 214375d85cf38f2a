"""What coverage of a stock wheel costs, in one process: planting, the steady state against no probes, agreement of repeats.

    python -m benchmarks.coverage_engine onnxruntime|tvm functions|blocks [--rounds 40] [--cache FOLDER]

The compiler is imported here, as in a worker. A round runs the same programs with no probes and with all probes but those reached long
ago. Rounds alternate, and so does what comes first in them; after each change the programs run once untimed, since planting has walked
through all of the code. Figures are CPU time; the ratio is the median over rounds, with the quartiles around it, and that of the lower
quartiles. Then programs are run again and again with every probe planted anew: `unstable` is what some of the first eight runs reached and others did not, which
is set aside (triage/campaign/calibration.py does the same), `unstable_after` what of the rest the next five disagree on.
"""

import argparse
import json
import os
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
CALIBRATING, REPEATS = 8, 5
UNIT = 0.03  # CPU seconds that are timed at a time, at least


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

    def cost(times: int = 1) -> float:
        start = time.process_time()
        for _ in range(times):
            run()
        return time.process_time() - start

    first = cost()
    times = max(1, round(UNIT / max(cost(), 1e-4)))
    without, steady = [], []
    for number in range(given.rounds):
        for planted_now in ((False, True), (True, False))[number % 2]:
            if planted_now:
                tracer.plant()
            else:
                tracer.clear()
            run()
            (steady if planted_now else without).append(cost(times) / times)
    replanted, sets = [], []
    for _ in range(CALIBRATING + REPEATS):
        tracer.begin_again()
        replanted.append(cost())
        sets.append({note & ~NEW for note in tracer.notes()})
    early, late = sets[1:CALIBRATING], sets[CALIBRATING:]  # the first loads what is loaded once
    unstable = set.union(*early) - set.intersection(*early)
    after = set.union(*late) - set.intersection(*late) - unstable
    ratios = statistics.quantiles([after / before for before, after in zip(without, steady, strict=True)])
    facts = {"backend": given.backend, "kind": given.kind, "probes": planted, "find_points_cpu_s": round(found, 2)}
    facts |= {"plant_cpu_s": round(planting, 3), "first_run_cpu_s": round(first, 3)}
    facts |= {
        "no_probes_cpu_s": round(statistics.median(without), 4),
        "steady_cpu_s": round(statistics.median(steady), 4),
    }
    low = [statistics.quantiles(item)[0] for item in (without, steady)]
    facts |= {
        "steady_over_none": [round(ratio, 3) for ratio in ratios],
        "lower_quartiles": round(low[1] / low[0], 3),  # other load only adds: this is the least disturbed
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
