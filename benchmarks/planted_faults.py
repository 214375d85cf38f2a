"""What the judge sees of planted optimiser faults: onnxruntime whose optimised builds run a graph that was
altered after the fact.

    python benchmarks/planted_faults.py --faults 300 --seed 0

In each random program one node is dropped, or gets another attribute, another constant, swapped operands,
another type on the way, or an axis that is off by one. Both optimised levels of onnxruntime run the altered
graph, its unoptimised build the true one, and a campaign's own order of questions judges them. A fault that
the reference, in the program's own types, computes as it or float64 computes the true program (on these
inputs, by the policy) is equivalent and does not count. Prints the share seen and the share blamed on the
optimiser by kind of fault, and each that was missed.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from opsieve.backends.compare import compare
from opsieve.backends.judge.judge import judge_program
from opsieve.backends.judge.judging_session import list_open_rules
from opsieve.backends.judge.oracles import FLOAT64, NATIVE, SECOND_ORACLES
from opsieve.backends.observation import Observation
from opsieve.backends.probing.prober import probe_targets
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Test, Workers
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program
from opsieve.triage.campaign.plan import USUAL, CampaignPlan
from opsieve.triage.campaign.testing import find_agreeing

KINDS = ("dropped", "attribute", "constant", "swapped", "dtype", "axis")
LEVELS = (resolve("onnxruntime"), resolve("onnxruntime:extended"))
_AXES = ("axis", "axes", "batch_axis", "time_axis")


class Altering(ObservationCache):
    """A lab whose optimised onnxruntime runs an altered graph."""

    fault: tuple[str, str] | None = None  # a kind, and the first output of the node

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        """What the target makes of the program; of the altered one where it is an optimised level."""
        if target.unrewritten in LEVELS and self.fault is not None and isinstance(program, OnnxProgram):
            program = altered(program, *self.fault) or program
        return super().observe(target, program, inputs, fresh=fresh, repeat=repeat)


def altered(program: OnnxProgram, kind: str, output: str) -> OnnxProgram | None:
    """The program with a fault at the node that makes `output`; None where it has no such node or the fault
    does not fit.
    """
    model = ModelProto()
    model.CopyFrom(program.proto)
    node = next((node for node in model.graph.node if node.output and node.output[0] == output), None)
    if node is None or not _alter(model, node, kind):
        return None
    return OnnxProgram(model.SerializeToString(), program.name)


def _alter(model: ModelProto, node: NodeProto, kind: str) -> bool:
    if kind == "dropped":
        if not node.input or len(node.output) != 1:
            return False
        replacement = helper.make_node("Identity", [node.input[0]], list(node.output), node.name)
        node.CopyFrom(replacement)
        return True
    if kind == "swapped":
        if len(node.input) < 2 or node.input[0] == node.input[1]:
            return False
        node.input[0], node.input[1] = node.input[1], node.input[0]
        return True
    if kind in ("attribute", "axis"):
        for attribute in node.attribute:
            if (attribute.name in _AXES) != (kind == "axis"):
                continue
            if attribute.type == attribute.FLOAT:
                attribute.f = attribute.f * 2 + 0.125
                return True
            if attribute.type == attribute.INT and attribute.name not in ("to", "dtype"):
                attribute.i = attribute.i - 1 if attribute.i > 0 else attribute.i + 1
                return True
            if attribute.type == attribute.INTS and attribute.ints:
                attribute.ints[0] = attribute.ints[0] - 1 if attribute.ints[0] > 0 else attribute.ints[0] + 1
                return True
        return False
    if kind == "constant":
        for tensor in model.graph.initializer:
            if tensor.name in node.input and tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE):
                array = np.array(numpy_helper.to_array(tensor))
                if array.size:
                    array.flat[0] = array.flat[0] * 1.25 + 0.125
                    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
                    return True
        return False
    return _through_half(model, node)


def _through_half(model: ModelProto, node: NodeProto) -> bool:
    """A float32 result that takes the way through float16."""
    declared = {
        value.name: value.type.tensor_type.elem_type
        for value in (*model.graph.value_info, *model.graph.output)
    }
    if len(node.output) != 1 or declared.get(node.output[0]) != TensorProto.FLOAT:
        return False
    name = node.output[0]
    place = list(model.graph.node).index(node)
    node.output[0] = f"{name}_wide"
    rest = [
        helper.make_node("Cast", [f"{name}_wide"], [f"{name}_half"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT),
    ]
    nodes = [*model.graph.node[: place + 1], *rest, *model.graph.node[place + 1 :]]
    copies = [NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return True


def planted(plan: CampaignPlan, seed: int) -> Iterator[tuple[int, Any, str, str]]:
    """Cases with a fault each: the test's number, the case, the kind of fault and the node's first output."""
    number = 0
    while True:
        case = plan.make_case(seed, number)
        draw = random.Random(number)
        if isinstance(case.program, OnnxProgram):
            nodes = [node for node in case.program.proto.graph.node if node.output]
            for kind in draw.sample(KINDS, len(KINDS)):
                found = [node for node in nodes if altered(case.program, kind, node.output[0]) is not None]
                if found:
                    yield number, case, kind, draw.choice(found).output[0]
                    break
        number += 1


def judged(case: Any, fault: tuple[str, str], lab: Altering) -> tuple[str, str, str]:
    """`equivalent`, `seen`, `missed` or `unclear` with the verdict and the blame, by a campaign's order of
    questions.
    """
    program, inputs, target = case.program, case.inputs, LEVELS[0]
    lab.fault = None
    wrong = altered(program, *fault)
    truth = lab.observe(FLOAT64, program, inputs)
    other = lab.observe(NATIVE, wrong, inputs) if wrong is not None else truth
    if truth.outputs is None:
        return "unclear", "no reference", ""
    if list_open_rules(truth.hazards, None):
        return "unclear", "undefined results", ""
    plain = lab.observe(NATIVE, program, inputs)
    for right in (truth.outputs, plain.outputs):
        both = other.outputs is not None and right is not None
        if both and compare(other.outputs or {}, right or {}, program.output_dtypes()).agrees:
            return "equivalent", "", ""
    if not lab.observe(resolve("onnxruntime:disable_all"), program, inputs).outputs:
        return "unclear", "unoptimised build has none", ""
    lab.fault = fault
    builds = [*LEVELS, resolve("onnxruntime:disable_all")]
    if target in find_agreeing(Test(program, inputs), builds, lab):
        return "missed", "pass by agreement", ""
    oracles = [oracle for oracle in [*builds, *SECOND_ORACLES] if oracle != target]
    verdict = judge_program(program, inputs, target, lab, oracles=oracles).verdict
    return (
        ("seen" if verdict.verdict == "fail" else "missed"),
        verdict.verdict,
        verdict.blame or verdict.reason[:300],
    )


def main() -> None:
    """Plant, judge and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found: Counter[tuple[str, str]] = Counter()
    blamed: Counter[str] = Counter()
    with Workers() as workers:
        lab = Altering(workers)
        plan = CampaignPlan(request=USUAL, supports=tuple(probe_targets(workers, [LEVELS[0]])))
        for count, (number, case, kind, output) in enumerate(planted(plan, asked.seed)):
            if count == asked.faults:
                break
            end, verdict, blame = judged(case, (kind, output), lab)
            lab.forget_all()
            found[kind, end] += 1
            blamed[kind] += end == "seen" and blame == "optimiser"
            if end == "missed":
                print(f"{number:5} {kind} at {output}: {verdict} {blame}", flush=True)
    for kind in (*KINDS, "all"):
        ends = {
            end: sum(n for (k, e), n in found.items() if e == end and kind in (k, "all")) for _, end in found
        }
        real = ends.get("seen", 0) + ends.get("missed", 0)
        right = sum(n for k, n in blamed.items() if kind in (k, "all"))
        print(f"{kind:10} {real:4} real, {ends.get('seen', 0) / max(real, 1):.3f} seen, {right / max(real, 1):.3f} blamed on the optimiser; "
              f"{ends.get('equivalent', 0)} equivalent, {ends.get('unclear', 0)} unclear")  # fmt: skip


if __name__ == "__main__":
    main()
