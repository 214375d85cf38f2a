"""The contents of a case folder for people: drawn graph, operators, inputs. Read in a process of its own.

    python -I -m opsieve.tui.app.views.case_summary FOLDER prints one JSON object, the fields of CaseSummary

A model may be large or hostile, and reading it could freeze the app; the process has limits on time and
memory.
"""

import json
import resource
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opsieve.gen.errors import BadInput, shown

_SECONDS = 30
_MEMORY = 4 << 30
# Characters of a label
_LONGEST = 400
# Elements of an input that are shown
_VALUES = 12
_MAX_OUTPUT = 16 << 20


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """`graph`: (rails, label) lines; `operators`: (operator, count); `inputs` and `expected`: (name, type,
    values); `origin`: (name, value).
    """

    graph: tuple[tuple[str, str], ...]
    operators: tuple[tuple[str, int], ...]
    inputs: tuple[tuple[str, str, str], ...]
    expected: tuple[tuple[str, str, str], ...]
    origin: tuple[tuple[str, str], ...]


def read_summary(folder: Path) -> CaseSummary:
    """Read the summary of a case folder.

    Raises:
        BadInput: If it cannot be read within the limits.
    """
    # -I: a module in the working directory must not be imported instead of ours.
    command = [sys.executable, "-I", "-m", "opsieve.tui.app.views.case_summary", str(folder)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
        # A killed process leaves no JSON, which is a ValueError below.
        reply = json.loads(done.stdout[:_MAX_OUTPUT])
        if "problem" in reply:
            raise BadInput(str(reply["problem"]))
        return CaseSummary(
            tuple((str(rails), str(label)) for rails, label in reply["graph"]),
            tuple((str(name), int(many)) for name, many in reply["operators"]),
            _make_triples(reply["inputs"]),
            _make_triples(reply["expected"]),
            tuple((str(name), str(value)) for name, value in reply["origin"]),
        )
    except BadInput:
        raise
    except subprocess.TimeoutExpired:
        raise BadInput(f"the case {shown(folder, 160)} took more than {_SECONDS} s to read") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(
            f"the case {shown(folder, 160)} cannot be read; the process that tried has died"
        ) from None


def _make_triples(rows: Any) -> tuple[tuple[str, str, str], ...]:
    return tuple((str(name), str(kind), str(values)) for name, kind, values in rows)


def summarise_case(folder: Path) -> CaseSummary:
    """Summarise a case folder in this process; raises BadInput if the case cannot be loaded."""
    from opsieve.gen.case.case import load
    from opsieve.gen.irs.registry import ir_of

    case = load(folder)
    ir, origin = ir_of(case.program), case.origin
    origin_rows = [
        ("generator", origin.generator),
        ("seed", "" if origin.seed is None else str(origin.seed)),
        ("inputs", origin.inputs),
    ]
    origin_rows += [(f"version of {name}", version) for name, version in sorted(origin.versions.items())]
    origin_rows += [(name, value) for name, value in sorted(case.parameters.items())]
    origin_rows += [*ir.describe(case.program), ("digest", case.program.digest)]
    return CaseSummary(
        tuple((rails, label[:_LONGEST]) for rails, label in ir.lines(case.program)),
        # the most frequent first
        tuple(sorted(Counter(ir.operators(case.program)).items(), key=lambda one: (-one[1], one[0]))),
        tuple((name, *_describe_value(value)) for name, value in case.inputs.items()),
        tuple((name, *_describe_value(value)) for name, value in (case.expected or {}).items()),
        tuple(origin_rows),
    )


def _describe_value(value: Any) -> tuple[str, str]:
    import numpy as np

    if value is None:
        return "nothing", ""
    if isinstance(value, (list, tuple)):
        return f"sequence of {len(value)}", ", ".join(_describe_value(item)[0] for item in value[:4])
    array = np.asarray(value)
    flat = array.ravel()
    words = " ".join(str(item)[:24] for item in flat[:_VALUES])
    if flat.size > _VALUES:
        words += " …"
        if array.dtype.kind in "fiu":
            wide = (
                # In float64: a mean of float16 would overflow.
                flat[np.isfinite(flat)].astype(np.float64)
                if array.dtype.kind == "f"
                else flat.astype(np.float64)
            )
            if wide.size:
                words += f"  (from {wide.min():.6g} to {wide.max():.6g}, mean {wide.mean():.6g})"
    return f"{array.dtype}{list(array.shape)}".replace(" ", ""), words


def _main() -> None:
    # A small file can describe a tensor of any size.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        json.dump(asdict(summarise_case(Path(sys.argv[1]))), sys.stdout)
    except (BadInput, OSError) as error:
        json.dump({"problem": str(error)}, sys.stdout)


if __name__ == "__main__":
    _main()
