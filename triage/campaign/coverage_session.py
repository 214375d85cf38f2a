"""The coverage of one call of `opsieve fuzz`: the traced libraries, the growth, and the record in the
store.
"""

import time
from pathlib import Path
from typing import Any

from opsieve.backends.coverage.coverage import Probes
from opsieve.backends.registry import resolve
from opsieve.triage.campaign import coverage_record, session
from opsieve.triage.campaign.plan import CampaignPlan
from opsieve.triage.store.finished_test import Campaign

# Seconds
_SAVED_EVERY = 60.0


class CoverageSession:
    """The coverage part of a campaign; without coverage it passes the plan's programs through and records
    nothing.
    """

    def __init__(self, request: session.FuzzRequest, plan: CampaignPlan, campaign: Campaign, folder: Path):
        targets = [resolve(name) for name in campaign.targets]
        self.coverage = session.open_coverage(request, plan, targets)
        self.programs = session.make_programs(
            request, plan, campaign, self.coverage is not None and request.guide
        )
        self._folder, self._started, self._saved = folder, time.monotonic(), time.monotonic()
        self._record: coverage_record.CoverageRecord | None = None
        if self.coverage is not None:
            earlier = coverage_record.load_earlier(folder, campaign.id)
            # Points of functions and of blocks cannot be added up.
            same = earlier is not None and earlier.kind == self.coverage.kind
            self._record = (
                earlier
                if same
                else coverage_record.CoverageRecord(campaign.id, campaign.generator, self.coverage.kind)
            )
            if same and earlier is not None:
                self.coverage.known = earlier.mark_known
                last = [of.growth[-1][0] for of in earlier.compilers.values() if of.growth]
                # The time axis goes on where the interrupted run ended.
                self._started -= max(last, default=0.0)

    def note_progress(self, done: int) -> None:
        """Add a point of the growth after tests were recorded."""
        if self._record is None or self.coverage is None:
            return
        now = time.monotonic()
        self._record.add_point(self.coverage, now - self._started, done)
        if now - self._saved > _SAVED_EVERY:
            self._saved = now
            self.write_record(done)

    def write_record(self, done: int) -> None:
        """Write the record."""
        if self._record is not None and self.coverage is not None:
            self._record.add_final_state(self.coverage, time.monotonic() - self._started, done)
            coverage_record.save_record(self._record, self._folder)

    def list_facts(self) -> dict[str, Any]:
        """Return the reached amounts by compiler for `--json`."""
        if self.coverage is None:
            return {}
        found = {}
        for (name, release), probes in self.coverage.maps().items():
            total = (
                sum(item.probes for item in probes.reached()) if isinstance(probes, Probes) else probes.count
            )
            key = f"{name}=={release}" if release else name
            found[key] = {"kind": self.coverage.kind, "reached": probes.count, "probes": total}
        return {"coverage": found}
