"""What was decided of a batch of tests before any of them began."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Shares of the strategies, of programs in thousandths ({}: the campaign's own strategy makes all), and
    by target the features that it is known to fail at, each with the fingerprint of the failure.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def of_strategies(self) -> tuple[tuple[str, float], ...]:
        """The shares as `mix` takes them."""
        return tuple(self.shares.items())

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(
            {"shares": dict(self.shares), "known": {name: dict(each) for name, each in self.known.items()}}
        )


def read(text: str) -> BatchDecision:
    """The decision that was kept; an error of Python's where the text is none."""
    kept = json.loads(text)
    shares = {str(name): float(share) for name, share in kept["shares"].items()}
    return BatchDecision(shares, {str(name): {**features} for name, features in kept["known"].items()})
