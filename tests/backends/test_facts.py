"""What a backend states about itself, read from its attributes."""

from typing import Any

from opsieve.backends.protocol import BackendFacts, facts_of
from opsieve.backends.registry import names, plugin


class Smallest:
    name = "smallest"


def test_a_backend_may_leave_out_every_fact_but_its_name() -> None:
    smallest: Any = Smallest()
    assert facts_of(smallest) == BackendFacts("smallest")
    assert facts_of(smallest).irs == ("onnx",)


def test_every_backend_states_facts_of_the_right_kind() -> None:
    defaults = BackendFacts("any")
    for name in names():
        facts = plugin(name).facts
        wrong = {
            field
            for field, default in vars(defaults).items()
            if not isinstance(getattr(facts, field), type(default))
        }
        assert (name, wrong) == (facts.name, set())
