"""What later steps find out about a failure: its reduced graph, the pass, the builds and the release that it
depends on.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """The shape of a small graph: sorted words without repetition, see
    `opsieve.triage.fingerprint.graph_signature.signature_of`.

    `operators`: `Conv`; `edges`: `Conv>Relu`, and `>Conv` for what the graph is fed with; `ranks`: `Conv:4`
    for an operator whose first input's rank is declared; `attributes`: `Pad.mode=edge`, `Conv.group=n` (0, 1
    or n), `Conv.pads=zeros` (zeros, equal or mixed).
    """

    operators: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of a failure beyond one run. What is "" or empty is not known (yet).

    `signature` is that of the reduced graph. `guilty_passes` are the passes without which the failure is
    gone, `cure` the options of the compiler (`level=disable_all`) under which it is. `first_bad` is the first
    release or commit that fails, as `1.17.0` or a hash. `valid` is False for a program that was made to break
    a rule of ONNX.
    """

    signature: Signature | None = None
    guilty_passes: tuple[str, ...] = ()
    cure: tuple[str, ...] = ()
    first_bad: str = ""
    valid: bool = True


NOTHING = Evidence()
