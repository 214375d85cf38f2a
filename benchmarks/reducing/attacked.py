"""Results of `reduce`, attacked by the edits that a person tries by hand: is one smaller model left that
fails in the same way?

The edits are written for this and share nothing with the passes of the reducer: a conversion dropped and the
types around it changed, results replaced by what was recorded, inputs merged, ranks lowered everywhere, sizes
lowered everywhere, one element type for another, attributes dropped together, each operator alone, and every
two of them. A result is beaten by a model that is valid (also by the declarations of its operators), simpler
in the reducer's order whatever its names, and shows the failure by the reducer's own test.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from benchmarks.reducing.further_edits import further_edits
from benchmarks.reducing.hand_edits import Edited, Values, edited
from benchmarks.reducing.two_bugs import GROUPS, SAMPLES

from opsieve.backends.registry import resolve
from opsieve.backends.workers.workers import Workers
from opsieve.gen.analysis.validity import check_model
from opsieve.gen.case.case import is_case, load
from opsieve.gen.case.open_case import open_case
from opsieve.gen.errors import NoFailure
from opsieve.reducer.engine.journal import Journal
from opsieve.reducer.irs.onnx import OnnxReduction
from opsieve.reducer.onnx_edit.canonical_names import renamed
from opsieve.reducer.oracle.discover import find
from opsieve.reducer.oracle.validator import OnnxValidator
from opsieve.reducer.problem.order import _PARTS, simpler
from opsieve.reducer.problem.recording import recorded
from opsieve.reducer.problem.subject import Subject
from opsieve.reducer.sessions.reduction import Listeners, Reduction, interestingness_of, reduce_failure

# Folders of a directory of failing cases, by the target that their name begins with.
PREFIXES = {
    "ort_": "onnxruntime",
    "onnxscript_": "onnxscript",
    "onnxslim_": "onnxslim",
    "onnxsim_": "onnxsim",
    "onnxoptimizer_": "onnxoptimizer",
    "tvm_": "tvm",
}
_MOST = 400  # smaller models tried against one result
_FIRSTS, _SECONDS = 40, 20  # edits drawn to be followed by a second one, and the second ones drawn for each


@dataclass(frozen=True, slots=True)
class Attack:
    """One result: how many edits were tried on it, how many made a smaller valid model, and those that beat
    it.
    """

    name: str
    operators: tuple[str, ...]
    tried: int
    valid: int
    beaten: tuple[str, ...]
    minimal: bool  # what the certificate said


def attack_all(cases: Sequence[Path], most: int, seed: int, workers: Workers) -> Iterator[Attack]:
    """Reduce each case and attack what comes out: the samples where no folders are given, else the cases
    within them.
    """
    found = [(SAMPLES / name, target) for target, names in GROUPS.items() for name in names]
    if cases:
        paths = [path for folder in cases for path in sorted({*folder.iterdir(), *folder.glob("*/1")})]
        found = [each for path in paths for each in _with_target(path)]
    done = 0
    for path, target in found:
        if done == most:
            return
        try:
            attack = _attacked(path, target, seed, workers)
        except NoFailure as error:
            print(f"{path.name}: left out, {error}"[:200].replace("\n", " "), flush=True)
            continue
        done += 1
        yield attack


def _with_target(path: Path) -> Iterator[tuple[Path, str]]:
    """A case with the target that it was found on (a store has its cases one folder deeper), or that its name
    begins with; nothing for no case.
    """
    named = load(path).parameters.get("target", "") if is_case(path) else ""
    prefixed = [target for prefix, target in PREFIXES.items() if path.name.startswith(prefix)]
    for target in [named] if named else prefixed:
        yield path, target


def _attacked(path: Path, target: str, seed: int, workers: Workers) -> Attack:
    case = open_case(path)
    premise = find(case, [resolve(target)], None, workers)
    form = OnnxReduction()
    result: Reduction[Subject] = reduce_failure(
        form, form.subject(case), premise, [workers], "fingerprint", Journal(""), Listeners()
    )
    best = recorded(result.best, premise.target.baseline, workers)
    candidates = list(itertools.islice(_smaller(best, seed), _MOST))
    complaints = OnnxValidator(workers, best).complaints([subject for _, subject in candidates])
    sound = [each for each, complaint in zip(candidates, complaints, strict=True) if not complaint]
    test = interestingness_of(premise, workers, "fingerprint", form.subject(case))
    answers = list(test.evaluate([subject for _, subject in sound]))
    beaten = tuple(label for (label, _), answer in zip(sound, answers, strict=True) if answer.kind == "same")
    operators = tuple(result.best.program.operators())
    name = path.parent.name if path.name == "1" else path.name
    return Attack(name, operators, len(candidates), len(sound), beaten, result.minimal)


def _smaller(best: Subject, seed: int) -> Iterator[tuple[str, Subject]]:
    """Smaller models by one edit, and then by two of them in a drawn order, as far as the declarations allow
    them.
    """
    held: Values = {**best.values, **best.inputs}
    named = _named(best.model, best.inputs)
    faulty = bool(check_model(best.model, best.inputs).fault)
    seen = {named.program.data}
    singles = []
    for label, model, inputs in _every(best.model, best.inputs, held):
        subject = _named(model, inputs)
        if subject.program.data not in seen:
            seen.add(subject.program.data)
            singles.append((label, model, inputs))
            if _smaller_than(subject, named) and (faulty or not check_model(model, inputs).fault):
                yield label, subject
    random.Random(seed).shuffle(singles)
    for one, first, fed in singles[:_FIRSTS]:
        seconds = list(_every(first, fed, held))
        for other, model, inputs in random.Random(one).sample(seconds, min(len(seconds), _SECONDS)):
            subject = _named(model, inputs)
            if subject.program.data not in seen and _smaller_than(subject, named):
                seen.add(subject.program.data)
                if faulty or not check_model(model, inputs).fault:
                    yield f"{one}, {other}", subject


def _smaller_than(subject: Subject, other: Subject) -> bool:
    """Smaller in more than which of two texts of one length stands first in the alphabet."""
    return simpler(subject, other) and any(part(subject) != part(other) for part in _PARTS[:-1])


def _every(model: onnx.ModelProto, inputs: Values, held: Values) -> Iterator[Edited]:
    yield from edited(model, inputs, held)
    yield from further_edits(model, inputs, held)


def _named(model: onnx.ModelProto, inputs: Values) -> Subject:
    """Under canonical names and without the types of results, which are no part of what is compared."""
    bare = onnx.ModelProto.FromString(model.SerializeToString())
    del bare.graph.value_info[:]
    subject = Subject(bare, inputs, {})
    return renamed(subject) or subject


def report(cases: Sequence[Path], most: int, seed: int) -> None:
    """A line for each result, and how many were beaten."""
    with Workers() as workers:
        attacks = []
        for attack in attack_all(cases, most, seed, workers):
            attacks.append(attack)
            end = f"BEATEN by: {'; '.join(attack.beaten[:3])}" if attack.beaten else "stands"
            end += "" if attack.minimal else ", not certified"
            operators = " ".join(attack.operators)
            print(
                f"{attack.name} ({operators}): {attack.tried} edits, {attack.valid} valid, {end}", flush=True
            )
    beaten = sum(bool(attack.beaten) for attack in attacks)
    tried, valid = sum(attack.tried for attack in attacks), sum(attack.valid for attack in attacks)
    print(
        f"{len(attacks)} results, {tried} smaller models tried, {valid} of them valid: {beaten} results"
        " beaten"
    )
