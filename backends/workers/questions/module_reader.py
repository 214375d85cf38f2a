"""Read a module that the caller's own TVM holds in memory; only its text leaves the caller's TVM."""

import sys
from pathlib import Path
from typing import Any

from opsieve.backends.compilers.tvm_capture import as_module, flatten_passes, is_module, is_stock
from opsieve.backends.workers.questions.programs import Choice, load_module, read_script
from opsieve.backends.workers.workers import Workers
from opsieve.gen.errors import BadInput


def write_module(module: Any, passes: Any, folder: Path) -> Path:
    """Write a module with its passes to a new folder.

    Args:
        module: A module or function of the TVM that the caller imported.
        passes: A pass, a Sequential, a list of passes or names; names with commas between them, or a Python
            file that defines passes, which a worker runs; or `None`.
        folder: Where the files go.

    Returns:
        The folder.

    Raises:
        BadInput: For another object, and a pass that TVM cannot make by its name.
    """
    tvm: Any = sys.modules["tvm"]
    if not is_module(tvm, module):
        raise BadInput(f"a {type(module).__name__} of TVM is not a module or function")
    folder.mkdir()
    # As text, because objects of the caller's TVM belong to another process and perhaps another version.
    text = str(tvm.ir.save_json(as_module(tvm, module)))
    if isinstance(passes, str) and passes.endswith(".py"):
        script = folder / "module.py"
        script.write_text(f"import tvm\n\nmodule = tvm.ir.load_json({text!r})\n")
        with Workers() as workers:
            program, _ = read_script(script, workers, Choice(passes=passes))
    else:
        program = load_module(text.encode(), _list_names(tvm, passes), "module")
    for name, chunks in program.files().items():
        (folder / name).write_bytes(b"".join(chunks))
    return folder


def _list_names(tvm: Any, passes: Any) -> list[str]:
    """Return the names of passes, without their arguments: TVM does not tell these."""
    names: list[str] = []
    if isinstance(passes, str):
        passes = [item.strip() for item in passes.split(",")]
    for item in passes if isinstance(passes, (list, tuple)) else filter(None, [passes]):
        if isinstance(item, str):
            names.append(item)
            continue
        if not isinstance(item, tvm.transform.Pass):
            raise BadInput(f"pass_ holds a {type(item).__name__}, which is neither a pass nor a name")
        for each in flatten_passes(tvm, item):
            if not is_stock(tvm, each):
                raise BadInput(
                    f"TVM has no pass {each.info.name}: apply it before, or write it to a Python file and"
                    " name that"
                )
            names.append(str(each.info.name))
    return names
