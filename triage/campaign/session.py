"""One call of `opsieve fuzz`: begin or resume a campaign in a store, and report its findings."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsieve.backends.coverage.coverage import EFFECTS, Coverage, can_trace
from opsieve.backends.judge.oracle_names import OracleChoice
from opsieve.backends.probing.prober import Prober
from opsieve.backends.probing.support_tables import SupportTable
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.releases import consent, interpreters
from opsieve.backends.workers.workers import Workers
from opsieve.backends.workers.zygotes.zygote import Limits, Unavailable
from opsieve.gen.errors import BadInput, shown
from opsieve.gen.generation import generator_version, request as gen_request
from opsieve.gen.irs.registry import ONNX, ir_named
from opsieve.gen.strategies import registry as strategies
from opsieve.gen.strategies.registry import RELAX_MUTATE, TIR
from opsieve.gen.values.values import RANGED, SPECIAL, named_values, special_kinds
from opsieve.triage.campaign.campaign import make_campaign
from opsieve.triage.campaign.guidance import (
    PROGRAMS,
    Planned,
    Programs,
    exclude_unstable,
)
from opsieve.triage.campaign.plan import (
    USUAL,
    CampaignPlan,
    load_tables,
    make_support,
    parse_plan,
    save_tables,
)
from opsieve.triage.campaign.schedule import costs, schedule
from opsieve.triage.store.finished_test import Campaign
from opsieve.triage.store.rows import format_cluster
from opsieve.triage.store.store import Store

if TYPE_CHECKING:
    from opsieve.backends.probing.generation import Probing

_LIMITS = Limits(seconds=20.0)
_NO_CHOICE = OracleChoice()
_ASKED_AS_IT_COMES = 100.0  # milliseconds of a test, at most
_COMPARED = 64  # programs of a campaign that another generator began, made anew before it is resumed


@dataclass(frozen=True, slots=True)
class FuzzRequest:
    """The options of a campaign.

    `strategy`, `nodes` (`K` or `A-B`) and `values` are None for the defaults; `tests` is the total number of
    tests, `minutes` how long this run may begin new ones; `seed` is drawn if missing. With `probe` the
    targets are first probed for every operator without a known answer; with None a target without any known
    answer is probed for an operator when that first comes up; with False never.
    """

    store: Path
    targets: tuple[str, ...] = ()
    strategy: str | None = None
    nodes: str | None = None
    values: str | None = None
    operators: tuple[str, ...] = ()  # patterns as of `opsieve gen --ops`; () for all of ONNX's own domain
    dtypes: str = ""  # element types, separated by commas; "" for all
    siblings: int = 1  # programs of each seed
    probe: bool | None = None
    seed: int | None = None
    resume: bool = False
    tests: int | None = None
    minutes: float | None = None
    lanes: int | None = None  # at once; one, or as many as the cluster's workers have threads
    limits: Limits = _LIMITS
    coverage: str | None = None  # of functions, blocks or passes
    oracles: OracleChoice = _NO_CHOICE
    guide: bool = True  # what reaches something new is built upon
    metamorphic: bool = False  # programs are rewritten too, into others that mean the same
    adapt: bool = True  # each target has its share of the time; else all are asked about every program
    scheduler: str | None = None  # of a Dask cluster, whose workers do the tests
    resources: Mapping[str, float] = field(default_factory=dict)  # that a worker of it must have


def check_store(request: FuzzRequest) -> Path:
    """Return the store to open.

    Raises:
        BadInput: If a campaign to resume has no store (so that none is created), or a cluster campaign
        depends on coverage.
    """
    if request.scheduler is not None and (
        request.coverage is not None or request.strategy in (TIR, RELAX_MUTATE)
    ):
        raise BadInput(
            "programs that are guided by coverage are made by one process: leave --scheduler out, or"
            " --coverage and the strategy"
        )
    if request.resume and not (request.store / "index.sqlite").exists():
        raise BadInput(
            f"there is no store {shown(request.store, 200)} to resume; name it with --store, or leave"
            " --resume out"
        )
    return request.store


def open_campaign(
    store: Store, request: FuzzRequest, probing: "Probing", say: Callable[[str], None]
) -> tuple[Campaign, CampaignPlan]:
    """Begin or resume the campaign in the store; return it with its plan, or raise BadInput."""
    found = _find_to_resume(store, request) if request.resume else None
    if found is not None:
        plan, limited = parse_plan(found.generator)
        # Without a recorded program, nothing can show that the generator still makes the same ones.
        if plan.edition != generator_version.compute_generator_version() and not store.count_done(found):
            raise _make_edition_error(found)
        consent.check_consent(() if request.targets else found.targets)  # those that only the store names
        targets = [resolve(name) for name in found.targets]
    else:
        plan, limited = _make_plan(request), True
        targets = request.oracles.expand_targets(
            [resolve(text) for text in request.targets or ("onnxruntime",)]
        )
        _check_ir(plan, targets)
    if found is None and request.adapt and not is_guided(request, plan):
        plan = replace(
            plan, costs=costs.read_stated(list({target.display: target for target in targets}.values()))
        )
    # Before the workers below, so that a target that cannot be traced is refused first.
    coverage = open_coverage(request, plan, targets)
    tables = load_tables(found.id, request.store) if found is not None else []
    with Workers(coverage=coverage) as workers:
        versions = _read_versions(workers, targets, imported=is_guided(request, plan))
        if coverage is not None and coverage.kind != EFFECTS:
            cases = [plan.make_case(0, number) for number in range(PROGRAMS)]
            aside = exclude_unstable(workers, coverage, targets, cases)
            say(f"calibrated: {aside} {coverage.kind} differ between equal runs and are ignored")
        if limited and not tables and strategies.ir_made_by(plan.strategy) == ONNX:
            try:
                with workers if coverage is None else Workers() as untraced:  # each compiler is started once
                    grow = request.probe is None and not is_guided(request, plan)
                    tables = _load_tables(
                        untraced, targets, versions, bool(request.probe), grow, probing, say
                    )
            except Unavailable as error:  # it was there a moment ago
                raise BadInput(f"{error}; leave that target out, or try again") from None
    plan = replace(plan, supports=tuple(map(make_support, tables)))
    if found is not None:
        _check_resumption(store, found, plan, versions, say)
        campaign = found
    else:
        seed = secrets.randbits(32) if request.seed is None else request.seed
        campaign = make_campaign(seed, targets, plan)
        if store.count_done(campaign):
            raise BadInput(
                "the store already holds this campaign: pass --resume to continue it, or another --seed"
            )
        save_tables(tables, campaign.id, request.store)
        store.begin_campaign(campaign, versions)
    say(f"seed {campaign.seed}, strategy {plan.strategy}, targets {', '.join(campaign.targets)}")
    return campaign, plan


def _load_tables(
    workers: Workers,
    targets: Sequence[ResolvedTarget],
    versions: Mapping[str, str],
    probe: bool,
    grow: bool,
    probing: "Probing",
    say: Callable[[str], None],
) -> list[SupportTable]:
    """Load the support tables of the targets; with `probe`, fill them first.

    An unknown target gets an empty table if lanes `grow` those and its tests are cheap; otherwise it is left
    out.
    """
    if probe:
        # Generation in bulk, with its search for values, is loaded for this question alone.
        from opsieve.backends.probing.generation import probe_support

        probe_support(workers, targets, None, probing)
    found = []
    for prober in (Prober(workers, target, version=versions[target.display]) for target in targets):
        table = prober.make_table()
        grows = grow and not table.answers and _is_worth_probing(prober.target)
        if table.answers or grows:
            found.append(table)
        if prober.of_another:
            say(
                f"{prober.name} was not probed: opsieve assumes the operators of {prober.of_another} (--probe"
                " probes it first)"
            )
        elif grows:
            say(f"{prober.name} was not probed: each operator is probed when it first occurs")
        elif not table.answers:
            say(f"{prober.name} was not probed: many tests may be unsupported (--probe probes it first)")
    return found


def _is_worth_probing(target: ResolvedTarget) -> bool:
    """Whether to probe a target for single operators beside the tests: if that is cheap and it is a real
    compiler.
    """
    # which is started for each question
    if target.facts.helper or target.facts.runs_command:
        return False
    return costs.read_stated([target]).get_cost(0, "onnx") <= _ASKED_AS_IT_COMES


def is_guided(request: FuzzRequest, plan: CampaignPlan) -> bool:
    """Whether programs depend on earlier coverage or a corpus: then every target runs every program."""
    return request.coverage is not None or plan.strategy in (TIR, RELAX_MUTATE)


def open_coverage(
    request: FuzzRequest, plan: CampaignPlan, targets: Sequence[ResolvedTarget]
) -> Coverage | None:
    """Open the requested coverage; for TIR, whose loop depends on it, functions (or the passes' effects
    without tracing).
    """
    kind = request.coverage
    if kind is None and plan.strategy == TIR and request.guide:
        kind = "functions" if can_trace() else "passes"
    return Coverage(kind, sorted({target.name for target in targets})) if kind is not None else None


def make_programs(request: FuzzRequest, plan: CampaignPlan, campaign: Campaign, guided: bool) -> Programs:
    """Make the source of the campaign's programs."""
    if plan.strategy in (TIR, RELAX_MUTATE):
        # TVM's IRs, which no other campaign needs, are loaded here.
        from opsieve.triage.campaign.guided_programs import make_guided_programs

        return make_guided_programs(plan, campaign.seed, request.limits, guided)
    return Planned(plan, campaign.seed)


def _find_to_resume(store: Store, request: FuzzRequest) -> Campaign:
    names = tuple(dict.fromkeys(resolve(text).display for text in request.targets))
    fitting = [
        campaign
        for campaign in store.list_campaigns()
        if (not names or campaign.targets == names) and request.seed in (None, campaign.seed)
    ]
    if not fitting:
        raise BadInput("the store has no such campaign to resume: leave --resume out to start it")
    given = (request.strategy, request.nodes, request.values, request.operators, request.dtypes)
    further = (request.siblings, request.oracles, request.metamorphic)
    if given != (None, None, None, (), "") or further != (1, _NO_CHOICE, False):
        raise BadInput(
            "cannot change --strategy, --nodes, --values, --ops, --dtypes, --siblings or oracles, nor add"
            " --metamorphic, when resuming a campaign: leave them out"
        )
    return fitting[-1]


def _make_plan(request: FuzzRequest) -> CampaignPlan:
    usual = USUAL.between or (USUAL.nodes, USUAL.nodes)
    low, high = usual if request.nodes is None else gen_request.parse_nodes(request.nodes)
    program = replace(
        USUAL,
        nodes=low,
        between=(low, high) if low != high else None,
        values=named_values(request.values or RANGED, (RANGED, SPECIAL)),
        siblings=request.siblings,
        only=gen_request.select_operators(gen_request.split_items(request.operators)),
        dtypes=gen_request.select_dtypes(gen_request.split_items([request.dtypes])),
    )
    further = replace(request.oracles, names=request.oracles.measured)
    plan = CampaignPlan(request.strategy or "mix", program, metamorphic=request.metamorphic, further=further)
    strategies.load_strategy(plan.strategy)  # an unknown name is refused before anything is probed
    return plan


def _check_ir(plan: CampaignPlan, targets: Sequence[ResolvedTarget]) -> None:
    """Raise BadInput unless a target takes the strategy's IR and special values suit it."""
    strategy, ir = plan.strategy, strategies.ir_made_by(plan.strategy)
    if ir == ONNX:
        return
    if special_kinds(plan.request.values):
        raise BadInput(
            f"--values special needs ONNX models, and the strategy {strategy} generates others: omit --values"
        )
    if plan.request.only or plan.request.dtypes:
        raise BadInput(
            f"--ops and --dtypes need ONNX models, and the strategy {strategy} generates others: omit them"
        )
    if not any(ir in target.irs for target in targets):
        taking = ir_named(ir).validator.partition(":")[0]
        raise BadInput(
            f"the strategy {strategy} generates programs of the IR {ir}, which no target accepts:"
            f" add -t {taking}"
        )


def _read_versions(workers: Workers, targets: Sequence[ResolvedTarget], *, imported: bool) -> dict[str, str]:
    """Read the versions of targets, importing them only if necessary or `imported`; a lane reports import
    errors.
    """
    versions: dict[str, str] = {}
    for target in targets:
        try:
            versions[target.display] = (
                "" if imported else interpreters.installed_version(target)
            ) or workers.version(target)
        except Unavailable as error:
            raise BadInput(f"{error}; leave that target out, or install it (see opsieve doctor)") from None
    return versions


def _check_resumption(
    store: Store, campaign: Campaign, plan: CampaignPlan, versions: dict[str, str], say: Callable[[str], None]
) -> None:
    """Report compilers that changed since the campaign began.

    Raises:
        BadInput: If it can no longer generate the same programs.
    """
    changed = [
        f"{name} was {was} when the campaign began and is now {versions[name]}"
        for name, was in store.get_versions(campaign).items()
        if versions.get(name, was) != was
    ]
    if changed:
        say(f"{'; '.join(changed)}: new failures are those of the new version")
    schedule.forget_changed(store, campaign, plan, versions)
    if plan.edition != generator_version.compute_generator_version():
        known = store.sample_digests(campaign, _COMPARED)
        learnt = store.read_state(campaign)
        if any(
            plan.make_case(campaign.seed, number, schedule.get_shares(learnt, number)).program.digest
            != digest
            for number, digest in known.items()
        ):
            raise _make_edition_error(campaign)
        say(
            f"opsieve's generator changed since the campaign began: {len(known)} of its programs, generated"
            " again, are the same"
        )
    if plan.generator != campaign.generator:
        raise BadInput(
            "the targets no longer support what they did when the campaign began (did a version change?):"
            " start a new campaign without --resume"
        )


def _make_edition_error(campaign: Campaign) -> BadInput:
    return BadInput(
        f"the campaign was made by another generator ({shown(campaign.generator, 120)}) than this opsieve"
        f" ({generator_version.compute_generator_version()}): continue with that opsieve, or start a new one"
        " without --resume"
    )


def list_facts(
    store: Store, campaign: Campaign, done_now: int, seconds: float, folder: Path
) -> dict[str, Any]:
    """Return the keys of `opsieve fuzz --json` for `done_now` tests in `seconds` of wall time."""
    totals, spent = store.count_verdicts(campaign), store.sum_seconds(campaign)

    def with_verdict(verdict: str) -> int:
        return sum(counts.get(verdict, 0) for counts in totals.values())

    by_target = {
        name: {
            "verdicts": counts,
            "tests_per_second": round(sum(counts.values()) / spent[name], 1) if spent.get(name) else 0.0,
        }
        for name, counts in totals.items()
    }
    plan = parse_plan(campaign.generator)[0]
    decided = schedule.resume_schedule(store, campaign, plan).list_facts() if plan.costs else {}
    return {
        "tests": store.count_done(campaign),
        "tests_now": done_now,
        "seconds": round(seconds, 1),
        "tests_per_second": round(done_now / seconds, 2),
        "failures": store.count_kinds(campaign),
        "clusters": store.count_clusters(campaign),
        "fingerprints": store.count_fingerprints(campaign),
        "new_clusters": [
            {"cluster": format_cluster(number), "title": title, "members": members}
            for number, title, members in store.list_new_clusters(campaign)
        ],
        "unsupported": with_verdict("unsupported"),
        "environment": with_verdict("environment"),
        "flaky": with_verdict("flaky"),
        "targets": by_target,
        **decided,
        "seed": campaign.seed,
        "store": str(folder),
    }
