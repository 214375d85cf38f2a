"""Every command of docs/how-to, typed as it stands in a fresh environment with the wheel of this tree.

    python benchmarks/typed_pages.py [PAGE]... [--repository NAME=PATH]... [--seconds 60] [--keep FOLDER]

A page is typed in an empty folder with an empty home: files that it shows under a name (a line that ends in
"`name.py`:") are written, the lines of its blocks that are commands are run one after the other, with what
the page presupposes made before (`GIVEN`) and its placeholders put in (`PLACEHOLDERS`). A command with
`--minutes` or a `--budget` gets Ctrl-C after `--seconds`, as a reader would end it. Printed is a row for each
command: its exit code, seconds, and whether it is as it should be: 0, 1 (failures found) or 130 (after
Ctrl-C) without a traceback, and the exit code that the page itself says. What cannot be typed here says why.
Exit code 1 when one is not as it should be.
"""

import argparse
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "how-to"
EXTRAS = "tvm,transformers,cluster"
PROGRAMS = r"opsieve|reduce|pip|pytest|python|mkdir|cp|sed|g\+\+|git|dask"
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$|(?P<plain>(?:^    [^\n]*\n)+)", re.M | re.S)
_NAMED = re.compile(r"`([\w./-]+\.(?:py|toml|cpp|sh|json))`[^`\n]*:\s*\Z")
_COMMAND = re.compile(rf"(?:\$ )?(?P<words>(?:[A-Z_]+=\S+ )*(?:{PROGRAMS}) .*)")
_LONGEST = 900.0  # seconds of any command
_ABSENT = {
    "dask_jobqueue|dask worker|dask scheduler|--scheduler|dask ssh|dask-jobqueue": (
        "needs a cluster: tests/triage/test_cluster*.py"
    ),
    r"example\.org|onnxruntime-qnn": "an index that is an example",
    "gh issue|ort\\.json": "needs the network",
    "^git clone": "--repository gives it",
    "YOUR_COMPILER": "needs a compiler that has the operator",
    r"~/venvs|~/onnxruntime/build|tvm@~|--builds|onnxoptimizer@dist|onnxoptimizer@mybuild|~/src/(?:compiler|tvm|onnxruntime)|cmake": (
        "needs a build of the reader's own"
    ),
    r"\bCASE\|| -t tvm@": "a form, not a command",
    "/data/sdk|on-board|compile-and-run": "needs a program of the reader's own",
    r"special\[|ranged \|": "a form, not a command",
}
# What a page presupposes.
GIVEN: Mapping[str, tuple[str, ...]] = {
    "triage": ("opsieve fuzz -t onnxoptimizer --tests 40 --seed 1 --store found",),
    "reduce": (
        "opsieve sample onnxoptimizer-shape-crash",
        "cp onnxoptimizer-shape-crash/model.onnx model.onnx",
    ),
    "export": ("opsieve fuzz -t onnxoptimizer --tests 200 --seed 1 --store found",),
    "generate": ("opsieve sample pad-maxpool-wrong-value",),
    "tui": ("opsieve fuzz -t onnxoptimizer --tests 100 --seed 1",),
}
PLACEHOLDERS: Mapping[str, Mapping[str, str]] = {
    "export": {"c17": "c1"},
    "bisect": {"CASE": "pad-maxpool-wrong-value"},
    "generate": {"MODEL": "pad-maxpool-wrong-value/model.onnx"},
    "triage": {"STORE": "found", "c17": "c1", "https://...": "https://example.com/1"},
}


@dataclass(frozen=True)
class Step:
    """A command of a page, or a file that it has the reader write (`path`)."""

    text: str
    path: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", help="names of pages; all without one")
    parser.add_argument(
        "--repository", action="append", default=[], help="NAME=PATH: what ~/src/NAME is to be"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of a campaign, until Ctrl-C")
    parser.add_argument("--keep", type=Path, help="folder to work in, which stays")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="typed-"))
    folder.mkdir(parents=True, exist_ok=True)
    binaries = environment_of(folder)
    repositories = dict(item.split("=", 1) for item in given.repository)
    bad = 0
    for page in sorted(PAGES.glob("*.md")):
        if not given.pages or page.stem in given.pages:
            bad += typed(page, folder, binaries, repositories, given.seconds)
    print(f"{bad} not as they should be")
    return 1 if bad else 0


def environment_of(folder: Path) -> Path:
    """The folder of programs of a fresh environment with the wheel of this tree."""
    place = folder / "environment"
    if not place.exists():
        build = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(folder),
            str(ROOT),
        ]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = folder.glob("*.whl")
        subprocess.run(["uv", "venv", "-q", "--seed", str(place)], check=True)
        install = [
            "uv",
            "pip",
            "install",
            "-q",
            "-p",
            str(place / "bin" / "python"),
            f"{wheel}[{EXTRAS}]",
            "pytest",
        ]
        subprocess.run([*install, "-c", str(ROOT / "constraints.txt")], check=True)
    return place / "bin"


def typed(page: Path, folder: Path, binaries: Path, repositories: Mapping[str, str], seconds: float) -> int:
    """Type a page; how many of its commands were not as they should be."""
    desk, home = folder / page.stem, folder / f"{page.stem}.home"
    for place in (desk, home / "src"):
        place.mkdir(parents=True, exist_ok=True)
    for name, path in repositories.items():
        if not (home / "src" / name).exists():
            subprocess.run(["git", "clone", "-q", path, str(home / "src" / name)], check=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPSIEVE", "VIRTUAL"))
    }
    environment |= {"HOME": str(home), "PATH": f"{binaries}:{environment['PATH']}", "TERM": "xterm-256color"}
    environment |= {"OPSIEVE_STORE": str(folder / "releases"), "LINES": "40", "COLUMNS": "120"}
    print(f"\n## {page.stem}\n\n| command | exit code | seconds | |\n|---|---|---|---|", flush=True)
    bad = 0
    for step in [*map(Step, GIVEN.get(page.stem, ())), *steps(page.read_text())]:
        if step.path:
            (desk / step.path).parent.mkdir(parents=True, exist_ok=True)
            (desk / step.path).write_text(step.text)
            continue
        text = step.text
        for name, meant in PLACEHOLDERS.get(page.stem, {}).items():
            text = text.replace(name, meant)
        given = not text.startswith("git clone") and any(f"~/src/{name}" in text for name in repositories)
        why = "" if given else absent(text)
        if why:
            print(f"| `{shown(text)}` | | | not typed: {why} |", flush=True)
            continue
        start = time.monotonic()
        code, output = run(text, desk, environment, seconds)
        # -2: a shell that Ctrl-C ends with its command.
        own = re.match(r"(?:\w+=\S+ )*(?:opsieve|reduce) ", text) is not None
        wrong = (
            code not in ((0, 1, 130, -signal.SIGINT) if own else (0,)) or "Traceback (most recent" in output
        )
        bad += wrong
        last = ascii(next((line for line in reversed(output.splitlines()) if line.strip()), ""))[1:-1]
        print(
            f"| `{shown(text)}` | {code} | {time.monotonic() - start:.0f} |"
            f" {f'WRONG: {last[:300]}' if wrong else ''} |",
            flush=True,
        )
    return bad


def steps(text: str) -> Iterator[Step]:
    """What a page has its reader do, in order."""
    for block in _BLOCK.finditer(text):
        body, language = (
            block["text"] if block["plain"] is None else re.sub(r"(?m)^    ", "", block["plain"]),
            block["language"] or "",
        )
        name = _NAMED.search(text[: block.start()])
        if name is not None:
            yield Step(body, name[1])
        elif language in ("", "sh", "console", "bash") and not body.startswith("#!"):
            yield from commands(body)


def commands(body: str) -> Iterator[Step]:
    """The commands of a block: continued lines are one, and so is a line with the lines that it reads."""
    lines = iter(body.replace("\\\n", " ").splitlines())
    for line in lines:
        found = _COMMAND.fullmatch(line)
        if found is None:
            continue
        whole = [re.sub(r"\s+#.*", "", found["words"]) if "'" not in line else found["words"]]
        here = re.search(r"<<-?'?(\w+)'?", line)
        while here is not None and whole[-1] != here[1]:
            whole.append(next(lines))
        yield Step("\n".join(whole))


def absent(text: str) -> str:
    """Why a command cannot be typed here, "" when it can."""
    return next((why for pattern, why in _ABSENT.items() if re.search(pattern, text)), "")


def shown(text: str) -> str:
    """A command in a cell of a table."""
    return text.partition("\n")[0].replace("|", "\\|")[:150]


def run(text: str, desk: Path, environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Exit code and output of a command on a terminal of its own; Ctrl-C when it takes too long, `q` for the
    terminal app.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where this script is run in the background
        os.chdir(desk)
        os.execvpe("bash", ["bash", "-c", text], dict(environment))
    output, begun, ends = b"", time.monotonic(), iter([b"q", b"q", b"\x03", b"\x03"])
    patience = min(seconds, 15.0) if text.startswith("opsieve tui") else seconds
    if not ("--minutes" in text or "--budget" in text or text.startswith("opsieve tui")):
        patience = _LONGEST
    while True:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        try:
            piece = os.read(terminal, 1 << 16) if ready else b""
        except OSError:  # its other end is closed
            break
        if ready and not piece:
            break
        output = (output + piece)[-(1 << 20) :]
        if time.monotonic() - begun > patience:
            key = next(ends, None) if text.startswith("opsieve tui") else b"\x03"
            if key is None or time.monotonic() - begun > patience + 120:
                os.killpg(os.getpgid(pid), signal.SIGKILL)
                break
            os.write(terminal, key)
            patience += 20.0
    status = os.waitpid(pid, 0)[1]
    os.close(terminal)  # not before, or what still runs hears that its terminal is gone
    return os.waitstatus_to_exitcode(status), output.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
