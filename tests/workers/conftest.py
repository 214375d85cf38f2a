import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def tvm() -> Iterator[Callable[..., Any]]:
    """Ask the one process of this session that has TVM: `tvm("compare", texts=[...])`; its errors are raised
    here.
    """
    if importlib.util.find_spec("tvm") is None:
        pytest.skip("needs apache-tvm")
    script = Path(__file__).with_name("tvm_process.py")
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def ask(do: str, **request: Any) -> Any:
            child.stdin.write(json.dumps({"do": do, **request}) + "\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            answer = json.loads(child.stdout.readline())  # type: ignore[union-attr]
            if "error" in answer:
                raise RuntimeError(answer["error"])
            return answer["value"]

        yield ask
        child.stdin.close()
