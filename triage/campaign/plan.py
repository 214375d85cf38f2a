"""The generation part of a campaign: the strategy, the request, and the targets' operator support.

The seed of test number N is the campaign's first seed plus N, so that strategies guided by their own earlier
programs get their seeds in order. The first 256 programs use operators that all targets support, the next 256
those of the first target, and so on in turn, targets of equal tables together: a target with few operators
does not keep others from being tested.

The tables with which a campaign began are kept in its store, so that a resumed campaign makes the same
programs: STORE/support/CAMPAIGN-1.json.xz is the table of its first target, and so on.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.probing.operator_support import Support, collect_support, name_tables, share_support
from opsieve.backends.probing.support_tables import SupportTable, pack_table, unpack_table
from opsieve.gen.case.case import Case
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.generation import generator_version, random_graph
from opsieve.gen.generation.request import from_record
from opsieve.gen.model import durable, files
from opsieve.gen.strategies import mix, registry
from opsieve.triage.campaign.schedule.costs import NONE, Costs, parse_costs as read_costs

_NO_CHOICE = OracleChoice()
USUAL = random_graph.GenRequest(nodes=5, between=(5, 30), dynamic=0.1)


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """A strategy, a request, and the targets' operator support (without any, everything is tried).

    With `metamorphic` each program is also rewritten, and a target must give the same results for both;
    `further` are oracles that rerun passing programs. `edition` is that of the generator with which the
    campaign began. With `costs` of the targets each gets its share of the time (triage/campaign/schedule),
    else all run every program.
    """

    strategy: str = "mix"
    request: random_graph.GenRequest = USUAL
    supports: tuple[Support, ...] = ()
    metamorphic: bool = False
    further: OracleChoice = _NO_CHOICE
    edition: str = field(default_factory=generator_version.compute_generator_version)
    costs: Costs = NONE

    @property
    def generator(self) -> str:
        """The plan as text: `mix edition=3f0c12ab98d1 nodes=5-30 supports=a1b2c3d4e5f6`.

        Equal texts and seeds give equal programs.
        """
        fields = {"edition": self.edition, **random_graph.to_record(self.request)}
        if self.supports:
            # A hash, because the tables are long and the text is part of the campaign's id.
            fields["supports"] = hashlib.sha256(name_tables(self.supports).encode()).hexdigest()[:12]
        if self.metamorphic:
            fields["metamorphic"] = "yes"
        if self.costs:
            fields["costs"] = str(self.costs)
        if self.further.measured:
            fields["measured"] = ",".join(self.further.measured)
        return " ".join([self.strategy, *(f"{name}={value}" for name, value in fields.items())])

    def make_case(self, campaign_seed: int, number: int, shares: tuple[tuple[str, float], ...] = ()) -> Case:
        """Make the case of a test by the plan's strategy, or by one of those with `shares` in its batch."""
        siblings = self.request.siblings
        seed, strategy = make_seed(campaign_seed, number // siblings), self.strategy
        # Other shares give some programs a second time in a batch of seeds, but not the same siblings.
        sibling = number % (siblings * mix.BATCH if shares else siblings) if siblings > 1 else 0
        if shares:
            strategy, seed = mix.find_place(seed, shares)
        return registry.generate(strategy, seed, replace(self.make_request(number), sibling=sibling))

    def make_request(self, number: int) -> random_graph.GenRequest:
        """Make the request for the program of a test: the campaign's, restricted to the operators of the
        targets in turn.
        """
        if not self.supports:
            return self.request
        asked = self._choose_supports(number // mix.BATCH)
        return replace(self.request, supports=share_support(asked), target=name_tables(asked))

    def _choose_supports(self, batch: int) -> Sequence[Support]:
        # Reversed, so that of equal tables the first one remains.
        different = {support.support_key: support for support in reversed(self.supports)}
        in_turn = [support for support in self.supports if different[support.support_key] is support]
        # Turn 0 is for the operators that all targets support.
        turn = batch % (len(in_turn) + 1) if len(in_turn) > 1 else 0
        return [in_turn[turn - 1]] if turn else self.supports

    def list_unsuited(self, number: int) -> frozenset[str]:
        """List the targets whose tables the program of a test may exceed."""
        if not self.supports:
            return frozenset()
        kept_to = {support.support_key for support in self._choose_supports(number // mix.BATCH)}
        return frozenset(support.target for support in self.supports if support.support_key not in kept_to)


# Fields of a plan that tell equal generators apart, and that no user chose.
_INTERNAL = frozenset(["edition", "supports", "costs"])


def make_seed(campaign_seed: int, number: int) -> int:
    """Return the seed of a test's program, from 0 to 2**62: different for all tests of practical
    campaigns.
    """
    # Hashed, since campaigns with seeds 1 and 2 would otherwise share almost all programs.
    digest = hashlib.sha256(f"campaign {campaign_seed}".encode()).digest()
    return (int.from_bytes(digest[:5], "little") << 21) + number


def read_plan(generator: str, supports: tuple[Support, ...]) -> CampaignPlan:
    """Parse a campaign's `generator` and add its tables."""
    return replace(parse_plan(generator)[0], supports=supports)


def describe_plan(generator: str) -> str:
    """Describe a campaign's `generator` in words: its strategy and the settings that a user chose."""
    strategy, _, rest = generator.partition(" ")
    fields = dict(field.partition("=")[::2] for field in rest.split(" ") if field)
    chosen = [f"{name} {value}" for name, value in fields.items() if name not in _INTERNAL]
    return f"strategy {strategy}{', ' if chosen else ''}{', '.join(chosen)}"


def parse_plan(generator: str) -> tuple[CampaignPlan, bool]:
    """Parse a campaign's `generator` without its tables; also return whether it had some.

    The caller compares its `edition` with this opsieve's: another edition may make other programs.
    """
    name, _, rest = generator.partition(" ")
    fields = dict(field.partition("=")[::2] for field in rest.split(" ") if field)
    edition = fields.pop("edition", "")
    probed = fields.pop("supports", "") != ""
    metamorphic = fields.pop("metamorphic", "") != ""
    costs = read_costs(fields.pop("costs")) if "costs" in fields else NONE
    further = OracleChoice(tuple(filter(None, fields.pop("measured", "").split(","))))
    return CampaignPlan(name, from_record(fields), (), metamorphic, further, edition, costs), probed


_FOLDER = "support"
# Bytes of a file
_MOST = 16 << 20
_MOST_TARGETS = 64


def make_support(table: SupportTable) -> Support:
    """Convert a stored table."""
    dtypes = None if table.dtypes is None else frozenset(table.dtypes)
    return collect_support(table.backend, table.version, table.answers, dtypes)


def save_tables(tables: Sequence[SupportTable], campaign: str, store: Path) -> None:
    """Write the tables of a campaign.

    Raises:
        BadInput: If they cannot be written.
    """
    try:
        durable.make_folder(store / _FOLDER)
        for number, table in enumerate(tables, 1):
            durable.write_file(_get_path(store, campaign, number), pack_table(table))
    except OSError as error:
        raise BadInput(f"cannot write into {shown(store / _FOLDER, 200)}: {files.reason(error)}") from None


@files.bound_reading
def load_tables(campaign: str, store: Path) -> list[SupportTable]:
    """Load the tables of a campaign; [] without any.

    Raises:
        BadInput: For an invalid file.
    """
    found = []
    for number in range(1, _MOST_TARGETS + 1):
        path = _get_path(store, campaign, number)
        if not path.exists():
            break
        try:
            found.append(unpack_table(files.read_file(path, _MOST)))
        except ValueError as error:
            raise BadInput(f"{shown(path, 200)} cannot be read: {shown(str(error), 100)}") from None
    return found


def _get_path(store: Path, campaign: str, number: int) -> Path:
    # The index of a foreign store is untrusted.
    if not campaign.isalnum():
        raise BadInput(f"{shown(campaign, 80)} is not the name of a campaign")
    return store / _FOLDER / f"{campaign}-{number}.json.xz"
