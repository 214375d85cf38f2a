"""Workers for every target: programs in, observations out.

There is one zygote for each compiler in each environment, shared by all `Workers` of this process and by the
lanes of a campaign (those of releases are forked from one template process), and one persistent worker for
each target. A worker that dies, hangs or grows is replaced, and the tests behind the culprit go to the next
one. No compiler code runs in the main process.
"""

import os
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from opsieve.backends.observation import UNHEARD, Observation
from opsieve.backends.protocol import Backend
from opsieve.backends.registry import ORACLE, Plugin, ResolvedTarget, plugin, resolve
from opsieve.backends.releases import builds, consent, interpreters, releases
from opsieve.backends.stacks import native
from opsieve.backends.workers.observe import KNOBS, is_killed_from_outside, object_to, read_death, read_reply
from opsieve.backends.workers.sandbox.policy import (
    list_devices,
    may_share_memory,
    may_start_processes,
    select_variables,
    start_sandboxed,
)
from opsieve.backends.workers.zygotes import shared_zygotes, work_clock
from opsieve.backends.workers.zygotes.zygote import (
    Death,
    Interrupted,
    Limits,
    TemplateProcess,
    Unavailable,
    Worker,
    Zygote,
)
from opsieve.gen.errors import BadInput, format_install_command

# numpy and onnx come in when a question is asked: compilers start while the main process imports them.
if TYPE_CHECKING:
    from opsieve.backends.coverage.coverage import Coverage
    from opsieve.gen.model.program import Program

# One frame for many small tests saves wake-ups of two processes. A frame is bounded, because its tests are
# lost together when the worker dies.
BATCH_TESTS = 32
BATCH_BYTES = 8 << 20
# Header and all, this fits in half of Linux's default socket buffer
PIPELINED_BYTES = 96 << 10
COMPILERS = (
    # The limit on live zygotes; beyond it, as in a sweep over releases, the least recently used one is
    # closed.
    24
)
# A `repeat`: not even once
COMPILED = -1
# Compilers leak. A new worker is forked after this many tests, which costs milliseconds.
TESTS_PER_WORKER = 5000
# Bytes that a worker's peak may be above that of its first test when it is kept: what a lane's workers take
# is bounded.
GROWTH = 256 << 20


@dataclass(frozen=True)
class Test:
    """A program and its input values by name.

    `as_is` keeps the model's IR version. With `again`, `reached` of its observation is every probe on its
    way, not only new ones.
    """

    # pytest: not a test class
    __test__ = False

    program: "Program"
    inputs: dict[str, Any]
    as_is: bool = False
    again: bool = False


class Environments(Protocol):
    """A source of releases; `ReleaseStore` is one."""

    def environment(
        self, backend: Backend, release: str, offline: bool = ..., say: Callable[[str], None] = ...
    ) -> releases.Environment:
        """Return the environment that runs a release; raises BadInput if it is unavailable."""


class Workers:
    """Every worker of this process. Use it as a context manager: on exit all its processes and files are
    gone.

    `say` receives sentences about slow steps (a release being installed). Thread-safe: two threads may
    observe different targets at once, and wait for each other on the same one.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        store: "Environments | None" = None,
        offline: bool = False,
        say: Callable[[str], None] = lambda sentence: None,
        coverage: "Coverage | None" = None,
        zygotes: shared_zygotes.SharedZygotes = shared_zygotes.ZYGOTES,
    ):
        self.limits = limits or Limits()
        self._shared = zygotes
        self._store: Environments = store or releases.ReleaseStore()
        self.offline = offline
        self._say = say
        self._coverage = coverage
        self._zygotes: dict[tuple[str, str], Zygote] = {}
        self._templates: dict[tuple[str, Path], TemplateProcess] = {}
        # Remembered, because a failing import can take as long as a good one.
        self._missing: dict[tuple[str, str], str] = {}
        self._workers: dict[ResolvedTarget, Worker] = {}
        self._locks: dict[object, threading.Lock] = {}
        self._guard = threading.Lock()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process that was started."""
        for worker in self._workers.values():
            worker.close()
        # After its workers, because a zygote that others share lives on.
        self._shared.give_back(list(self._zygotes.values()))
        for template in self._templates.values():
            template.close()
        self._workers.clear()
        self._zygotes.clear()
        self._templates.clear()

    def end_workers(self) -> None:
        """End every worker; the next test goes to a new one. No thread may be observing."""
        for target in list(self._workers):
            self._workers.pop(target).close()

    def end_release(self, target: ResolvedTarget) -> None:
        """End the processes of a release, whose files may change now. No thread may be observing it."""
        place = target.zygote
        self._missing.pop(place, None)
        with self._guard:
            found = self._zygotes.pop(place, None)
        if found is not None:
            self._discard_zygote(place, found)

    def get_walls(self) -> tuple[list[str], dict[str, str] | None]:
        """Return the walls of the started compilers and the missing ones (None without a sandbox)."""
        started = next(iter(self._zygotes.values()), None)
        return (list(started.walls), started.lacks) if started is not None else ([], None)

    def version(self, target: ResolvedTarget) -> str:
        """Return the compiler's version; raises Unavailable if it cannot be imported, BadInput for an
        unavailable release.
        """
        with self._get_lock(target.zygote):
            return self._get_zygote(target).version

    def observe(
        self,
        target: ResolvedTarget,
        program: "Program",
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        """Observe one program on one target, in its persistent worker, or in a fork of its own if `fresh`.

        With `repeat`, the program runs that many more times and `seconds["run"]` is their median. With a
        `repeat` of `COMPILED` it is compiled and not run, and a program that compiles gives no outputs
        (`{}`).
        """
        return next(self.observe_many(target, [Test(program, inputs)], fresh=fresh, repeat=repeat))

    def observe_many(
        self, target: ResolvedTarget, tests: Sequence[Test], *, fresh: bool = False, repeat: int = 0
    ) -> Iterator[Observation]:
        """Observe each test, in order, several per frame."""
        # Rewriting and oracles wrap a target; each takes off one layer and observes what is inside.
        if target.rewrite:
            yield from self._observe_rewritten(target, tests, fresh, repeat)
            return
        if target.oracles:
            answers = self.observe_many(target.without(ORACLE), tests, fresh=fresh, repeat=repeat)
            for test, seen in zip(tests, answers, strict=True):
                yield replace(self._ask_oracles(target, test, seen), target=target.display)
            return
        if any(test.program.ir not in target.irs for test in tests):
            for test in tests:
                if test.program.ir in target.irs:
                    yield from self.observe_many(target, [test], fresh=fresh, repeat=repeat)
                else:
                    why = f"{target.name} does not take {test.program.kind.partition(' ')[2]}s"
                    yield Observation(target.display, target.release, "unsupported", "import", message=why)
            return
        try:
            with self._get_lock(target.zygote):
                zygote = self._get_zygote(target)
        except (Unavailable, BadInput) as error:
            for _ in tests:
                yield Observation(target.display, target.release, "environment", "import", message=str(error))
            return
        with self._get_lock(target):
            # Alone in its frame, so that what a test reaches is not mixed with its neighbours'.
            alone = fresh or any(test.again for test in tests)
            effects = self._coverage is not None and self._coverage.kind == "passes"
            batches = _make_batches(tests, target.options, 1 if alone else BATCH_TESTS, repeat, effects)
            for test, observation in self._run_batches(target, zygote, batches, fresh):
                yield self._retry_lowered(target, zygote, test, observation, fresh)

    def _observe_rewritten(
        self, target: ResolvedTarget, tests: Sequence[Test], fresh: bool, repeat: int
    ) -> Iterator[Observation]:
        """Observe rewritten tests (gen/rewrites) under the requested target, with the outputs translated
        back.
        """
        from opsieve.gen.rewrites.relation import rewrite_program

        made = [rewrite_program(test.program, test.inputs, target.rewrite) for test in tests]
        given = [
            replace(test, program=found.program, inputs=found.inputs)
            if found is not None
            else test  # it fits nowhere
            for test, found in zip(tests, made, strict=True)
        ]
        answers = self.observe_many(target.unrewritten, given, fresh=fresh, repeat=repeat)
        for test, observation in zip(tests, answers, strict=True):
            outputs = observation.outputs
            if outputs is not None:
                wanted = test.program.outputs()
                outputs = {name: value for name, value in outputs.items() if name in wanted}
            # The rewriting may add outputs, which the original program does not have.
            yield replace(observation, target=target.display, outputs=outputs)

    def _ask_oracles(self, target: ResolvedTarget, test: Test, seen: Observation) -> Observation:
        """Return an observation as the user's oracles see it: an objection makes it an error."""
        for name in target.oracles if seen.outputs else ():
            problem = consent.check_named(name)
            if not problem:
                values = {f"in/{key}": value for key, value in test.inputs.items()}
                values |= {f"out/{key}": value for key, value in (seen.outputs or {}).items()}
                asked = resolve(f"oracle:name={name}")
                said = self.observe(asked, test.program, values)
                if said.outputs is not None:
                    objection = bytes(said.outputs["objection"]).decode("utf-8", "replace")
                    if objection:
                        return object_to(seen, f"oracle {name}: {objection}")
                    continue
                problem = f"the oracle {name} did not judge the outputs: {said.message or said.outcome}"
            return replace(seen, outcome="environment", outputs=None, exception=UNHEARD, message=problem)
        return seen

    def _retry_lowered(
        self, target: ResolvedTarget, zygote: Zygote, test: Test, observation: Observation, fresh: bool
    ) -> Observation:
        """Run again with the same operators under a lower opset if the release is older than the model's
        opset.
        """
        if observation.outcome != "environment" or test.as_is:
            return observation
        from opsieve.gen.irs.registry import ir_of

        lowered = ir_of(test.program).older(test.program)
        if lowered is None:
            return observation
        again = _make_batches([Test(lowered, test.inputs)], target.options, 1, 0)
        _, answer = next(self._run_batches(target, zygote, again, True))
        note = "the opset was lowered to the first one with the same operator versions"
        return (
            observation if answer.outcome == "environment" else replace(answer, notes=(*answer.notes, note))
        )

    def _run_batches(
        self, target: ResolvedTarget, zygote: Zygote, batches: Iterator["_Batch"], fresh: bool
    ) -> Iterator[tuple[Test, Observation]]:
        """Observe batches of tests; those behind a test that killed the worker go to a new worker.

        While a worker computes one frame, the next waits in the socket's buffer if it surely fits: the worker
        never waits for the main process, and neither blocks on the other.
        """
        sent: deque[_Batch] = deque()
        held = next(batches, None)
        worker: Worker | None = None
        kills, retried = work_clock.count_oom_kills(), set[int]()
        # What such a test reaches is noted over what the one before it did.
        again = held is not None and any(test.again for test in held.tests)
        try:
            while sent or held:
                if worker is None:
                    worker = (
                        self._fork_worker(target, zygote)
                        if fresh
                        else (self._workers.pop(target, None) or self._fork_worker(target, zygote))
                    )
                    for batch in sent:
                        worker.submit_frame(batch.make_frame(), batch.count_unanswered, batch.file)
                while held and (
                    not sent or (len(sent) < 2 and held.size < PIPELINED_BYTES and not fresh and not again)
                ):
                    sent.append(held)
                    worker.submit_frame(held.make_frame(), held.count_unanswered, held.file)
                    held = next(batches, None)
                batch = sent[0]
                test, limits = batch.tests[batch.done], self.limits
                if target.facts.seconds:
                    # A helper's limit is shorter than that of compilers, and grows with the program.
                    own = target.facts.seconds + test.program.byte_size // 2**20
                    limits = replace(limits, seconds=min(own, limits.seconds))
                answer = worker.read_reply(limits.seconds)
                if (
                    isinstance(answer, Death)
                    and is_killed_from_outside(answer, self.limits, kills)
                    and id(test) not in retried
                ):
                    # Something other than the OOM killer killed it, so the test is repeated.
                    worker = None
                    retried.add(id(test))
                    continue
                batch.done += 1
                if not batch.count_unanswered:
                    sent.popleft()
                if isinstance(answer, Death):
                    worker = None
                    yield test, read_death(target, zygote.version, answer, limits, kills)
                    continue
                # The first test's peak holds what the zygote had loaded; half the limit leaves room for the
                # next test.
                most = min(worker.first_peak + GROWTH, self.limits.memory // 2)
                # Only between frames: one that is already sent would be lost with the worker.
                if not sent and (fresh or worker.tests > TESTS_PER_WORKER or answer[0]["peak"] > most):
                    worker.close()
                    worker = None
                yield (
                    test,
                    self._record_effects(target, read_reply(target, zygote.version, *answer), answer[0]),
                )
        finally:
            # The caller stopped listening in the middle of a frame
            if worker is not None and sent:
                worker.close()
            elif worker is not None:
                self._workers[target] = worker

    def _record_effects(
        self, target: ResolvedTarget, observation: Observation, reply: dict[str, Any]
    ) -> Observation:
        """Add the new effects that the compiler reported, if they are the requested coverage."""
        if (
            self._coverage is None
            or self._coverage.kind != "passes"
            or target.name not in self._coverage.backends
        ):
            return observation
        effects = self._coverage.effects(target.zygote)
        return replace(observation, reached=effects.new([str(name) for name in reply.get("effects", ())]))

    def _fork_worker(self, target: ResolvedTarget, zygote: Zygote) -> Worker:
        """Fork a worker of the target's backend, which the worker loads itself if it uses another backend's
        zygote.
        """
        source = target.plugin
        # Transformers run in the zygote of their host, which has the large imports already.
        shared = source.location if target.zygote[0] != target.name else None
        backend = source.backend
        rights = may_start_processes(backend), bool(list_devices(backend)), may_share_memory(backend)
        return zygote.fork_worker(self.limits, shared, *rights)

    def _get_lock(self, key: object) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def _get_zygote(self, target: ResolvedTarget) -> Zygote:
        place = target.zygote
        if place in self._missing:
            raise Unavailable(self._missing[place])
        if self._coverage is not None and place[0] != target.name and self._coverage.traces(target.name):
            # BadInput: what is served by another's zygote has no library of its own.
            self._coverage.probes((target.name, place[1]), target.backend, ())
        # put back behind the others: the first is the one unused for longest
        found = self._zygotes.pop(place, None)
        # Something killed it, and its workers with it
        if found is not None and not found.is_alive:
            self._discard_zygote(place, found)
            found = None
        if found is None:
            try:
                found = self._start_zygote(target)
            except (Unavailable, BadInput) as error:
                self._missing[place] = str(error)
                raise
            if self._coverage is not None and self._coverage.traces(place[0]):
                try:
                    probes = self._coverage.probes(place, plugin(place[0]).backend, found.modules)
                    found.plant_probes(probes)
                except (Unavailable, BadInput):
                    self._shared.give_back([found])
                    raise
        with self._guard:
            self._zygotes[place] = found
        # Close the zygotes unused for longest, with their workers, if there are too many.
        for place in list(self._zygotes)[: max(0, len(self._zygotes) - COMPILERS)]:
            targets = [
                target
                for target in self._locks
                if isinstance(target, ResolvedTarget) and target.zygote == place
            ]
            # Another thread is observing there; the limit may be exceeded for that time.
            if any(self._get_lock(target).locked() for target in targets):
                continue
            self._discard_zygote(place, self._zygotes.pop(place))
        return found

    def _discard_zygote(self, place: tuple[str, str], zygote: Zygote) -> None:
        """Close a zygote and its workers."""
        for target in [target for target in self._workers if target.zygote == place]:
            self._workers.pop(target).close()
        self._shared.give_back([zygote])

    def _start_zygote(self, target: ResolvedTarget) -> Zygote:
        """Start a zygote; an interrupted import is tried once more."""
        try:
            return self._launch_zygote(target)
        # On a loaded machine an import is killed or too slow once and succeeds the next time.
        except Interrupted:
            return self._launch_zygote(target)

    def _launch_zygote(self, target: ResolvedTarget) -> Zygote:
        source = plugin(target.zygote[0])
        builds.check_allowed(target)
        selected = select_variables(os.environ, source.facts.variables)
        environment = {**selected, **KNOBS, **source.facts.environment}
        shim = native.shim()
        traced = self._coverage is not None and self._coverage.traces(source.facts.name)
        readable = [Path(source.location[1]).parent, *([shim] if shim else []), *builds.own_files(target)]
        if self._coverage is not None and traced:
            readable.append(self._coverage.cache)
            # A folder that does not exist cannot be bound into the zygote's tree.
            self._coverage.cache.mkdir(parents=True, exist_ok=True)

        def start_sandboxed_zygote(
            listener: socket.socket | None,
            python: Path,
            path: Sequence[Path],
            template: TemplateProcess | None = None,
        ) -> Zygote:
            return start_sandboxed(
                source.backend,
                [*readable, *path],
                lambda walls: Zygote(
                    source.location,
                    python,
                    list(map(str, path)),
                    environment,
                    shim,
                    template or False,
                    traced,
                    walls,
                    listener,
                ),
                python,
                self._say,
            )

        try:
            if not target.release and not target.build:
                if missing := interpreters.find_missing_module(source.facts):
                    raise Unavailable(f"ModuleNotFoundError: No module named {missing!r}")
                # Of probes there is one set for each recorder, so that a traced one has no other user; its
                # scratch lies where it began.
                what = None if traced else (source.location, shim, tempfile.gettempdir(), target.libraries)
                return self._shared.take_zygote(
                    what, environment, lambda others: start_sandboxed_zygote(others, Path(sys.executable), ())
                )
            if target.build:
                home = builds.build_environment(source.backend, target.build, self.offline, self._say)
            else:
                home = self._store.environment(
                    source.backend, target.release, offline=self.offline, say=self._say
                )
            template = self._get_template(source, home.python, environment)
            # It ends with the template process, which is of these workers alone.
            made = self._shared.take_zygote(
                None,
                environment,
                lambda others: start_sandboxed_zygote(others, home.python, home.path, template),
            )
            made.version = builds.stated_version(made.version, home.state)
            return made
        except Unavailable as error:
            name = f"{source.facts.name} {target.release or target.build}".strip()
            hint = (
                f" ({format_install_command(f'opsieve[{source.facts.extra}]')})"
                if source.facts.extra and not (target.release or target.build)
                else ""
            )
            raise type(error)(f"{name} cannot be imported here: {error}{hint}") from None

    def _get_template(self, source: Plugin, python: Path, environment: dict[str, str]) -> TemplateProcess:
        """Return the process that forks the zygotes of a backend's releases under one Python."""
        place = (source.facts.name, python)
        with self._get_lock(place):
            found = self._templates.get(place)
            if found is not None and not found.is_alive:
                found.close()
                found = None
            if found is None:
                found = self._templates[place] = TemplateProcess(source.location, python, environment)
            return found


@dataclass
class _Batch:
    """Tests that travel in one frame, packed once; `done` of them are answered."""

    tests: list[Test]
    headers: list[dict[str, Any]]
    chunks: list[list[bytes]]
    size: int = 0
    done: int = 0

    @property
    def count_unanswered(self) -> int:
        """Return the number of tests without an answer yet."""
        return len(self.tests) - self.done

    @property
    def file(self) -> int | None:
        """The file that holds data of some of the tests."""
        if not any("outside" in header for header in self.headers):
            return None
        from opsieve.gen.model.detached import descriptor

        return descriptor()

    def make_frame(self) -> list[Any]:
        """Make the frame of the unanswered tests, in one piece, or in several to avoid copying large ones."""
        chunks = [chunk for chunks in self.chunks[self.done :] for chunk in chunks]
        from opsieve.backends.workers.inside import wire

        parts = wire.encode_parts({"tests": self.headers[self.done :]}, chunks)
        # One call for small frames; large ones are sent in pieces, since joining would hold them twice.
        return [b"".join(parts)] if self.size < BATCH_BYTES else parts


def _make_batches(
    tests: Sequence[Test], options: dict[str, str], most: int, repeat: int, effects: bool = False
) -> Iterator[_Batch]:
    from opsieve.backends.workers.inside import wire
    from opsieve.gen.irs.registry import ir_of

    batch = _Batch([], [], [])
    for test in tests:
        sent, about = ir_of(test.program).payload(test.program, test.as_is)
        chunks = [sent]
        header = {"model": len(sent), "options": options, "repeat": repeat, **about}
        header["inputs"] = wire.pack_values(test.inputs, chunks)
        header.update(again=test.again, effects=effects)
        header["span"] = span = sum(len(chunk) + (-len(chunk)) % wire.ALIGN for chunk in chunks)
        # A single test may be larger than the limit; it then has a frame of its own.
        if batch.tests and (len(batch.tests) >= most or batch.size + span > BATCH_BYTES):
            yield batch
            batch = _Batch([], [], [])
        batch.tests.append(test)
        batch.headers.append(header)
        batch.chunks.append(chunks)
        batch.size += span
    if batch.tests:
        yield batch
