"""Rows of invariants.py that import the code: `python benchmarks/invariant_facts.py REPOSITORY ROW [GROUP]`
prints one as JSON.

It runs in the current folder, which is empty, with tests/support on the path.
"""

import contextlib
import hashlib
import io
import json
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Keys of JSON whose values are keyed by data, such as the name of a target.
KEYED_BY_DATA = {
    "targets", "verdicts", "strategies", "census", "by_status", "failures_by_kind", "clusters_by_kind",
    "counts", "failures", "frequencies", "families", "compilers", "operators", "libraries", "spread",
    "isra", "isra_all", "hirfuzz", "motifs", "plots", "options", "unsupported", "environment", "flaky",
    "clusters", "broken", "levels",
}  # fmt: skip


MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2, 3] x) => (float[2, 3] y) { h = Relu(x) t = Tanh(h) y = Neg(t) }
"""
REPORT = f"It is wrong.\n```\n{MODEL}```\n"
# Each group runs in this order in a folder of its own, in one process, with model.onnx, report.md, a copy of
# the small store and junk.onnx. SAMPLE is samples/pad-conv-weight-load-error; CASE a stored crash, MERGED a
# fingerprint of onnxruntime.
COMMANDS = """
[run-and-reduce]
run model.onnx -t fake
run model.onnx -t fake:wrong@Tanh
run model.onnx -t fake:unsupported
run model.onnx -t onnxruntime==0.0.1 --offline
run model.onnx -t fake -t fake:wrong@Tanh -t fake:unsupported
run model.onnx -t fake:unsupported --allow-unjudged
run missing.onnx -t fake
run junk.onnx -t fake
run model.onnx -t no-such-target
run model.onnx -t fake --values special:zeros,nan
run model.onnx -t onnxruntime --values search
run model.onnx --no-such-option
reduce model.onnx -t fake:wrong@Tanh -o small
reduce small --verify -t fake:wrong@Tanh
reduce small --verify -t fake
reduce small --verify -t fake:unsupported
reduce model.onnx -t fake
reduce model.onnx -t fake:unsupported
reduce missing.onnx -t fake
reduce model.onnx -t fake:crash@Tanh -o crashed

[examine]
reduce model.onnx -t fake:wrong@Tanh -o small
attribute SAMPLE -t onnxruntime
attribute SAMPLE -t onnxruntime:disable_all
attribute SAMPLE -t onnxruntime==0.0.1 --offline
export small -t fake:wrong@Tanh --as script -o repro.py
export small -t fake:wrong@Tanh --as issue -o issue.md
export small -t fake:wrong@Tanh --as pytest -o test_repro.py
export small -t fake:wrong@Tanh --as case -o case.zip
export model.onnx -t fake
export model.onnx -t fake:unsupported
bisect model.onnx --releases fake
bisect SAMPLE --releases onnxruntime --dry-run --offline
corpus add corpus model.onnx -t fake
corpus run corpus -t fake
corpus run corpus -t fake:wrong@Tanh
corpus run corpus -t fake:unsupported
corpus diff one.json two.json
replay report.md --no-history -t fake
replay report.md --no-history -t fake:wrong@Tanh
replay report.md --no-history -t fake:unsupported

[fuzz]
fuzz -t fake:wrong@Tanh --no-probe --strategy isra --nodes 5 --tests 16 --seed 3 --store found
fuzz --store found --resume --tests 20
fuzz -t fake --no-probe --strategy isra --nodes 5 --tests 4 --seed 3 --store well
fuzz -t fake:unsupported --no-probe --nodes 5 --tests 4 --seed 3 --store none
fuzz -t fake:wrong@Tanh --no-probe --strategy isra --nodes 5 --tests 8 --seed 4 --store ci --ci --junit ci.xml --sarif ci.sarif
fuzz -t fake:wrong@Tanh --no-probe --strategy isra --nodes 5 --tests 8 --seed 4 --store known --known ci --fail-on new
coverage found

[gen]
gen -n 2 --nodes 5 --seed 3 --check
gen -n 2 --nodes 5 --seed 3 -o made
gen -n 2 --nodes 5 --seed 3 -o made
gen --origin made/mix-3
gen -n 2 --nodes 5 --strategy no-such-strategy
gen --explain-support -t fake
import model.onnx -o taken
import nothing
metrics made

[store]
index --store store
triage store
triage store --refingerprint --dry-run
clusters --store store
clusters --store store --group kind
clusters --store store --non-bugs
show c1 --store store
show CASE --store store
show c99 --store store
mark c2 known --issue https://example.org/7 --store store
note c2 seen --store store
rename c3 third --store store
pin c3 --store store
merge c1 c5 --store store
split MERGED --store store
undo --store store
redo --store store
redo --store store
report --store store -o page.html
known import missing.json --store store
export c1 --store store --offline -o repro2.py
clusters --store no-such-store

[set-up]
sample
sample no-such-sample
sample pad-maxpool-wrong-value -o sample
doctor
init
completion bash
"""


def commands_by_group() -> dict[str, list[str]]:
    """The lines of COMMANDS by the name of their group."""
    groups: dict[str, list[str]] = {}
    for line in filter(None, COMMANDS.splitlines()):
        if line.startswith("["):
            groups[line.strip("[]")] = []
        else:
            groups[list(groups)[-1]].append(line)
    return groups


def call_commands(root: Path, group: str) -> Any:
    """Exit code and keys of --json of each command of a group, called in this process and folder."""
    import onnx

    from opsieve.tui.cli import main as opsieve

    scratch = Path.cwd()
    shutil.copytree(root / "tests" / "corpus" / "store", scratch / "store")
    cases = [path.name for path in sorted((scratch / "store" / "cases").iterdir())]
    words = {
        "SAMPLE": str(root / "samples" / "pad-conv-weight-load-error"),
        "CASE": f"cases/{next(name for name in cases if name.startswith('fake-crash-'))}/1",
        "MERGED": next(name for name in cases if name.startswith("onnxruntime-")),
    }
    onnx.save(onnx.parser.parse_model(MODEL), "model.onnx")
    Path("report.md").write_text(REPORT)
    Path("junk.onnx").write_bytes(b"\xff" * 40)
    for name, verdict in (("one", "pass"), ("two", "fail")):
        result = {"case": "case", "target": "fake", "after": {"verdict": verdict}, "reason": ""}
        Path(f"{name}.json").write_text(json.dumps({"results": [result]}))
    value = {}
    for line in commands_by_group()[group]:
        typed = [words.get(word, word) for word in shlex.split(line)]
        plain = typed[0] in ("init", "completion")
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                opsieve([*typed, *([] if plain else ["--json"])])
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if "benchmarks/research" in err.getvalue():
            continue
        try:
            keys = " ".join(sorted(set(key_paths(json.loads(out.getvalue())))))
        except ValueError:
            keys = ""
        value[line if line not in value else f"{line} (again)"] = {"exit": code, "keys": keys}
    return value


def key_paths(value: Any, above: str = "") -> Iterator[str]:
    """Paths of all keys; [] is an element of a list, * a key that is data."""
    if isinstance(value, dict):
        by_data = above.rpartition(".")[2] in KEYED_BY_DATA
        for key, each in value.items():
            path = f"{above}.{'*' if by_data else key}".lstrip(".")
            yield path
            yield from key_paths(each, path)
    elif isinstance(value, list):
        for each in value:
            yield from key_paths(each, f"{above}[]")


def digest_of(value: Any) -> str:
    """Short digest of what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint_logs() -> Any:
    """Digest of the fingerprints of the stored logs, by the first word of their names."""
    from golden_logs import KINDS, logs

    from opsieve.backends.observation import Observation
    from opsieve.backends.verdict import Verdict
    from opsieve.triage.fingerprint.fingerprint import make_fingerprint

    value = {}
    for kind in KINDS:
        keys = []
        for name, log in logs(kind):
            trace = log.trace
            seen = Observation(
                "onnxruntime", "1", "error", "compile", frames=log.frames, message=log.message, log=log.raw
            )
            keys.append(
                [
                    name,
                    trace.kind,
                    trace.exception,
                    trace.signal,
                    make_fingerprint(Verdict("fail", "", "error"), seen, ["Conv"]).key,
                ]
            )
        value[kind] = {"logs": len(keys), "digest": digest_of(keys)}
    return value


def judge_truth() -> Any:
    """Verdicts of the programs whose verdict is known, by class."""
    from truth import known

    from opsieve.backends.judge.judge import judge_program
    from opsieve.backends.judge.oracles import SECOND_ORACLES
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.questions.observation_cache import ObservationCache
    from opsieve.backends.workers.workers import Workers

    counts: dict[str, Counter[str]] = {}
    with Workers() as workers:
        lab = ObservationCache(workers)
        for each in known():
            target = resolve(each.target)
            oracles = [oracle for oracle in SECOND_ORACLES if oracle != target]
            verdict = judge_program(each.program, each.inputs, target, lab, oracles=oracles).verdict
            lab.forget_all()
            word = " ".join(filter(None, (verdict.verdict, verdict.kind)))
            counts.setdefault(each.kind_of_truth, Counter())[word] += 1
    return {name: dict(sorted(count.items())) for name, count in sorted(counts.items())}


def attack_sandbox() -> Any:
    """Which hostile acts succeed within the sandbox and without one."""
    from isolation_drill import succeeded

    value = {}
    for walls in ("all", "none"):
        with tempfile.TemporaryDirectory() as folder:
            value[walls] = sorted(succeeded(Path(folder), walls)[0])
    return {"acts that succeed in the sandbox": value["all"], "without it": len(value["none"])}


FACTS: dict[str, Callable[..., Any]] = {
    "commands": call_commands,
    "logs": fingerprint_logs,
    "truth": judge_truth,
    "sandbox": attack_sandbox,
}


if __name__ == "__main__":
    # Some files of this folder have the names of modules of tests/support.
    sys.path.pop(0)
    repository, row, *group = sys.argv[1:]
    json.dump(FACTS[row](Path(repository), *group) if group else FACTS[row](), sys.stdout)
