"""What a campaign generates: by which strategy, what was wished for, what the targets have.

Test number N of a campaign is the program of a seed that is the campaign's first and N more, so that
strategies which are guided by their own earlier programs meet their seeds in order. The first 256 programs
keep to what all targets have, the next 256 to what the first target has, and so on in turn, targets of equal
tables together: a target that has little does not keep others from being tested.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.probing.operator_support import Support, both, tables
from opsieve.gen.case.case import Case
from opsieve.gen.generation.generator_version import generator_version
from opsieve.gen.generation.random_graph import GenRequest, to_record
from opsieve.gen.generation.request import from_record
from opsieve.gen.strategies.mix import BATCH, placed
from opsieve.gen.strategies.registry import generate
from opsieve.triage.campaign.schedule.costs import NONE, Costs
from opsieve.triage.campaign.schedule.costs import read as read_costs

_NO_CHOICE = OracleChoice()
USUAL = GenRequest(nodes=5, between=(5, 30), dynamic=0.1)


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """A strategy, a request, and what the targets have (nothing known: anything is tried).

    With `metamorphic` each program is rewritten as well, and a target must give the same for both; `further`
    are oracles that run what passes again. `edition` is that of the generator with which the campaign began.
    With `costs` of the targets each has its share of the time (triage/campaign/schedule), else all are asked
    about every program.
    """

    strategy: str = "mix"
    request: GenRequest = USUAL
    supports: tuple[Support, ...] = ()
    metamorphic: bool = False
    further: OracleChoice = _NO_CHOICE
    edition: str = field(default_factory=generator_version)
    costs: Costs = NONE

    @property
    def generator(self) -> str:
        """All of it as text: `mix edition=3f0c12ab98d1 nodes=5-30 supports=a1b2c3d4e5f6`. Equal texts and
        seeds give equal programs.
        """
        fields = {"edition": self.edition, **to_record(self.request)}
        if self.supports:
            fields["supports"] = hashlib.sha256(tables(self.supports).encode()).hexdigest()[:12]
        if self.metamorphic:
            fields["metamorphic"] = "yes"
        if self.costs:
            fields["costs"] = str(self.costs)
        fields |= self.further.facts()
        return " ".join([self.strategy, *(f"{name}={value}" for name, value in fields.items())])

    def case(self, campaign_seed: int, number: int, shares: tuple[tuple[str, float], ...] = ()) -> Case:
        """The case of a test, by the plan's strategy or one of those that have `shares` of its batch."""
        seed, strategy = seed_of(campaign_seed, number), self.strategy
        if shares:
            strategy, seed = placed(seed, shares)
        return generate(strategy, seed, self.request_of(number))

    def request_of(self, number: int) -> GenRequest:
        """What is asked of the program of a test: what was wished for, and that the targets whose turn it is
        have what it needs.
        """
        if not self.supports:
            return self.request
        asked = self._kept_to(number // BATCH)
        return replace(self.request, supports=both(asked), target=tables(asked))

    def _kept_to(self, batch: int) -> Sequence[Support]:
        different = {support.allowed: support for support in reversed(self.supports)}
        in_turn = [support for support in self.supports if different[support.allowed] is support]
        turn = batch % (len(in_turn) + 1) if len(in_turn) > 1 else 0
        return [in_turn[turn - 1]] if turn else self.supports

    def unsuited(self, number: int) -> frozenset[str]:
        """The targets whose tables the program of a test does not keep to."""
        if not self.supports:
            return frozenset()
        kept_to = {support.allowed for support in self._kept_to(number // BATCH)}
        return frozenset(support.target for support in self.supports if support.allowed not in kept_to)


def seed_of(campaign_seed: int, number: int) -> int:
    """The seed of a test's program, from 0 to 2**62: different for all tests of all campaigns that are not
    endless.
    """
    digest = hashlib.sha256(f"campaign {campaign_seed}".encode()).digest()
    return (int.from_bytes(digest[:5], "little") << 21) + number


def read_plan(generator: str, supports: tuple[Support, ...]) -> CampaignPlan:
    """The plan that a campaign's `generator` tells, with its tables."""
    return replace(planned(generator)[0], supports=supports)


def planned(generator: str) -> tuple[CampaignPlan, bool]:
    """The plan that a campaign's `generator` tells, without its tables, and whether it had some.

    What its `edition` is, the caller compares with this opsieve's: another one may make other programs.
    """
    name, _, rest = generator.partition(" ")
    fields = dict(field.partition("=")[::2] for field in rest.split(" ") if field)
    edition = fields.pop("edition", "")
    probed = fields.pop("supports", "") != ""
    metamorphic = fields.pop("metamorphic", "") != ""
    costs = read_costs(fields.pop("costs")) if "costs" in fields else NONE
    further = OracleChoice.from_facts(fields)
    fields = {key: value for key, value in fields.items() if key not in further.facts()}
    return CampaignPlan(name, from_record(fields), (), metamorphic, further, edition, costs), probed
