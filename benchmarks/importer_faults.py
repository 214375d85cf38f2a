"""Fingerprints against known answers: faults put into TVM's ONNX importer, each one a label.

    python benchmarks/importer_faults.py [--faults N] [--tests N] [--functions N] [--seed S] [--kinds
    KIND,...] [--save FILE.jsonl]

A fault is one expression of one converter changed in memory: a condition negated, a comparison turned, a
number raised, arguments swapped, a default lost, a name misspelt, an attribute misspelt, or a check inserted.
Conformance tests of the operator that pass without it run in a forked child; what fails is a record as other
tools write them. Printed are BCubed precision, recall and F1, and the precision and recall of pairs (Amigo et
al., 2009), of errors and of wrong results. Needs `opsieve[tvm]`; without it, says so.
"""

import argparse
import ast
import copy
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from triaging.changes import KINDS, change, sites

from opsieve.triage.external.external_logs import fingerprint_of
from opsieve.triage.external.external_records import record_of


@dataclass(frozen=True)
class Fault:
    """A converter and what replaces its code."""

    label: str
    old: FunctionType
    new: FunctionType
    operators: tuple[str, ...]


def faults(importer: Any, passing: dict[str, list[Any]], args: argparse.Namespace) -> list[Fault]:
    """Up to `--faults` different faults in `--functions` converters of operators that tests pass on."""
    rng = random.Random(args.seed)
    path = Path(importer.__file__)
    operators: dict[str, set[str]] = defaultdict(set)
    for operator, method in importer._get_convert_map().items():
        name = (
            method.__name__ if isinstance(method, type) else getattr(method, "__qualname__", "").split(".")[0]
        )
        operators[name].add(operator)
    places = []
    for item in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(item, ast.ClassDef):
            tested = tuple(
                sorted(name for name in operators[item.name] | {item.name} if len(passing.get(name, ())) >= 3)
            )
            places += [(item, f, tested) for f in item.body if isinstance(f, ast.FunctionDef) and tested]
    rng.shuffle(places)
    places = places[: args.functions]
    found: dict[str, Fault] = {}
    for _ in range(args.faults * 30):
        if len(found) == args.faults or not places:
            break
        owner, function, tested = rng.choice(places)
        changed = copy.deepcopy(function)
        choices = [(kind, node) for kind, node in sites(changed) if kind in args.kinds]
        if not choices:
            continue
        wanted = rng.choice(sorted({kind for kind, _ in choices}))
        at = rng.choice([i for i, (kind, _) in enumerate(choices) if kind == wanted])
        change(changed, wanted, choices[at][1], rng.randrange(30))
        label = f"{owner.name}.{function.name}:{wanted}:{at}"
        old = plain(vars(getattr(importer, owner.name))[function.name])
        new = compiled(importer, owner, changed)
        if new.__code__.co_freevars == old.__code__.co_freevars:
            found.setdefault(label, Fault(label, old, new, tested))
    return list(found.values())


def compiled(importer: Any, owner: ast.ClassDef, function: ast.FunctionDef) -> FunctionType:
    holder = ast.ClassDef(owner.name, [], [], [function], [])
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(holder, owner)], []))
    scope = dict(vars(importer))
    exec(compile(module, importer.__file__, "exec"), scope)  # noqa: S102  TVM's own source, one expression changed
    return plain(vars(scope[owner.name])[function.name])


def plain(method: Any) -> FunctionType:
    function: FunctionType = getattr(method, "__func__", method)
    return function


def failure(test: Any) -> dict[str, Any] | None:
    """What a test shows when it fails, None when it passes."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    phase = "import"
    try:
        inputs, wanted = test.data_sets[0]
        module = from_onnx(test.model, keep_params_in_input=False)
        phase = "build"
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
        phase = "run"
        machine.set_input("main", *[tvm.runtime.tensor(np.array(value, order="C")) for value in inputs])
        machine.invoke_stateful("main")
        got = machine.get_outputs("main")
        phase = "compare"
        for expected, one in zip(wanted, [got] if hasattr(got, "numpy") else list(got), strict=True):
            value = one.numpy()
            if np.shape(expected) != value.shape:
                raise AssertionError(f"shape mismatch: got {value.shape}, want {np.shape(expected)}")
            np.testing.assert_allclose(value, expected, rtol=1e-2, atol=1e-3)
    except Exception as error:  # noqa: BLE001  whatever a faulty importer raises is the subject
        told = "".join(traceback.format_exception(error))[:60_000]
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        operators = sorted({node.op_type for node in test.model.graph.node})
        base = {"backend": "tvm", "phase": phase, "exc_type": kind, "message": str(error)[:20_000]}
        return {**base, "traceback": told, "ops": operators, "test": test.name}
    return None


def forked(tests: Sequence[Any], fault: Fault | None) -> list[dict[str, Any]]:
    """The failures of tests in a child, with what each printed."""
    with tempfile.TemporaryFile("w+") as answers, tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            if fault is not None:
                fault.old.__code__, fault.old.__defaults__ = fault.new.__code__, fault.new.__defaults__
            for test in tests:
                printed.seek(0)
                printed.truncate()
                if found := failure(test):
                    sys.stdout.flush()
                    printed.seek(0)
                    json.dump({**found, "output": printed.read()[-3000:]}, answers)
                    answers.write("\n")
                    answers.flush()
            os._exit(0)
        os.waitpid(child, 0)
        answers.seek(0)
        return [json.loads(line) for line in answers]


def scores(keys: Sequence[str], labels: Sequence[str]) -> str:
    """BCubed and pairs of a clustering against labels."""
    both, mine, true = Counter(zip(keys, labels, strict=True)), Counter(keys), Counter(labels)
    pairs = zip(keys, labels, strict=True)
    precision = recall = 0.0
    for key, label in pairs:
        precision += both[key, label] / mine[key] / len(keys)
        recall += both[key, label] / true[label] / len(keys)
    hit, said, is_so = (sum(n * (n - 1) / 2 for n in count.values()) for count in (both, mine, true))
    f1 = 2 * precision * recall / (precision + recall)
    return (
        f"{len(keys)} failures, {len(true)} faults, {len(mine)} clusters: BCubed P {precision:.3f} R"
        f" {recall:.3f} F1 {f1:.3f}, pairs P {hit / max(said, 1):.3f} R {hit / max(is_so, 1):.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--tests", type=int, default=5, help="conformance tests run with each fault")
    parser.add_argument("--functions", type=int, default=40, help="converters that faults go into")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--save", type=Path, help="write the labelled records here")
    args = parser.parse_args()
    if importlib.util.find_spec("tvm") is None:
        print("TVM is not installed: nothing to put faults into (pip install opsieve[tvm])")
        return
    from onnx.backend.test.loader import load_node_model_tests
    from tvm.relax.frontend.onnx import onnx_frontend

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = [
            test for test in load_node_model_tests() if test.data_sets and not test.name.endswith("_expanded")
        ]
    by_operator: dict[str, list[Any]] = defaultdict(list)
    for test in tests:
        for operator in {node.op_type for node in test.model.graph.node} if test.model else ():
            by_operator[operator].append(test)
    rng = random.Random(args.seed)
    passes: dict[str, bool] = {}
    records: list[dict[str, Any]] = []
    for fault in faults(onnx_frontend, by_operator, args):
        mine = [test for operator in fault.operators for test in by_operator[operator]]
        rng.shuffle(mine)
        mine = mine[: args.tests * 2]
        for test in mine:
            if test.name not in passes:
                passes[test.name] = not forked([test], None)
        well = [test for test in mine if passes[test.name]][: args.tests]
        records += [{**found, "label": fault.label} for found in forked(well, fault)]
    if args.save:
        args.save.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    for name, is_mismatch in (("errors", False), ("wrong results", True)):
        chosen = [record for record in records if (record["phase"] == "compare") is is_mismatch]
        if chosen:
            keys = [fingerprint_of(record_of(record)).key for record in chosen]
            print(f"{name}: {scores(keys, [record['label'] for record in chosen])}")


if __name__ == "__main__":
    main()
