"""What travels between the main process and a lane: frames of MessagePack, values of tensors as
backends/workers/inside/wire.py packs them.

Nothing is pickled. Of a test that found nothing only what the index keeps of it travels, of one that failed
the case and its observations.
"""

import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from opsieve.backends.observation import Observation
from opsieve.backends.probing.operator_support import Support
from opsieve.backends.verdict import Verdict
from opsieve.backends.workers.inside import wire
from opsieve.backends.workers.zygotes.zygote import Limits
from opsieve.gen.case.case import Case, Origin
from opsieve.gen.irs.registry import ir_named, keep_script
from opsieve.gen.model.program import Program
from opsieve.triage.campaign.schedule.batch import BatchDecision
from opsieve.triage.fingerprint.fingerprint import Fingerprint
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure, NonBug

_LENGTH = struct.Struct(">Q")
_MOST = 4 << 30  # bytes of a message


class Begin(msgspec.Struct, tag=True):
    """To a lane, first: whose tests it will do. With `scheduled` it asks the targets `first` alone, and sends
    what is decided by, the cases too where there are other targets.
    """

    campaign: Campaign
    supports: tuple[Support, ...]
    limits: Limits
    scheduled: bool = False
    first: tuple[str, ...] = ()

    @property
    def cases_wanted(self) -> bool:
        """Whether further targets may be asked about a test."""
        return self.scheduled and set(self.first) != set(self.campaign.targets)


class NumberRange(msgspec.Struct, tag=True):
    """To a lane: do the tests from `start` on, up to `stop`, of one batch that this was decided of."""

    start: int
    stop: int
    decision: BatchDecision | None = None


class Stop(msgspec.Struct, tag=True):
    """To a lane: end with the piece that you are at."""


class SentProgram(msgspec.Struct):
    """A program of any IR."""

    ir: str
    data: bytes
    passes: tuple[str, ...]
    name: str
    script: str = ""
    exact: bool = False


class SentCase(msgspec.Struct):
    """A case; values are frames of `wire`."""

    program: SentProgram
    inputs: bytes
    expected: bytes | None
    origin: Origin
    parameters: dict[str, str]


class SentObservation(msgspec.Struct):
    """An observation, its outputs apart."""

    rest: Observation
    outputs: bytes | None


class SentFailure(msgspec.Struct):
    """A failure that was found."""

    target: str
    verdict: Verdict
    fingerprint: Fingerprint
    observations: list[SentObservation]


class SentTest(msgspec.Struct):
    """A test that was done; a case where something was found."""

    number: int
    digest: str
    answers: dict[str, tuple[str, float]]
    findings: list[SentFailure]
    non_bugs: list[NonBug]
    reached: int
    case: SentCase | None
    ir: str = "onnx"
    features: tuple[str, ...] = ()
    left_out: dict[str, str] = {}


class Further(msgspec.Struct, tag=True):
    """To a lane: do a test, whose case it is, on these targets, beside those that have answered."""

    number: int
    case: SentCase
    targets: tuple[str, ...]
    answered: tuple[str, ...]


class Answered(msgspec.Struct, tag=True):
    """From a lane: the test of a `Further` is done on its targets."""

    test: SentTest


class Finished(msgspec.Struct, tag=True):
    """From a lane: these tests are done, all of its numbers below `upto`; `stopped` when it leaves the
    others.
    """

    tests: list[SentTest]
    upto: int
    tests_per_second: float
    stopped: bool = False


class Failed(msgspec.Struct, tag=True):
    """From a lane: it cannot go on, and why."""

    sentence: str


Message = Begin | NumberRange | Further | Stop | Finished | Answered | Failed
Question = NumberRange | Further
Answer = Finished | Answered | Failed
_DECODER = msgspec.msgpack.Decoder(Message)


def encode(message: msgspec.Struct) -> bytes:
    """The frame of a message, without its length."""
    try:
        return msgspec.msgpack.encode(message, enc_hook=_mapping)
    except UnicodeEncodeError:  # a compiler printed half of a character
        plain = msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=_mapping)
        return msgspec.msgpack.encode(_whole(plain))


def decode(frame: bytes) -> Message:
    """The message of a frame; EOFError when it is none."""
    try:
        message: Message = _DECODER.decode(frame)
    except msgspec.MsgspecError as error:
        raise EOFError(str(error)) from None
    return message


def send(connection: socket.socket, message: Message) -> None:
    """Send a message whole; OSError when the other side is gone."""
    send_frame(connection, encode(message))


def receive(connection: socket.socket) -> Message:
    """The next message; EOFError when the other side is gone, or sends something else."""
    return decode(receive_frame(connection))


def send_frame(connection: socket.socket, frame: bytes) -> None:
    """Send the frame of a message; OSError when the other side is gone."""
    connection.sendall(_LENGTH.pack(len(frame)) + frame)


def receive_frame(connection: socket.socket) -> bytes:
    """The frame of the next message; EOFError when the other side is gone, or announces too much."""
    (length,) = _LENGTH.unpack(wire.receive_exactly(connection, _LENGTH.size))
    if length > _MOST:
        raise EOFError("no message")
    return bytes(wire.receive_exactly(connection, length))


@dataclass(frozen=True, slots=True)
class Done:
    """A test that a lane has done: on the targets that are asked first, or on `further` ones too. The case as
    it travelled, if it did.
    """

    test: FinishedTest
    case: SentCase | None = None
    further: bool = False


def finished(
    tests: Sequence[FinishedTest], upto: int, tests_per_second: float, stopped: bool, *, cases: bool = False
) -> Finished:
    """The message of tests that were done; with `cases`, those of tests that found nothing too."""
    return Finished([sent_test(test, cases) for test in tests], upto, tests_per_second, stopped)


def is_last(answer: Message, question: Question) -> bool:
    """Whether a lane has answered a question when it has said this."""
    if isinstance(answer, Finished) and isinstance(question, NumberRange):
        return answer.stopped or answer.upto >= question.stop
    return True


def done_tests(message: Finished | Answered) -> Iterator[Done]:
    """The tests that a lane has done."""
    further = isinstance(message, Answered)
    for test in (message.test,) if isinstance(message, Answered) else message.tests:
        found = [
            FoundFailure(
                item.target, item.verdict, item.fingerprint, tuple(map(read_observation, item.observations))
            )
            for item in test.findings
        ]
        case = read_case(test.case) if test.case is not None and found else None
        rest = (test.digest, test.ir, test.features, test.left_out)
        whole = FinishedTest(test.number, case, test.answers, found, test.non_bugs, test.reached, *rest)
        yield Done(whole, test.case, further)


def sent_test(test: FinishedTest, with_case: bool = False) -> SentTest:
    """A test as it travels."""
    findings = [
        SentFailure(
            item.target, item.verdict, item.fingerprint, list(map(sent_observation, item.observations))
        )
        for item in test.findings
    ]
    case = _sent_case(test.case) if test.case is not None and (findings or with_case) else None
    non_bugs, answers = list(test.non_bugs), dict(test.answers)
    rest = (test.ir, test.features, dict(test.left_out))
    return SentTest(test.number, test.digest, answers, findings, non_bugs, test.reached, case, *rest)


def _sent_case(case: Case) -> SentCase:
    expected = None if case.expected is None else packed(case.expected)
    return SentCase(
        sent_program(case.program), packed(case.inputs), expected, case.origin, dict(case.parameters)
    )


def read_case(sent: SentCase) -> Case:
    """The case that travelled."""
    expected = None if sent.expected is None else unpacked(sent.expected)
    return Case(read_program(sent.program), unpacked(sent.inputs), expected, sent.origin, sent.parameters)


def sent_program(program: Program) -> SentProgram:
    """A program as it travels."""
    about = (program.passes, program.name, program.script, program.script_is_exact)
    return SentProgram(program.ir, program.data, *about)


def read_program(sent: SentProgram) -> Program:
    """The program that travelled."""
    program = ir_named(sent.ir).load(sent.data, sent.passes, sent.name)
    return keep_script(program, sent.script, sent.exact) if sent.script else program


def sent_observation(observation: Observation) -> SentObservation:
    """An observation as it travels."""
    outputs = None if observation.outputs is None else packed(observation.outputs)
    return SentObservation(replace(observation, outputs=None), outputs)


def read_observation(sent: SentObservation) -> Observation:
    """The observation that travelled."""
    return sent.rest if sent.outputs is None else replace(sent.rest, outputs=unpacked(sent.outputs))


def packed(values: Mapping[str, Any]) -> bytes:
    """Named values as one frame of `wire`."""
    chunks: list[Any] = []
    described = wire.pack_values(dict(values), chunks)
    return wire.encode(described, chunks)


def unpacked(data: bytes) -> dict[str, Any]:
    """The values of such a frame."""
    header, size = wire.frame_size(data[: wire.HEAD.size], len(data))
    body = memoryview(data)[wire.HEAD.size + header :]
    described = json.loads(data[wire.HEAD.size : wire.HEAD.size + header].decode("utf-8", "surrogatepass"))
    return wire.unpack_values(described, body[:size], 0)[0]


def _mapping(item: object) -> object:
    """A mapping that is no dict as one."""
    if isinstance(item, Mapping):
        return dict(item)
    raise NotImplementedError(f"{type(item).__name__} does not travel")


def _whole(item: Any) -> Any:
    """The same with halves of characters replaced."""
    if isinstance(item, str):
        return item.encode("utf-8", "replace").decode()
    if isinstance(item, dict):
        return {_whole(key): _whole(value) for key, value in item.items()}
    return [_whole(value) for value in item] if isinstance(item, (list, tuple)) else item
