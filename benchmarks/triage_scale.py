"""How triage keeps up: many failures entered at once, one more, a store of a million, and that nothing
decided moves.

    python benchmarks/triage_scale.py [--failures 100000] [--million 1000000] [--json]

CPU seconds of this process, as measured; pages in milliseconds of wall time and of CPU time, the worst and
the median of repetitions.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from opsieve.backends.observation import Frame, Observation
from opsieve.backends.verdict import Mismatch, Verdict
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.triage.fingerprint.fingerprint import make_fingerprint
from opsieve.triage.review.review import review_store
from opsieve.triage.store.decisions import Ledger
from opsieve.triage.store.finished_test import Campaign, FinishedTest, FoundFailure
from opsieve.triage.store.index.index_file import begin_immediate
from opsieve.triage.store.queries import Queries
from opsieve.triage.store.store import Store

OPERATORS = [
    "Pad",
    "Conv",
    "Relu",
    "MatMul",
    "Slice",
    "Gather",
    "Cast",
    "Resize",
    "Reshape",
    "TopK",
    "Softmax",
    "Where",
]
CAMPAIGN = Campaign("bench", "small-1", 1, ("onnxruntime", "tvm"))


def program() -> OnnxProgram:
    names = ["x", *(f"t{at}" for at in range(len(OPERATORS[:6])))]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in (names[0], names[-1])]
    return OnnxProgram(
        helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=8).SerializeToString()
    )


def failures(count: int, bugs: int, seed: int, first: int = 0) -> Iterator[FinishedTest]:
    """Failures of so many bugs, the frequent ones a thousand times as frequent as the rare ones; each is
    fingerprinted here.
    """
    draw = random.Random(seed)
    case = Case(program(), {"x": np.zeros(2, np.float32)})
    weights = [1 / (at + 1) for at in range(bugs)]
    for number, bug in enumerate(draw.choices(range(bugs), weights, k=count), first):
        target = CAMPAIGN.targets[bug % 2]
        operators = [OPERATORS[bug % 12], OPERATORS[bug // 12 % 12]]
        words = (
            f"{operators[0]} rule{chr(97 + bug % 26)}{chr(97 + bug // 26 % 26)}{chr(97 + bug // 676 % 26)}"
        )
        if bug % 3 == 2:
            told = Verdict(
                "fail", "differs", "mismatch", "run", mismatch=Mismatch("y", "value", max_abs=draw.random())
            )
            operators = [f"{operators[0]}{bug // 36}", operators[1]]
            seen = Observation(target, "1.0", "ok", "run", {"y": np.zeros(1, np.float32)})
        else:
            message = (
                f"/src/core/{words.replace(' ', '_')}.cc:{draw.randrange(900)} fold node"
                f" {draw.randrange(10**6)}: bad {words} shape {{{draw.randrange(99)},3}}"
            )
            frames = tuple(
                Frame("python", f"{name}_{bug % 97}", f"/x/site-packages/tvm/{name}.py", draw.randrange(900))
                for name in ("main", "lower", f"rule{bug}")
            )
            told = Verdict("fail", "it fails", "error", "compile", message)
            seen = Observation(
                target,
                "1.0",
                "error",
                "compile",
                None,
                "builtins.RuntimeError",
                message,
                frames if bug % 2 else (),
            )
        found = FoundFailure(target, told, make_fingerprint(told, seen, operators), (seen,))
        yield FinishedTest(
            number,
            case,
            {name: ("fail" if name == target else "pass", 0.001) for name in CAMPAIGN.targets},
            (found,),
        )


def chunks(tests: Iterator[FinishedTest], size: int) -> Iterator[list[FinishedTest]]:
    while chunk := [test for _, test in zip(range(size), tests, strict=False)]:
        yield chunk


def milliseconds(action: Callable[[], object], times: int = 9) -> dict[str, float]:
    """Of an action that is repeated: wall time, and this process's own CPU time, which others on the machine
    do not change.
    """
    taken, spent = [], []
    for _ in range(times):
        began, before = time.perf_counter(), time.process_time()
        action()
        taken.append(1000 * (time.perf_counter() - began))
        spent.append(1000 * (time.process_time() - before))
    found = {"median": statistics.median(taken), "worst": max(taken)}
    found |= {"CPU median": statistics.median(spent), "CPU worst": max(spent)}
    return {name: round(value, 1) for name, value in found.items()}


def cpu(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return round(time.process_time() - began, 2)


def enter(store: Store, count: int, bugs: int, seed: int, first: int = 0) -> None:
    for chunk in chunks(failures(count, bugs, seed, first), 1000):
        store.record_tests(CAMPAIGN, chunk)


def places(folder: Path) -> dict[int, int]:
    """The cluster of every failure, by test."""
    with Store(folder) as store:
        rows = store._database.execute(
            "SELECT f.test, p.cluster FROM failures f JOIN fingerprints p ON p.key = f.fingerprint"
        ).fetchall()
    return dict(rows)


def multiplied(folder: Path, count: int, clusters: int) -> None:
    """Counted failures and clusters beside those that are there, as rows: what a store of that size holds
    without its folders.
    """
    with Store(folder) as store:
        connection = store._database.conn
        keys = [
            row[0] for row in connection.execute("SELECT key FROM fingerprints ORDER BY number").fetchall()
        ]
        with begin_immediate(store._database):
            number = connection.execute("SELECT max(number) FROM fingerprints").fetchone()[0]
            columns = (
                "version, kind, components, count, kept, apart, title, stage, message, targets, guilty_pass,"
                " first_bad, first_seen, last_seen"
            )
            for at in range(len(keys), clusters):
                number += 1
                connection.execute(
                    f"INSERT INTO fingerprints (key, number, cluster, {columns}) SELECT ?, ?, ?, {columns}"
                    " FROM fingerprints WHERE key = ?",
                    [f"{keys[at % len(keys)]}x{at}", number, number, keys[at % len(keys)]],
                )
                cluster = (
                    "title, kind, backend, stage, members, fingerprints, nodes, representative, targets,"
                    " operators, first_seen, last_seen, severity, rank"
                )
                connection.execute(
                    f"INSERT INTO clusters (id, {cluster}) SELECT ?, {cluster} FROM clusters WHERE id ="
                    " (SELECT cluster FROM fingerprints WHERE key = ?)",
                    [number, keys[at % len(keys)]],
                )
                connection.execute(
                    "INSERT INTO texts (rowid, title, message, operators) SELECT ?, title, message, '' FROM"
                    " fingerprints WHERE number = ?",
                    [number, number],
                )
            keys = [
                row[0]
                for row in connection.execute("SELECT key FROM fingerprints ORDER BY number").fetchall()
            ]
            have = connection.execute("SELECT count(*) FROM failures").fetchone()[0]
            draw = random.Random(5)
            weights = np.cumsum([1 / (at + 1) for at in range(len(keys))])
            chosen = np.searchsorted(weights, np.random.default_rng(5).random(count - have) * weights[-1])
            connection.executemany(
                "INSERT INTO failures (campaign, test, target, verdict, kind, stage, fingerprint, message,"
                " reason, blame, version, digest, folder, seen) VALUES ('more', ?, 'tvm', 'fail', 'error',"
                " 'run', ?, 'as before', '', '', '1.0', '', '', ?)",
                ((at, keys[which], 1e9 + draw.random()) for at, which in enumerate(chosen)),
            )
            connection.execute(
                "UPDATE fingerprints SET count = (SELECT count(*) FROM failures WHERE fingerprint = key)"
            )
            connection.execute(
                "UPDATE clusters SET members = (SELECT coalesce(sum(count), 0) FROM fingerprints WHERE"
                " cluster = clusters.id)"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--failures", type=int, default=100_000)
    parser.add_argument("--bugs", type=int, default=1500)
    parser.add_argument("--million", type=int, default=1_000_000)
    parser.add_argument("--clusters", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    told: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        with Store(folder) as store:
            store.begin_campaign(CAMPAIGN)
            told["fingerprint and cluster, CPU s"] = cpu(
                lambda: enter(store, wanted.failures, wanted.bugs, 1)
            )
            told["failures, clusters"] = [store.count_all_failures(), store.count_clusters(CAMPAIGN)]
            more = iter(list(failures(60, wanted.bugs * 2, 2, wanted.failures)))
            told["one more, ms"] = milliseconds(lambda: store.record_tests(CAMPAIGN, [next(more)]), 60)
        told["triage (ranks, rules), CPU s"] = cpu(lambda: review_store(folder))
        with Queries(folder) as queries, Ledger(folder) as ledger:
            rows = queries.clusters(limit=500).rows
            for at, row in enumerate(rows[:200]):
                ledger.mark(row.id, "known" if at % 2 else "confirmed")
            ledger.merge(rows[200].id, *[row.id for row in rows[201:220]])
        before = places(folder)
        with Store(folder) as store:
            enter(store, 10_000, wanted.bugs * 2, 3, wanted.failures + 60)
        after = places(folder)
        told["moved by 10,000 more failures"] = sum(
            after[test] != cluster for test, cluster in before.items()
        )
        multiplied(folder, wanted.million, wanted.clusters)
        with Queries(folder) as queries:
            counts = queries.counts()
            told["the large store: failures, clusters"] = [counts.failures, counts.clusters]
            largest = queries.clusters(sort="members", limit=1).rows[0]
            told["the largest cluster"] = largest.members
            at = [""]

            def page(text: str = "", **more: object) -> object:
                found = queries.clusters(text, limit=100, **more)  # type: ignore[arg-type]
                at[0] = found.next
                return found

            told["page by rank, ms"] = milliseconds(page)
            for _ in range(40):
                page(after=at[0])
            told["page 42 by rank, ms"] = milliseconds(lambda: queries.clusters(limit=100, after=at[0]))
            told["page by members, ms"] = milliseconds(lambda: page(sort="members"))
            told["page of a filter with fields, ms"] = milliseconds(
                lambda: page("kind:error op:Relu target:tvm status:new")
            )
            told["page of a filter with words, ms"] = milliseconds(lambda: page("bad Pad rule"))
            told["page of members, ms"] = milliseconds(lambda: queries.members(largest.id))
            told["a case, ms"] = milliseconds(lambda: queries.case(rows[0].id))
            told["related, ms"] = milliseconds(lambda: queries.related(rows[0].id), 3)
            told["counts, ms"] = milliseconds(queries.counts, 3)
        with Ledger(folder) as ledger:
            turns = iter(range(100))
            told["a decision, ms"] = milliseconds(lambda: ledger.note(rows[3].id, f"note {next(turns)}"))
    print(
        json.dumps(told) if wanted.json else "\n".join(f"{name:44} {value}" for name, value in told.items())
    )
    sys.exit(0)


if __name__ == "__main__":
    main()
