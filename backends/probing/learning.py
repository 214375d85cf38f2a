"""Infer an operator's declaration from accepted and refused instances (as NeuRI and DeepConstr do for Python
functions).

1. Search (backends/probing/instance_search.py): instances are drawn by the schema, and changed until they are
accepted.
2. Generalise an accepted instance to a form (gen/declarations/learned.py): each size is changed alone, with
all equal sizes, by its multiples, and with each other group of sizes. Sizes that may change become letters,
others numbers.
3. Fit the sizes of outputs to the results of further instances of the form.
4. Counter-examples: fresh instances of the form. A form of which fewer than 95 % are accepted loses one
letter after the other, and is dropped at last.

Each instance runs twice: a form with differing results is kept only without an alternative, and says so. Pure
except for `ask`, which runs instances. Equal seeds and answers give equal forms.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsieve.backends.probing.domain_schemas import DomainSchema
from opsieve.backends.probing.instance_drawing import reshape_input
from opsieve.backends.probing.instance_search import InstanceSearch
from opsieve.backends.probing.trials import Trial, TrialAnswer, TrialInput, draw_elements, list_dtypes
from opsieve.gen.declarations.learned import LearnedForm, LearnedOperator, LearnedTensor, SizeTerm
from opsieve.gen.declarations.learned_body import LearnedBody
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.declarations.tensor import is_float

# Of fresh instances of a form are accepted
ENOUGH = 0.95
_MOST_FORMS = 4
_FRESH = 20
# Instances by which sizes of outputs are fitted
_FITTED = 10
_LEAST_VARIED = 8
# Elements that a form lists
_MOST_PINNED = 64
# onnxruntime's own message follows this prefix.
_WRAPPED = "Status Message:"
_MOST_SAID = 300
# Elements by which values of an attribute are compared
_DRAWS = 1, 2, 3
# Ranks of a body's first input whose sizes its outputs may have
_FOLLOWED = (3, 2, 1)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


Ask = Callable[[DomainSchema, Sequence[Trial]], Sequence[TrialAnswer]]


@dataclass(frozen=True, slots=True)
class Learnt:
    """The result for an operator: its declaration, or the reason for its absence; the numbers of instances
    and crashes.
    """

    name: str
    operator: LearnedOperator | None
    reason: str = ""
    asked: int = 0
    died: int = 0


def learn_operator(schema: DomainSchema, domain: str, ask: Ask, seed: int = 0) -> Learnt:
    """Learn the declaration of an operator."""
    why = _find_obstacle(schema)
    if why:
        return Learnt(schema.name, None, why)
    learner = _Learner(schema, ask, Rng(f"learn {domain} {schema.name} {seed}"))
    search = InstanceSearch(schema, learner.rng)
    accepted = search.search_instances(learner.run_trials, 2 * _MOST_FORMS)
    if not accepted:
        said = search.furthest[1].rpartition(_WRAPPED)[2].strip()[:_MOST_SAID]
        why = f"no instance was accepted; of the one that came furthest was said: {said}"
        return Learnt(schema.name, None, why, learner.asked, learner.died)
    # And how many of their instances were accepted
    forms = dict[LearnedForm, int]()
    for trial in accepted:
        form, passed = learner.find_form(trial)
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


def _find_obstacle(schema: DomainSchema) -> str:
    """Return why instances of an operator cannot be drawn, or ""."""
    beyond = [name for name in schema.required if schema.attributes[name] in ("GRAPHS", "TENSOR", "TENSORS")]
    if beyond:
        return f"its attribute {beyond[0]} is a {schema.attributes[beyond[0]].lower()}"
    for slot in schema.inputs:
        if not slot.optional and not list_dtypes(schema, slot.type):
            return f"its input {slot.name} has no type that can be drawn"
    return "" if schema.inputs else "it has no input"


class _Learner:
    """The search for one operator, with counts of its instances and crashes."""

    def __init__(self, schema: DomainSchema, ask: Ask, rng: Rng) -> None:
        self.schema, self.rng, self._ask = schema, rng, ask
        self.asked = self.died = 0

    def run_trials(self, trials: Sequence[Trial]) -> Sequence[TrialAnswer]:
        """Run instances."""
        answered = self._ask(self.schema, trials) if trials else ()
        self.asked += len(trials)
        self.died += sum(answer.died for answer in answered)
        return answered

    def list_accepted(self, trials: Sequence[Trial]) -> list[bool]:
        """Run instances and return which are accepted."""
        return [answer.outputs is not None for answer in self.run_trials(trials)]

    def find_form(self, trial: Trial) -> tuple[LearnedForm | None, int]:
        """Find the widest valid form of an accepted instance, and how many of its instances were accepted."""
        trial = self._use_documented_values(self._let_bodies_follow(trial))
        pinned = _pin_elements(trial)
        for form_of, of in (
            (self.generalise, trial),
            (self.generalise, pinned),
            (self.make_fixed_form, trial),
            (self.make_fixed_form, pinned),
        ):
            form, passed = self.check_form(form_of(of)) if of is trial or pinned != trial else (None, 0)
            if form is not None:
                break
        return form, passed

    def _let_bodies_follow(self, trial: Trial) -> Trial:
        """Let bodies take sizes from their arguments if that is accepted: fixed sizes are right for one call
        only.
        """
        for name, body in trial.attributes.items():
            if isinstance(body, LearnedBody):
                made = [body.following(rank) for rank in _FOLLOWED]
                trials = [replace(trial, attributes={**trial.attributes, name: each}) for each in made]
                trial = next(
                    (t for t, ok in zip(trials, self.list_accepted(trials), strict=True) if ok), trial
                )
        return trial

    def _use_documented_values(self, trial: Trial) -> Trial:
        """Replace undocumented attribute values by documented ones, 0, 1 or absence, if the outputs stay
        equal.
        """
        for name, value in [*trial.attributes.items()]:
            documented = self._list_documented(name)
            if not documented or value in documented:
                continue
            made = [replace(trial, attributes={**trial.attributes, name: each}) for each in documented]
            if name not in self.schema.required:
                made.append(
                    replace(trial, attributes={k: v for k, v in trial.attributes.items() if k != name})
                )
            asked = [[replace(each, draw=draw) for draw in _DRAWS] for each in (trial, *made)]
            answers = iter(self.run_trials([each for draws in asked for each in draws]))
            own, *rest = [[next(answers) for _ in draws] for draws in asked]
            if all(answer.outputs is not None for answer in own):
                trial = next((each for each, found in zip(made, rest, strict=True) if found == own), trial)
        return trial

    def _list_documented(self, name: str) -> Sequence[Any]:
        """List the documented values of an attribute of one number or word, and those of a flag."""
        kind = self.schema.attributes[name]
        if kind == "STRING":
            return self.schema.words.get(name, ())
        return tuple(dict.fromkeys((*self.schema.numbers.get(name, ()), 0, 1))) if kind == "INT" else ()

    # 2

    def generalise(self, trial: Trial) -> LearnedForm | None:
        """Generalise an accepted instance to a form; None if the sizes of its outputs cannot be explained."""
        varied = [(i, each) for i, each in enumerate(trial.inputs) if each is not None and not each.values]
        spots = [(i, axis) for i, each in varied for axis in range(len(each.shape))]
        # Spots are of those
        size = {spot: trial.inputs[spot[0]].shape[spot[1]] for spot in spots}  # type: ignore[union-attr]
        terms: dict[tuple[int, int], SizeTerm] = {spot: SizeTerm(size[spot]) for spot in spots}
        free = [
            s for s, ok in zip(spots, self._test_groups(trial, [[s] for s in spots], size), strict=True) if ok
        ]
        letters = iter(_LETTERS)
        for spot in free:
            terms[spot] = SizeTerm(1, next(letters, "z"))
        tied = [spot for spot in spots if spot not in free]
        left: list[list[tuple[int, int]]] = []
        # What is documented as one size, then what is as large.
        for key in ({spot: _name_size(trial, spot) for spot in tied}, size):
            groups = [
                [spot for spot in tied if key[spot] == value] for value in dict.fromkeys(key[s] for s in tied)
            ]
            left = []
            for group, ok in zip(groups, self._test_groups(trial, groups, size), strict=True):
                if ok:
                    letter = next(letters, "z")
                    terms.update((spot, SizeTerm(1, letter)) for spot in group)
                else:
                    left.append(group)
            tied = [spot for group in left for spot in group]
        # An empty one has no multiples
        left = [group for group in left if size[group[0]]]
        doubled = self.list_accepted([_scale_group(trial, group, 2) for group in left])
        for group, ok in zip(left, doubled, strict=True):
            if ok:
                letter = next(letters, "z")
                terms.update((spot, SizeTerm(size[group[0]], letter)) for spot in group)
        stuck = [group for group, ok in zip(left, doubled, strict=True) if not ok]
        self._test_pairs(trial, stuck, size, terms, letters)
        return self._fit_outputs(self._make_form(trial, terms))

    def make_fixed_form(self, trial: Trial) -> LearnedForm | None:
        """Make the form with the sizes of one instance and other elements."""
        shapes = [(i, each.shape) for i, each in enumerate(trial.inputs) if each is not None]
        return self._fit_outputs(
            self._make_form(
                trial, {(i, axis): SizeTerm(side) for i, shape in shapes for axis, side in enumerate(shape)}
            )
        )

    def _test_groups(
        self, trial: Trial, groups: Sequence[Sequence[tuple[int, int]]], size: Mapping[tuple[int, int], int]
    ) -> list[bool]:
        """Test which groups of sizes may grow by one and by several."""
        trials = [_grow_group(trial, group, more) for group in groups for more in (1, 4)]
        answers = self.list_accepted(trials)
        return [all(answers[2 * place : 2 * place + 2]) for place in range(len(groups))]

    def _test_pairs(
        self,
        trial: Trial,
        stuck: Sequence[list[tuple[int, int]]],
        size: Mapping[tuple[int, int], int],
        terms: dict[tuple[int, int], SizeTerm],
        letters: Iterator[str],
    ) -> None:
        """Find groups that only change together: their sizes have a common factor, which becomes a letter."""
        pairs = list(itertools.combinations(stuck, 2))
        answers = self.list_accepted([_scale_group(trial, [*a, *b], 2) for a, b in pairs])
        done: set[tuple[int, int]] = set()
        for (a, b), ok in zip(pairs, answers, strict=True):
            if not ok or done & {*a, *b}:
                continue
            letter, common = next(letters, "z"), math.gcd(size[a[0]], size[b[0]])
            if self.list_accepted([_scale_group(trial, [*a, *b], 1, common)])[0]:
                terms.update((spot, SizeTerm(size[spot] // common, letter)) for spot in (*a, *b))
            else:
                terms.update((spot, SizeTerm(size[spot], letter)) for spot in (*a, *b))
            done |= {*a, *b}

    def _make_form(self, trial: Trial, terms: Mapping[tuple[int, int], SizeTerm]) -> LearnedForm:
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

    def draw_instances(self, form: LearnedForm, count: int) -> list[tuple[dict[str, int], Trial]]:
        """Draw instances of a form, with the sizes of its letters in each."""
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

    def _fit_outputs(self, form: LearnedForm) -> LearnedForm | None:
        """Add the outputs to the form: a term for each size that agrees with all accepted instances."""
        made = self.draw_instances(form, _FITTED)
        seen = [
            (sizes, answer.outputs)
            for (sizes, _), answer in zip(made, self.run_trials([trial for _, trial in made]), strict=True)
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
                _fit_term([(sizes, outputs[place][1][axis]) for sizes, outputs in seen])
                for axis in range(rank)
            ]
            outs.append(LearnedTensor(dtype, tuple(terms)))
        return replace(form, outputs=tuple(outs))

    # 4

    def check_form(self, form: LearnedForm | None) -> tuple[LearnedForm | None, int]:
        """Check the form on fresh instances, dropping letters if necessary; return it and the number of
        accepted ones.
        """
        if form is None:
            return None, 0
        for narrowed in (form, *(_fix_letter(form, letter) for letter in form.letters)):
            made = self.draw_instances(narrowed, _FRESH)
            answers = self.run_trials([trial for _, trial in made])
            good = sum(
                _is_predicted(narrowed, sizes, answer)
                for (sizes, _), answer in zip(made, answers, strict=True)
            )
            if good >= ENOUGH * _FRESH:
                return replace(narrowed, varies=any(answer.varies for answer in answers)), good
        return None, 0


def _name_size(trial: Trial, spot: tuple[int, int]) -> str:
    """Return the documentation's name of a size of an instance, or the size."""
    place, axis = spot
    shape = trial.plan.shapes.get(place) if trial.plan is not None else None
    each = trial.inputs[place]
    return shape[axis] if shape and axis < len(shape) else str(each and each.shape[axis])


def _set_sizes(trial: Trial, changed: Mapping[tuple[int, int], int]) -> Trial:
    ins = tuple(
        each
        and reshape_input(each, tuple(changed.get((i, axis), side) for axis, side in enumerate(each.shape)))
        for i, each in enumerate(trial.inputs)
    )
    return replace(trial, inputs=ins)


def _pin_elements(trial: Trial) -> Trial:
    """Fix the elements of small integer inputs, which an operator may inspect."""
    ins = []
    for place, each in enumerate(trial.inputs):
        few = each is not None and not is_float(each.dtype) and 0 < math.prod(each.shape) <= _MOST_PINNED
        if few and each is not None and not each.sparse and each.dtype not in ("string", "bool"):
            each = replace(each, values=tuple(int(number) for number in draw_elements(trial, place).ravel()))
        ins.append(each)
    return replace(trial, inputs=tuple(ins))


def _grow_group(trial: Trial, group: Sequence[tuple[int, int]], more: int) -> Trial:
    return _set_sizes(trial, {spot: trial.inputs[spot[0]].shape[spot[1]] + more for spot in group})  # type: ignore[union-attr]


def _scale_group(trial: Trial, group: Sequence[tuple[int, int]], factor: int, divisor: int = 1) -> Trial:
    return _set_sizes(
        trial,
        {spot: trial.inputs[spot[0]].shape[spot[1]] * factor // divisor for spot in group},  # type: ignore[union-attr]
    )


def _fit_term(seen: Sequence[tuple[Mapping[str, int], int]]) -> SizeTerm:
    """Find a term that gives a size in all instances: a number, a letter with a factor, a product, a sum;
    else unknown.
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


def _fix_letter(form: LearnedForm, letter: str) -> LearnedForm:
    """Return the form with a letter fixed to 2."""

    def fix_term(term: SizeTerm) -> SizeTerm:
        if letter not in (term.first, term.second):
            return term
        if not term.operation:
            return SizeTerm(2 * term.factor)
        other = term.second if term.first == letter else term.first
        if other == letter:
            return SizeTerm(4)
        return SizeTerm(2, other) if term.operation == "*" else SizeTerm(unknown=True)

    def fix_tensor(tensor: LearnedTensor) -> LearnedTensor:
        return replace(tensor, sizes=tuple(map(fix_term, tensor.sizes)))

    ins = tuple(each and fix_tensor(each) for each in form.inputs)
    return replace(form, inputs=ins, outputs=tuple(map(fix_tensor, form.outputs)))


def _is_predicted(form: LearnedForm, sizes: Mapping[str, int], answer: TrialAnswer) -> bool:
    if answer.outputs is None or len(answer.outputs) != len(form.outputs):
        return False
    for out, (dtype, shape) in zip(form.outputs, answer.outputs, strict=True):
        wanted = [term.value(sizes) for term in out.sizes]
        if out.dtype != dtype or len(wanted) != len(shape):
            return False
        if any(value is not None and value != side for value, side in zip(wanted, shape, strict=True)):
            return False
    return True
