"""A user's own Python file as a module of TVM: a worker runs it and captures the module as TVM's JSON.

Of tvm_relax.py, with the same rules. The file is imported, so `if __name__ == "__main__"` is left out. It may
hold TVMScript, functions that build a module (BlockBuilder), and imports of any form. A second file may hold
passes.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opsieve.backends.compilers import tvm_tir

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request, Run


def prepare(tvm: Any, request: "Request") -> "Run":
    """Return the module of a script, and the passes that are left to run on it.

    The input `choice` says in JSON which `module` of the file is meant, which function is its `entry`, and
    holds the text of a file of `passes`; each is "" for none. Passes that TVM does not have by name cannot be
    kept with a program, so they are run here, and those before them too.
    """
    choice = json.loads(request.inputs["choice"].tobytes())
    module = choose_module(
        tvm, run_file(tvm, request.model.decode("utf-8"), "opsieve_script"), choice["module"]
    )
    passes = passes_in(tvm, run_file(tvm, choice["passes"], "opsieve_passes")) if choice["passes"] else []
    own = [place for place, each in enumerate(passes) if not is_stock(tvm, each)]
    # All up to the last pass of the user's own: the order of passes matters.
    first = own[-1] + 1 if own else 0
    with tvm.target.Target("llvm"):
        for each in passes[:first]:
            module = each(module)
    text = tvm.ir.save_json(module)
    saved = {
        "module": with_entry(text, choice["entry"]) if choice["entry"] else text,
        "passes": json.dumps([str(each.info.name) for each in passes[first:]]),
    }

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: np.frombuffer(text.encode("utf-8"), np.uint8) for name, text in saved.items()}

    return run


def run_file(tvm: Any, text: str, name: str) -> Mapping[str, Any]:
    """Import a file and return its definitions. TVMScript reads the source from a file, so the text is
    written to one.

    The names of TVM's printing (`I`, `R`, `T`) are there without an import.
    """
    from tvm.script import ir, relax, tirx

    path = os.path.join(tempfile.mkdtemp(), "%s.py" % name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(tvm=tvm, I=ir, R=relax, T=tirx)
    # The parser asks this, and for False says only that the module is not well-formed: here it says why.
    tvm.relax.analysis.check_well_formed = lambda found: tvm.relax.analysis.well_formed(found) or True
    # Before it runs: `inspect` finds the source of its functions by this.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return {key: value for key, value in vars(module).items() if not key.startswith("__")}


def choose_module(tvm: Any, names: Mapping[str, Any], wanted: str) -> Any:
    """Choose the module: the named one, or the only one, or the one that the only function without parameters
    builds.

    Raises:\n    ValueError: The file lacks the module, or has several; the message lists the candidates.
    """
    modules = {name: value for name, value in names.items() if is_module(tvm, value)}
    builders = {name: value for name, value in names.items() if is_builder(value)}
    if wanted:
        if wanted not in {**modules, **builders}:
            raise ValueError(
                "the file makes no module %s; it has %s"
                % (wanted, ", ".join({**modules, **builders}) or "none")
            )
        return as_module(tvm, modules[wanted] if wanted in modules else builders[wanted]())
    if not modules:
        built = {name: value() for name, value in builders.items()}
        modules = {name: value for name, value in built.items() if is_module(tvm, value)}
    # A module counts more than the functions that stand beside it.
    whole = {name: value for name, value in modules.items() if isinstance(value, tvm.IRModule)}
    found = whole or modules
    # By identity: two names of one module are one choice.
    if len({id(value) for value in found.values()}) != 1:
        raise ValueError(
            "the file has several modules (%s): choose one with --module" % ", ".join(found)
            if found
            else "the file makes no module of TVM, and no function without parameters that returns one"
        )
    return as_module(tvm, next(iter(found.values())))


def is_module(tvm: Any, value: Any) -> bool:
    """Whether a value is a module, or a function that makes one by itself."""
    return isinstance(value, (tvm.IRModule, tvm.relax.Function, tvm.tirx.PrimFunc))


def is_builder(value: Any) -> bool:
    """Whether a value is a function of the file that can be called without arguments."""
    # Not what the file imported.
    if not inspect.isfunction(value) or not value.__module__.startswith("opsieve_"):
        return False
    return all(
        param.default is not param.empty or param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD)
        for param in inspect.signature(value).parameters.values()
    )


def as_module(tvm: Any, value: Any) -> Any:
    """Return a function as a module of its own."""
    if isinstance(value, tvm.IRModule):
        return value
    if not is_module(tvm, value):
        raise ValueError("the function returns %s, which is no module of TVM" % type(value).__name__)
    return tvm.IRModule({"main": value.with_attr("global_symbol", "main")})


def with_entry(saved: str, entry: str) -> str:
    """Return the JSON of a module with a function in the place of `main`.

    Raises:
        ValueError: it has no such function.
    """
    graph = json.loads(saved)
    nodes = graph["nodes"]
    names = {node["data"]["name_hint"] for node in nodes if node["type"] == "ir.GlobalVar"}
    functions = sorted({nodes[place]["data"] for place in names})
    if entry not in functions:
        raise ValueError("the module has no function %s; it has %s" % (entry, ", ".join(functions)))
    # The old `main` stays under another name, since the entry may call it.
    spare = next(name for name in map("main_{}".format, range(len(names) + 1)) if name not in functions)
    renamed = {} if entry == "main" else {entry: "main", "main": spare}
    # Attributes (`global_symbol`) may say the name in a node of their own.
    for node in nodes:
        if node["type"] == "ffi.String":
            node["data"] = renamed.get(node["data"], node["data"])
    return json.dumps(graph)


def passes_in(tvm: Any, names: Mapping[str, Any]) -> Sequence[Any]:
    """List the passes that a file defines last: one, a Sequential, or a list of them.

    Raises:
        ValueError: it defines none.
    """
    found: Sequence[Any] = ()
    for value in names.values():
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        if items and all(isinstance(item, tvm.transform.Pass) for item in items):
            found = items
    if not found:
        raise ValueError("the file of passes defines no pass, Sequential or list of passes")
    return [part for item in found for part in flatten_passes(tvm, item)]


def flatten_passes(tvm: Any, each: Any) -> Sequence[Any]:
    """List the passes of a Sequential of the user's, or the pass itself: some of TVM's own are
    Sequentials.
    """
    if is_stock(tvm, each) or not isinstance(each, tvm.transform.Sequential):
        return [each]
    return [part for item in each.passes for part in flatten_passes(tvm, item)]


def is_stock(tvm: Any, each: Any) -> bool:
    """Return whether TVM makes the pass by its name alone: of Relax, or `tirx.` and `s_tir.` of TIR."""
    return tvm_tir.find_pass(tvm, str(each.info.name)) is not None
