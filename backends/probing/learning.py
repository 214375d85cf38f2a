"""What an operator takes, inferred from instances that a compiler accepted or refused (as NeuRI and
DeepConstr do for functions of Python).

1. Search (backends/probing/instance_search.py): instances are drawn by the schema, and changed towards what
   is accepted.
2. Generalise an instance that was accepted to a form (gen/declarations/learned.py): each size is changed
   alone, with all sizes that are equal to it, by its multiples, and with each other group of sizes. What may
   change is a letter, what may not a number.
3. Fit the sizes of outputs to what further instances of the form gave.
4. Counter-examples: fresh instances of the form. A form of which fewer than 95 % are accepted loses one
   letter after the other, and is dropped at last. Each runs twice: a form whose results differ is kept only
   where there is no other, and says so.

Pure but for `ask`, which runs instances. Equal seeds and answers give equal forms.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.backends.probing.instance_drawing import reshaped
from opsieve.backends.probing.instance_search import InstanceSearch
from opsieve.backends.probing.trials import Trial, TrialAnswer, TrialInput, drawn_dtypes, elements
from opsieve.gen.declarations.learned import LearnedForm, LearnedOperator, LearnedTensor, SizeTerm
from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import is_float

ENOUGH = 0.95  # of fresh instances of a form are accepted
_MOST_FORMS = 4
_FRESH = 20
_FITTED = 10  # instances by which sizes of outputs are fitted
_LEAST_VARIED = 8
_MOST_PINNED = 64  # elements that a form lists
_WRAPPED = "Status Message:"  # onnxruntime's own words stand behind it
_MOST_SAID = 300
_DRAWS = 1, 2, 3  # elements by which values of an attribute are compared
_FOLLOWED = (3, 2, 1)  # ranks of a body's first input whose sizes its outputs may have
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


Ask = Callable[[DomainSchema, Sequence[Trial]], Sequence[TrialAnswer]]


@dataclass(frozen=True, slots=True)
class Learnt:
    """What came of an operator: its declaration, or None and why; how many instances were asked, and of how
    many the compiler died.
    """

    name: str
    operator: LearnedOperator | None
    reason: str = ""
    asked: int = 0
    died: int = 0


def learn(schema: DomainSchema, domain: str, ask: Ask, seed: int = 0) -> Learnt:
    """Learn the declaration of an operator."""
    why = _beyond(schema)
    if why:
        return Learnt(schema.name, None, why)
    learner = _Learner(schema, ask, Rng(f"learn {domain} {schema.name} {seed}"))
    search = InstanceSearch(schema, learner.rng)
    accepted = search.run(learner.answers, 2 * _MOST_FORMS)
    if not accepted:
        said = search.furthest[1].rpartition(_WRAPPED)[2].strip()[:_MOST_SAID]
        why = f"no instance was accepted; of the one that came furthest was said: {said}"
        return Learnt(schema.name, None, why, learner.asked, learner.died)
    forms = dict[LearnedForm, int]()  # and how many of their instances were accepted
    for trial in accepted:
        form, passed = learner.formed(trial)
        if form is not None and form not in forms:
            forms[form] = passed
        if len(forms) == _MOST_FORMS:
            break
    if not forms:
        why = "no form of an accepted instance holds for others"
        return Learnt(schema.name, None, why, learner.asked, learner.died)
    kept = [form for form in forms if not form.varies] or [*forms]
    operator = LearnedOperator(
        schema.name, domain, tuple(kept), sum(forms[form] for form in kept), len(kept) * _FRESH
    )
    return Learnt(schema.name, operator, "", learner.asked, learner.died)


def _beyond(schema: DomainSchema) -> str:
    """Why no instance can be drawn of an operator, "" where one can."""
    beyond = [name for name in schema.required if schema.attributes[name] in ("GRAPHS", "TENSOR", "TENSORS")]
    if beyond:
        return f"its attribute {beyond[0]} is a {schema.attributes[beyond[0]].lower()}"
    for slot in schema.inputs:
        if not slot.optional and not drawn_dtypes(schema, slot.type):
            return f"its input {slot.name} has no type that can be drawn"
    return "" if schema.inputs else "it has no input"


class _Learner:
    """The search of one operator, and what was asked for it."""

    def __init__(self, schema: DomainSchema, ask: Ask, rng: Rng) -> None:
        self.schema, self.rng, self._ask = schema, rng, ask
        self.asked = self.died = 0

    def answers(self, trials: Sequence[Trial]) -> Sequence[TrialAnswer]:
        """Run some instances."""
        answered = self._ask(self.schema, trials) if trials else ()
        self.asked += len(trials)
        self.died += sum(answer.died for answer in answered)
        return answered

    def accepts(self, trials: Sequence[Trial]) -> list[bool]:
        """Which of some instances are accepted."""
        return [answer.outputs is not None for answer in self.answers(trials)]

    def formed(self, trial: Trial) -> tuple[LearnedForm | None, int]:
        """The widest form of an accepted instance that holds, and how many instances of it were accepted."""
        trial = self._with_documented_values(self._with_following_bodies(trial))
        pinned = _pinned(trial)
        for form_of, of in (
            (self.generalised, trial),
            (self.generalised, pinned),
            (self.as_it_is, trial),
            (self.as_it_is, pinned),
        ):
            form, passed = self.checked(form_of(of)) if of is trial or pinned != trial else (None, 0)
            if form is not None:
                break
        return form, passed

    def _with_following_bodies(self, trial: Trial) -> Trial:
        """The instance whose bodies give sizes of what they are called with, as far as that is accepted: with
        fixed sizes they are right for one call.
        """
        for name, body in trial.attributes.items():
            if isinstance(body, LearnedBody):
                made = [body.following(rank) for rank in _FOLLOWED]
                trials = [replace(trial, attributes={**trial.attributes, name: each}) for each in made]
                trial = next((t for t, ok in zip(trials, self.accepts(trials), strict=True) if ok), trial)
        return trial

    def _with_documented_values(self, trial: Trial) -> Trial:
        """The instance with values that the documentation names, or 0, 1 or none, for attributes whose own it
        does not and which give the same: a flag may be read as one in two ways.
        """
        for name, value in [*trial.attributes.items()]:
            documented = self._documented(name)
            if not documented or value in documented:
                continue
            made = [replace(trial, attributes={**trial.attributes, name: each}) for each in documented]
            if name not in self.schema.required:
                made.append(
                    replace(trial, attributes={k: v for k, v in trial.attributes.items() if k != name})
                )
            asked = [[replace(each, draw=draw) for draw in _DRAWS] for each in (trial, *made)]
            answers = iter(self.answers([each for draws in asked for each in draws]))
            own, *rest = [[next(answers) for _ in draws] for draws in asked]
            if all(answer.outputs is not None for answer in own):
                trial = next((each for each, found in zip(made, rest, strict=True) if found == own), trial)
        return trial

    def _documented(self, name: str) -> Sequence[Any]:
        """The values of an attribute of one number or word that its documentation names, and those of a
        flag.
        """
        kind = self.schema.attributes[name]
        if kind == "STRING":
            return self.schema.words.get(name, ())
        return tuple(dict.fromkeys((*self.schema.numbers.get(name, ()), 0, 1))) if kind == "INT" else ()

    # 2

    def generalised(self, trial: Trial) -> LearnedForm | None:
        """The form of an accepted instance; None where the sizes of its outputs are not found."""
        varied = [(i, each) for i, each in enumerate(trial.inputs) if each is not None and not each.values]
        spots = [(i, axis) for i, each in varied for axis in range(len(each.shape))]
        size = {spot: trial.inputs[spot[0]].shape[spot[1]] for spot in spots}  # type: ignore[union-attr]  # spots are of those
        terms: dict[tuple[int, int], SizeTerm] = {spot: SizeTerm(size[spot]) for spot in spots}
        free = [s for s, ok in zip(spots, self._varied(trial, [[s] for s in spots], size), strict=True) if ok]
        letters = iter(_LETTERS)
        for spot in free:
            terms[spot] = SizeTerm(1, next(letters, "z"))
        tied = [spot for spot in spots if spot not in free]
        left: list[list[tuple[int, int]]] = []
        # What is documented as one size, then what is as large.
        for key in ({spot: _named_size(trial, spot) for spot in tied}, size):
            groups = [
                [spot for spot in tied if key[spot] == value] for value in dict.fromkeys(key[s] for s in tied)
            ]
            left = []
            for group, ok in zip(groups, self._varied(trial, groups, size), strict=True):
                if ok:
                    letter = next(letters, "z")
                    terms.update((spot, SizeTerm(1, letter)) for spot in group)
                else:
                    left.append(group)
            tied = [spot for group in left for spot in group]
        left = [group for group in left if size[group[0]]]  # an empty one has no multiples
        doubled = self.accepts([_scaled(trial, group, 2) for group in left])
        for group, ok in zip(left, doubled, strict=True):
            if ok:
                letter = next(letters, "z")
                terms.update((spot, SizeTerm(size[group[0]], letter)) for spot in group)
        stuck = [group for group, ok in zip(left, doubled, strict=True) if not ok]
        self._in_pairs(trial, stuck, size, terms, letters)
        return self._fitted(self._typed(trial, terms))

    def as_it_is(self, trial: Trial) -> LearnedForm | None:
        """The form of instances with the sizes of one, and other elements."""
        shapes = [(i, each.shape) for i, each in enumerate(trial.inputs) if each is not None]
        return self._fitted(
            self._typed(
                trial, {(i, axis): SizeTerm(side) for i, shape in shapes for axis, side in enumerate(shape)}
            )
        )

    def _varied(
        self, trial: Trial, groups: Sequence[Sequence[tuple[int, int]]], size: Mapping[tuple[int, int], int]
    ) -> list[bool]:
        """Of which groups of sizes all may be one more, and all several more."""
        trials = [_grown(trial, group, more) for group in groups for more in (1, 4)]
        answers = self.accepts(trials)
        return [all(answers[2 * place : 2 * place + 2]) for place in range(len(groups))]

    def _in_pairs(
        self,
        trial: Trial,
        stuck: Sequence[list[tuple[int, int]]],
        size: Mapping[tuple[int, int], int],
        terms: dict[tuple[int, int], SizeTerm],
        letters: Iterator[str],
    ) -> None:
        """Groups that only change together: their sizes have a common factor that is a letter."""
        pairs = list(itertools.combinations(stuck, 2))
        answers = self.accepts([_scaled(trial, [*a, *b], 2) for a, b in pairs])
        done: set[tuple[int, int]] = set()
        for (a, b), ok in zip(pairs, answers, strict=True):
            if not ok or done & {*a, *b}:
                continue
            letter, common = next(letters, "z"), math.gcd(size[a[0]], size[b[0]])
            if self.accepts([_scaled(trial, [*a, *b], 1, common)])[0]:
                terms.update((spot, SizeTerm(size[spot] // common, letter)) for spot in (*a, *b))
            else:
                terms.update((spot, SizeTerm(size[spot], letter)) for spot in (*a, *b))
            done |= {*a, *b}

    def _typed(self, trial: Trial, terms: Mapping[tuple[int, int], SizeTerm]) -> LearnedForm:
        ins = tuple(
            None
            if each is None
            else LearnedTensor(
                each.dtype,
                tuple(
                    SizeTerm(side) if each.values else terms[i, axis] for axis, side in enumerate(each.shape)
                ),
                each.low,
                each.high,
                each.values,
                each.constant,
                each.sparse,
            )
            for i, each in enumerate(trial.inputs)
        )
        return LearnedForm(ins, (), {name: (value,) for name, value in trial.attributes.items()})

    # 3

    def instances(self, form: LearnedForm, count: int) -> list[tuple[dict[str, int], Trial]]:
        """Instances of a form, and the sizes that its letters have in each."""
        found = []
        for _ in range(count):
            sizes = {letter: self.rng.between(1, _LEAST_VARIED) for letter in form.letters}
            ins = []
            for each in form.inputs:
                shape = None if each is None else each.shape(sizes)
                ins.append(
                    None
                    if each is None or shape is None
                    else TrialInput(
                        each.dtype, shape, each.low, each.high, each.values, each.constant, each.sparse
                    )
                )
            attributes = {name: self.rng.choice(values) for name, values in form.attributes.items()}
            found.append((sizes, Trial(tuple(ins), attributes, None, self.rng.below(1 << 30))))
        return found

    def _fitted(self, form: LearnedForm) -> LearnedForm | None:
        """The form with its outputs: a term for each size that agrees with all instances that were
        accepted.
        """
        made = self.instances(form, _FITTED)
        seen = [
            (sizes, answer.outputs)
            for (sizes, _), answer in zip(made, self.answers([trial for _, trial in made]), strict=True)
            if answer.outputs is not None
        ]
        if not seen:
            return None
        kinds = {tuple((dtype, len(shape)) for dtype, shape in outputs) for _, outputs in seen}
        if len(kinds) != 1:
            return None
        outs = []
        for place, (dtype, rank) in enumerate(next(iter(kinds))):
            terms = [
                _fit([(sizes, outputs[place][1][axis]) for sizes, outputs in seen]) for axis in range(rank)
            ]
            outs.append(LearnedTensor(dtype, tuple(terms)))
        return replace(form, outputs=tuple(outs))

    # 4

    def checked(self, form: LearnedForm | None) -> tuple[LearnedForm | None, int]:
        """The form where enough of fresh instances are accepted as it says, if need be with fewer letters;
        and how many were accepted.
        """
        if form is None:
            return None, 0
        for narrowed in (form, *(_without(form, letter) for letter in form.letters)):
            made = self.instances(narrowed, _FRESH)
            answers = self.answers([trial for _, trial in made])
            good = sum(
                _as_said(narrowed, sizes, answer) for (sizes, _), answer in zip(made, answers, strict=True)
            )
            if good >= ENOUGH * _FRESH:
                return replace(narrowed, varies=any(answer.varies for answer in answers)), good
        return None, 0


def _named_size(trial: Trial, spot: tuple[int, int]) -> str:
    """What the documentation calls a size of an instance; else how large it is."""
    place, axis = spot
    shape = trial.plan.shapes.get(place) if trial.plan is not None else None
    each = trial.inputs[place]
    return shape[axis] if shape and axis < len(shape) else str(each and each.shape[axis])


def _with_sizes(trial: Trial, changed: Mapping[tuple[int, int], int]) -> Trial:
    ins = tuple(
        each and reshaped(each, tuple(changed.get((i, axis), side) for axis, side in enumerate(each.shape)))
        for i, each in enumerate(trial.inputs)
    )
    return replace(trial, inputs=ins)


def _pinned(trial: Trial) -> Trial:
    """The instance with the very elements of its inputs of few whole numbers: an operator may look at
    them.
    """
    ins = []
    for place, each in enumerate(trial.inputs):
        few = each is not None and not is_float(each.dtype) and 0 < math.prod(each.shape) <= _MOST_PINNED
        if few and each is not None and not each.sparse and each.dtype not in ("string", "bool"):
            each = replace(each, values=tuple(int(number) for number in elements(trial, place).ravel()))
        ins.append(each)
    return replace(trial, inputs=tuple(ins))


def _grown(trial: Trial, group: Sequence[tuple[int, int]], more: int) -> Trial:
    return _with_sizes(trial, {spot: trial.inputs[spot[0]].shape[spot[1]] + more for spot in group})  # type: ignore[union-attr]


def _scaled(trial: Trial, group: Sequence[tuple[int, int]], factor: int, divisor: int = 1) -> Trial:
    return _with_sizes(
        trial,
        {spot: trial.inputs[spot[0]].shape[spot[1]] * factor // divisor for spot in group},  # type: ignore[union-attr]
    )


def _fit(seen: Sequence[tuple[Mapping[str, int], int]]) -> SizeTerm:
    """A term that gives a size in all instances: a number, a letter with a factor, a product, a sum; else
    unknown.
    """
    letters = tuple(seen[0][0])
    first = seen[0][1]
    whole = (
        SizeTerm(first // sizes[x], x) for x in letters for sizes in (seen[0][0],) if first % sizes[x] == 0
    )
    pairs = itertools.combinations_with_replacement(letters, 2)
    both = (SizeTerm(1, a, operation, b) for a, b in pairs for operation in "*+")
    for term in (SizeTerm(first), *(term for term in whole if term.factor), *both):
        if all(term.value(sizes) == side for sizes, side in seen):
            return term
    return SizeTerm(unknown=True)


def _without(form: LearnedForm, letter: str) -> LearnedForm:
    """The form in which a letter is 2."""

    def fixed(term: SizeTerm) -> SizeTerm:
        if letter not in (term.first, term.second):
            return term
        if not term.operation:
            return SizeTerm(2 * term.factor)
        other = term.second if term.first == letter else term.first
        if other == letter:
            return SizeTerm(4)
        return SizeTerm(2, other) if term.operation == "*" else SizeTerm(unknown=True)

    def of(tensor: LearnedTensor) -> LearnedTensor:
        return replace(tensor, sizes=tuple(map(fixed, tensor.sizes)))

    ins = tuple(each and of(each) for each in form.inputs)
    return replace(form, inputs=ins, outputs=tuple(map(of, form.outputs)))


def _as_said(form: LearnedForm, sizes: Mapping[str, int], answer: TrialAnswer) -> bool:
    if answer.outputs is None or len(answer.outputs) != len(form.outputs):
        return False
    for out, (dtype, shape) in zip(form.outputs, answer.outputs, strict=True):
        wanted = [term.value(sizes) for term in out.sizes]
        if out.dtype != dtype or len(wanted) != len(shape):
            return False
        if any(value is not None and value != side for value, side in zip(wanted, shape, strict=True)):
            return False
    return True
