"""Which passes of a compiler ran and acted, as its log tells.

Backends that can be attributed have an option `trace`. With `trace=on` they print a line `opsieve pass ran
NAME` as a pass begins, `opsieve pass acted NAME` when it has changed the program, and `opsieve pass host
NAME` for one that only runs others. Lines that onnxruntime itself prints are understood too: they are what is
left when it crashed. One of the options `disabled_optimizers`, `disabled` or `skip` takes names of passes
joined with `+`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_LINE = re.compile(r"^opsieve pass (ran|acted|host) ([^\s+@]{1,200})$", re.MULTILINE)
_BEGINS = re.compile(r"Applying graph transformer ([A-Za-z0-9_]{1,80}) on step")
_MODIFIED = re.compile(r"GraphTransformer ([A-Za-z0-9_]{1,80}) modified: ([01])")
# Names that are believed
_MOST = 2000
_SKIPPING = ("disabled_optimizers", "disabled", "skip")


@dataclass(frozen=True, slots=True)
class PassTrace:
    """Names of passes, each once, in the order in which they were first named; hosts are left out of `ran`
    and `acted`.

    `times` counts how often each was said to run.
    """

    ran: tuple[str, ...] = ()
    acted: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    times: dict[str, int] = field(default_factory=dict)


def read_trace(log: str, died: bool) -> PassTrace:
    """The trace in a log; of a compiler that `died` the pass that ran last counts as one that acted, and
    comes first.
    """
    named: dict[str, list[str]] = {"ran": [], "acted": [], "host": []}
    for what, name in _LINE.findall(log):
        named[what].append(name)
    named["acted"] += [name for name, changed in _MODIFIED.findall(log) if changed == "1"]
    if died:
        begun = _BEGINS.findall(log)[-1:] or named["ran"][-1:]
        named["acted"] = begun + named["acted"]
    hosts = tuple(dict.fromkeys(named["host"]))
    ran, acted = (
        tuple(name for name in dict.fromkeys(names) if name not in hosts)[:_MOST]
        for names in (named["ran"] + named["acted"], named["acted"])
    )
    return PassTrace(ran, acted, hosts, dict(Counter(named["ran"])))


def choose_skip_option(options: Mapping[str, Sequence[str]]) -> str:
    """The option of a backend that takes the passes to skip, "" for none."""
    return next((name for name in _SKIPPING if options.get(name) == ()), "")
