"""Find the optimiser passes that cause a failure: first the level, then the smallest set whose skipping cures
it.

Pure. Passes that acted are tried before those that merely ran. Two passes can mask each other (either alone
causes the failure, and with one off the other acts), so trying one at a time is not enough: the set is found
by delta debugging (Zeller and Hildebrandt 2002), and confirmed by running each of its passes with all others
off. A compiler needs some of its passes: skipping those gives an error or a crash and cures nothing. If that
happens, the passes are tried one by one to learn which those are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from opsieve.backends.stacks.frame_lines import PassTrace
from opsieve.bisect.search.search import TestResult

Blame = Literal["pass", "set", "not-a-pass", "conversion", "unnamed", "does-not-fail"]
Probe = Callable[[str, tuple[str, ...]], TestResult]
Trace = Callable[[str, tuple[str, ...]], PassTrace]

# With the passes off that acted, others act in their place: this many traces follow that chain.
_ROUNDS = 4
# Of one pass that are tried one by one
_APPLICATIONS = 20
# Probes to find as many passes as possible that can be off together.
_PAREING = 60


@dataclass(frozen=True, slots=True)
class Attribution:
    """The passes that cause a failure, and the evidence.

    `pass` or `set`: skipping `passes` cures the failure, and every smaller part of them leaves it. `alone`
    are those that cause it with every other skippable pass that acted off; `kept` are the passes that had to
    stay on for that. `applications` tells which application of a pass that ran several times is guilty,
    counted from 1 (empty if a single one does not suffice). `not-a-pass`: the case fails with all
    optimisation off. `conversion`: it fails with the compiler on and all of its passes off, so reading or
    writing the program is at fault. `unnamed`: optimisation causes the failure, but through a part without a
    name. `levels` maps each optimisation level to its result.
    """

    answer: Blame
    passes: tuple[str, ...]
    alone: tuple[str, ...]
    levels: dict[str, str]
    probes: int
    kept: tuple[str, ...] = ()
    applications: dict[str, tuple[int, ...]] = field(default_factory=dict)


def find_guilty_passes(
    levels: Sequence[str],
    probe: Probe,
    trace: Trace,
    switches: Sequence[str] = (),
    counted: bool = False,
    own: Sequence[str] = (),
    converts: bool = False,
) -> Attribution:
    """Call `probe(level, passes to skip)` until the guilty passes are known.

    `levels` go from none to most optimisation. `trace(level, passes to skip)` returns which passes ran and
    which acted. `switches` are parts of the compiler that can be off like a pass but are missing from every
    trace. With `counted`, `PASS@2` skips the second application. `own` are passes that the program asks for.
    `converts`: the compiler does nothing at the lowest level, and else converts the program around passes
    that are all in its trace.
    """
    # The stages below ask for the same sets again, and a probe compiles a model.
    asker = _CachedProbe(probe)
    results = {level: asker(level, ()) for level in levels}
    named = {level: answer.value for level, answer in results.items()}
    failing = [level for level in levels if results[level] is TestResult.BAD]
    if not failing:
        return Attribution("does-not-fail", (), (), named, asker.probe_count)
    if failing[0] == levels[0] and len(levels) > 1:
        return Attribution("not-a-pass", (), (), named, asker.probe_count)
    answers = []
    # The first level that fails has the fewest passes. What cures it need not cure the whole: at a higher one
    # the same optimisation may run again under another name.
    for level in dict.fromkeys((failing[0], levels[-1])):
        found = _blame_level(_Level(asker, level), trace, switches, counted, own, converts)
        answers.append(replace(found, levels=named, probes=asker.probe_count))
        if asker(levels[-1], tuple(sorted(found.passes))) is not TestResult.BAD or not found.passes:
            break
    return next((answer for answer in reversed(answers) if answer.passes), answers[0])


def _blame_level(
    case: "_Level", trace: Trace, switches: Sequence[str], counted: bool, own: Sequence[str], converts: bool
) -> Attribution:
    """Find the guilty passes at one level."""
    first = trace(case.level, ())
    for candidates in _iter_suspects(case, trace, first, switches, own):
        guilty = case.find_cure(candidates)
        if not guilty:
            continue
        # A host or a switch may hold the guilty pass; only beside another switch are switches asked to be
        # off.
        holders = set(first.hosts) | (set() if set(guilty) & set(switches) else set(switches))
        # What did nothing need not be off; where no trace tells what acted, all that ran are.
        others = (*first.acted, *candidates) if first.acted else (*first.ran, *candidates, *switches)
        every = [name for name in dict.fromkeys(others) if name not in holders]
        alone, kept = case.confirm_guilt(guilty, every)
        idle = {*first.ran, *first.hosts}.difference(first.acted)
        if converts and len(guilty) > 1 and set(alone) == set(guilty) <= idle:
            # They ended and changed nothing. Without any pass the compiler does not convert the program.
            return Attribution("conversion", (), (), {}, 0)
        # Where each of two passes cures the failure, the later one made it of what the earlier one left.
        while len(guilty) == 1 and not alone and guilty[0] in first.acted:
            later = case.find_cure(first.acted[first.acted.index(guilty[0]) + 1 :])
            if len(later) != 1:
                break
            guilty = later
            alone, kept = case.confirm_guilt(guilty, every)
        times = {
            name: case.find_applications(guilty, name, first.times.get(name, 0)) for name in guilty if counted
        }
        applications = {name: which for name, which in times.items() if which}
        answer: Blame = "pass" if len(guilty) == 1 else "set"
        return Attribution(answer, guilty, alone, {}, 0, kept, applications)
    off = (*first.ran, *first.hosts, *switches)
    # A pass that runs all the same, or only in the place of another, may be the guilty one.
    is_bare = converts and first.ran and case.run_probe(off) is TestResult.BAD
    return Attribution(
        "conversion" if is_bare and not trace(case.level, off).ran else "unnamed", (), (), {}, 0
    )


def _iter_suspects(
    case: "_Level", trace: Trace, first: PassTrace, switches: Sequence[str], own: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yield sets of passes to suspect, the most likely first.

    The order is: passes that acted, passes that act in their place, passes that ran, hosts of other passes,
    and passes that the program asks for. Without passes that every lowering needs, a compiler may fail alike.
    """
    suspects: tuple[str, ...] = ()
    trace_now = first
    # Passes that act only once others are skipped appear in the next trace, so the search is repeated with
    # them.
    for _ in range(_ROUNDS):
        new = tuple(name for name in trace_now.acted if name not in suspects)
        if not new:
            break
        suspects += new
        yield suspects
        # Where the set leaves the failure, or another one, further passes may act.
        if case.run_probe(suspects) is TestResult.GOOD:
            break
        trace_now = trace(case.level, suspects)
    most = tuple(dict.fromkeys((*suspects, *first.ran, *switches)))
    if most != suspects:
        yield most
    # One inside another is traced after it: the inner one says more.
    for host in reversed(first.hosts):
        yield (host,)
    if first.hosts:
        yield (*most, *first.hosts)
    if own:
        yield tuple(own)


class _Level:
    """The probes at one level."""

    def __init__(self, asker: "_CachedProbe", level: str):
        self.level, self._asker = level, asker

    def run_probe(self, off: Sequence[str]) -> TestResult:
        """Probe this level with the passes `off`."""
        return self._asker(self.level, tuple(sorted(set(off))))

    def find_cure(self, candidates: Sequence[str]) -> tuple[str, ...]:
        """Find a smallest part of `candidates` whose skipping cures; () if skipping them all does not."""
        if not candidates:
            return ()
        together = self.run_probe(candidates)
        if together is TestResult.GOOD:
            return _minimise(candidates, lambda off: self.run_probe(off) is TestResult.GOOD)
        if together is TestResult.BAD:
            return ()
        skippable = []
        for name in candidates:
            result = self.run_probe([name])
            if result is TestResult.GOOD:
                return (name,)
            if result is TestResult.BAD:
                skippable.append(name)
        off, _, cured = self._switch_most_off(skippable, [])
        return _minimise(off, lambda part: self.run_probe(part) is TestResult.GOOD) if cured else ()

    def confirm_guilt(
        self, guilty: Sequence[str], every: Sequence[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the guilty passes that cause the failure with the others off, and the others that had to
        stay on.
        """
        alone, kept = [], dict[str, None]()
        for name in guilty:
            partners = [other for other in guilty if other != name]
            others = [
                other
                for other in every
                if other not in guilty and self._asker.get_known(self.level, (other,)) is not TestResult.SKIP
            ]
            required = [other for other in every if other not in guilty and other not in others]
            off, stayed, cured = self._switch_most_off(others, partners)
            if not cured and self.run_probe((*partners, *off)) is TestResult.BAD:
                alone.append(name)
                kept |= dict.fromkeys((*required, *stayed))
        return tuple(alone), tuple(kept)

    def find_applications(self, guilty: Sequence[str], name: str, times: int) -> tuple[int, ...]:
        """Find the applications of a guilty pass, out of `times`, that cure the failure if skipped alone."""
        # With one application there is nothing to choose; each more costs a probe.
        if not 1 < times <= _APPLICATIONS:
            return ()
        others = [other for other in guilty if other != name]
        return tuple(
            turn
            for turn in range(1, times + 1)
            if self.run_probe((*others, f"{name}@{turn}")) is TestResult.GOOD
        )

    def _switch_most_off(
        self, names: Sequence[str], always: Sequence[str]
    ) -> tuple[list[str], list[str], bool]:
        """Find as many of `names` as can be off together with `always`.

        Returns those, the ones that must stay on, and whether the result cures.
        """
        off: list[str] = []
        stayed: list[str] = []
        pending = [list(names)] if names else []
        budget = _PAREING
        while pending:
            part = pending.pop()
            result = self.run_probe((*always, *off, *part)) if budget > 0 else TestResult.SKIP
            budget -= 1
            if result is not TestResult.SKIP:
                off += part
            elif len(part) > 1:
                # In halves, the first one next, since `pending` is taken from its end.
                pending += [part[len(part) // 2 :], part[: len(part) // 2]]
            else:
                stayed += part
            if result is TestResult.GOOD:
                return off, stayed, True
        return off, stayed, False


class _CachedProbe:
    """Remembers answers and counts the probes."""

    def __init__(self, probe: Probe):
        self._probe = probe
        self._known: dict[tuple[str, tuple[str, ...]], TestResult] = {}

    @property
    def probe_count(self) -> int:
        """The number of probes that were run."""
        return len(self._known)

    def get_known(self, level: str, off: tuple[str, ...]) -> TestResult | None:
        """Return the result of an earlier probe, if any."""
        return self._known.get((level, off))

    def __call__(self, level: str, off: tuple[str, ...]) -> TestResult:
        if (level, off) not in self._known:
            self._known[level, off] = self._probe(level, off)
        return self._known[level, off]


def _minimise(items: Sequence[str], cured: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Return the smallest part of `items` found that cures the failure; each item in it is needed."""
    kept, parts = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        smaller = next((chunk for chunk in chunks if len(chunk) < len(kept) and cured(chunk)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        # With two parts the rest of one is the other, which was tried.
        rests = ([name for name in kept if name not in chunk] for chunk in chunks) if parts > 2 else iter(())
        rest = next((rest for rest in rests if rest and cured(rest)), None)
        if rest is not None:
            kept, parts = rest, max(parts - 1, 2)
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return tuple(kept)
