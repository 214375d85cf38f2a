"""Messages between the main process and a lane: frames of MessagePack.

Tests and observations travel as dataclasses, arrays in them as backends/workers/inside/wire.py packs them; a
case travels with the parts of its program, which is rebuilt only where it is needed. No pickle is involved. A
test without findings is sent without its case, a failure with its case and observations.
"""

import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from opsieve.backends.probing.operator_support import Support
from opsieve.backends.workers.inside import wire
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, Origin
from opsieve.gen.irs.registry import ir_named, keep_script
from opsieve.triage.campaign.schedule.batch import BatchDecision
from opsieve.triage.store.finished_test import Campaign, FinishedTest

_LENGTH = struct.Struct(">Q")
# Bytes of a message
_MOST = 4 << 30


class Begin(msgspec.Struct, tag=True):
    """To a lane, first: the campaign of its tests.

    With `scheduled` it runs the targets `first` only and sends the input of the decisions, and the cases if
    there are other targets.
    """

    campaign: Campaign
    supports: tuple[Support, ...]
    limits: Limits
    scheduled: bool = False
    first: tuple[str, ...] = ()

    @property
    def needs_cases(self) -> bool:
        """Whether further targets may run a test."""
        return self.scheduled and set(self.first) != set(self.campaign.targets)


class NumberRange(msgspec.Struct, tag=True):
    """To a lane: do the tests from `start` up to `stop`, of one batch with this decision."""

    start: int
    stop: int
    decision: BatchDecision | None = None


class Stop(msgspec.Struct, tag=True):
    """To a lane: end with the current piece."""


class SentCase(msgspec.Struct):
    """A case of a program in any IR, with the parts of its program."""

    ir: str
    data: bytes
    passes: tuple[str, ...]
    name: str
    script: str
    script_is_exact: bool
    inputs: dict[str, Any]
    expected: dict[str, Any] | None
    origin: Origin
    parameters: dict[str, str]


class Further(msgspec.Struct, tag=True):
    """To a lane: run this test's case on these targets; the `answered` targets have run it before."""

    number: int
    case: SentCase
    targets: tuple[str, ...]
    answered: tuple[str, ...]


class Answered(msgspec.Struct, tag=True):
    """From a lane: the test of a `Further` is done on its targets."""

    test: FinishedTest
    case: SentCase | None


class Finished(msgspec.Struct, tag=True):
    """From a lane: these tests are done, all of its numbers below `upto`; `stopped` if it leaves the
    others.
    """

    tests: list[FinishedTest]
    # By the number of the test
    cases: dict[int, SentCase]
    upto: int
    tests_per_second: float
    stopped: bool = False


class Failed(msgspec.Struct, tag=True):
    """From a lane: it cannot continue, with the reason."""

    sentence: str


Message = Begin | NumberRange | Further | Stop | Finished | Answered | Failed
Question = NumberRange | Further
Answer = Finished | Answered | Failed
# The MessagePack extension that holds an array: a frame of `wire`
_VALUE = 1


def encode_message(message: object) -> bytes:
    """Encode a message, or a dataclass that travels in messages, without its length."""
    try:
        return msgspec.msgpack.encode(message, enc_hook=_encode_other)
    except UnicodeEncodeError:
        # A compiler printed half of a character
        kept = (bytes, msgspec.msgpack.Ext)
        plain = msgspec.to_builtins(message, builtin_types=kept, enc_hook=_encode_other)
        return msgspec.msgpack.encode(_replace_surrogates(plain))


def decode_message(frame: bytes) -> Message:
    """Decode the message in a frame; raises EOFError if it is invalid."""
    message: Message = decode_as(frame, Message)
    return message


def decode_as(frame: bytes, type_: Any) -> Any:
    """Decode a value of this type from a frame; raises EOFError if it is invalid."""
    try:
        return msgspec.msgpack.decode(frame, type=type_, ext_hook=_decode_value)
    # As if the connection had ended: a lane that sends nonsense is replaced like a dead one.
    except (msgspec.MsgspecError, wire.WireError) as error:
        raise EOFError(str(error)) from None


def _encode_other(item: object) -> object:
    """Encode an array or a mapping in a message."""
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, (np.ndarray, np.generic)):
        chunks: list[Any] = []
        described = wire.pack_value(item, chunks)
        return msgspec.msgpack.Ext(_VALUE, wire.encode_frame(described, chunks))
    raise NotImplementedError(f"{type(item).__name__} does not travel")


def _decode_value(code: int, data: memoryview) -> object:
    """Decode the array of an extension."""
    # A view would hold on to the whole message
    frame = bytes(data)
    header, size = wire.read_sizes(frame[: wire.HEAD.size], len(frame))
    body = memoryview(frame)[wire.HEAD.size + header :]
    described = json.loads(frame[wire.HEAD.size : wire.HEAD.size + header].decode("utf-8", "surrogatepass"))
    return wire.unpack_value(described, body[:size], 0)[0]


def send_message(connection: socket.socket, message: Message) -> None:
    """Send a whole message; raises OSError if the other side is gone."""
    send_frame(connection, encode_message(message))


def receive_message(connection: socket.socket) -> Message:
    """Receive a message; raises EOFError if the other side is gone or sends anything else."""
    return decode_message(receive_frame(connection))


def send_frame(connection: socket.socket, frame: bytes) -> None:
    """Send the frame of a message; raises OSError if the other side is gone."""
    connection.sendall(_LENGTH.pack(len(frame)) + frame)


def receive_frame(connection: socket.socket) -> bytes:
    """Receive the frame of the next message; raises EOFError if the other side is gone or the frame is too
    long.
    """
    (length,) = _LENGTH.unpack(wire.receive_exactly(connection, _LENGTH.size))
    # Checked before the buffer is made, since a broken lane may announce any length.
    if length > _MOST:
        raise EOFError("no message")
    return bytes(wire.receive_exactly(connection, length))


@dataclass(frozen=True, slots=True)
class Done:
    """A test that a lane finished on the first targets, or on `further` ones; with the case if it was
    sent.
    """

    test: FinishedTest
    case: SentCase | None = None
    further: bool = False


def make_finished(
    tests: Sequence[FinishedTest], upto: int, tests_per_second: float, stopped: bool, *, cases: bool = False
) -> Finished:
    """Make the message about finished tests; with `cases`, include those of tests without findings."""
    # Most tests pass, and their cases are the largest part of a message.
    sent = {test.number: pack_case(test.case) for test in tests if test.case and (test.findings or cases)}
    return Finished(list(map(leave_case_out, tests)), sent, upto, tests_per_second, stopped)


def leave_case_out(test: FinishedTest) -> FinishedTest:
    """Replace the case of a test by the digest of its program."""
    return replace(test, case=None, program_digest=test.digest)


def is_last(answer: Message, question: Question) -> bool:
    """Whether this message is a lane's last one about a question."""
    if isinstance(answer, Finished) and isinstance(question, NumberRange):
        return answer.stopped or answer.upto >= question.stop
    return True


def iter_tests(message: Finished | Answered) -> Iterator[Done]:
    """Yield the tests that a lane has finished."""
    further = isinstance(message, Answered)
    for test in (message.test,) if isinstance(message, Answered) else message.tests:
        sent = message.case if isinstance(message, Answered) else message.cases.get(test.number)
        case = unpack_case(sent) if sent is not None and test.findings else None
        yield Done(replace(test, case=case), sent, further)


def pack_case(case: Case) -> SentCase:
    """Pack a case for sending."""
    program = case.program
    parts = (program.ir, program.data, program.passes, program.name, program.script, program.script_is_exact)
    return SentCase(*parts, case.inputs, case.expected, case.origin, dict(case.parameters))


def unpack_case(sent: SentCase) -> Case:
    """Unpack a case that was sent."""
    program = ir_named(sent.ir).load(sent.data, sent.passes, sent.name)
    if sent.script:
        program = keep_script(program, sent.script, sent.script_is_exact)
    return Case(program, sent.inputs, sent.expected, sent.origin, sent.parameters)


def _replace_surrogates(item: Any) -> Any:
    """Replace surrogates in all strings of a value."""
    if isinstance(item, str):
        return item.encode("utf-8", "replace").decode()
    if isinstance(item, dict):
        return {_replace_surrogates(key): _replace_surrogates(value) for key, value in item.items()}
    return [_replace_surrogates(value) for value in item] if isinstance(item, (list, tuple)) else item
