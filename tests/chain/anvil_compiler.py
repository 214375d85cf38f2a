"""anvil, a compiler with releases: onnx's reference evaluator that goes wrong as it is told, from release 2.0
on.

`install_anvil.py` makes the package of a release of this file and of a copy of backends/compilers/fake.py,
whose faults these are. What comes besides:

    !FAULT       also strikes in the unoptimised build; without the `!` a fault is made by the pass
    FuseOPERATOR, which can be disabled like=1.0     has the faults of release 1.0: none
    ~FAULT       does not strike where there is an Identity
    FAULT KIND   `turn` transposes; `vary` gives other values in each run; `later` wrong values in one process
    and an error in the next; `once` an error in one
                 process and none in the next, `waver` a lack that comes and goes likewise; `hog` takes 256 MB; `lenient` (in front of all others) runs
                 what is invalid
"""

import ctypes
import mmap
import os
import struct
import time
import zlib
from types import SimpleNamespace

import numpy as np
from anvil import faults as engine

__version__ = "RELEASE"

# Shared by all processes that a zygote forks: who has run a program last, so that processes take turns
# without any chance.
_TURNS = mmap.mmap(-1, 8 << 12)
_VARIES = ("vary", "later")
engine.VALUE_FAULTS = (*engine.VALUE_FAULTS, *_VARIES, "turn")
engine.PROCESS_FAULTS = (*engine.PROCESS_FAULTS, "once", "waver", "hog")
engine.KINDS = engine.VALUE_FAULTS + engine.RAISED_FAULTS + engine.PROCESS_FAULTS
_alter_value, _misbehave = engine.alter_value, engine.misbehave
_current = {"slot": 0}


class AnvilInternalError(RuntimeError):
    """An error that comes and goes."""


def takes_turn():
    """Whether this process is the first of two that run the program."""
    place = 8 * _current["slot"]
    (last,) = struct.unpack_from("q", _TURNS, place)
    first = last in (0, os.getpid())
    struct.pack_into("q", _TURNS, place, os.getpid() if first else 0)
    return first


def alter_value(kind, value):
    """The value faults of this file."""
    if kind == "turn":
        return np.asarray(value).T
    if kind not in _VARIES:
        return _alter_value(kind, value)
    if kind == "later" and not takes_turn():
        raise AnvilInternalError("anvil/kernels.cc:77 later: the buffer was released")
    factor = 2 if kind == "later" else 2 + time.time_ns() % 1009
    return (np.asarray(value) * factor + factor).astype(np.asarray(value).dtype)


def misbehave(kind):
    """The other faults of this file."""
    if kind == "once":
        if takes_turn():
            raise AnvilInternalError("anvil/fusion.cc:31 once: the schedule was lost")
    elif kind == "waver":
        if takes_turn():
            raise engine.FakeUnsupported("anvil/fusion.cc:43 waver: no kernel was found, not implemented")
    elif kind == "hog":
        ctypes.memset(ctypes.create_string_buffer(256 << 20), 1, 256 << 20)
    else:
        _misbehave(kind)


engine.alter_value, engine.misbehave = alter_value, misbehave


def build(model, options, stage=lambda name: None, form="onnx"):
    """A function from inputs to outputs by name; `options` has faults, level, disabled, trace and seed."""
    import onnx

    text = options["faults"] if "1.0" not in (__version__, options["like"]) else ""
    _current["slot"] = zlib.crc32(f"{text} {options['level']} {options['seed']}".encode() + model) % (1 << 12)
    lenient = text.startswith("lenient")
    if b"disruptive" in model and not lenient:  # not always: the checker wants the types of all outputs
        onnx.checker.check_model(onnx.load_model_from_string(model), full_check=True)
    kept = []
    for fault in filter(None, text.removeprefix("lenient").split("+")):
        name = "Fuse" + fault.partition("@")[2].partition("/")[0].partition("%")[0].replace(">", "").replace(
            "&", ""
        )
        if not fault.startswith("!"):
            if options["level"] == "off" or name in options["disabled"].split("+"):
                continue
            if options["trace"] == "on":
                print(f"opsieve pass ran {name}\nopsieve pass acted {name}", flush=True)
        if not (fault.lstrip("!").startswith("~") and b"Identity" in model):
            kept.append(fault.lstrip("!~"))
    if form != "onnx":
        return compile_module(form, model, kept, stage)
    asked = {"faults": "+".join(kept), "level": "on", "seed": options["seed"]}
    run = engine.Fake().prepare(SimpleNamespace(model=model, ir=form, options=asked, stage=stage))
    return forgiving(model, run) if lenient else run


def compile_module(form, model, faults, stage):
    """A module of TVM, evaluated by opsieve's own reference; a fault shows where its pattern, `relax.exp`,
    stands in the text.
    """
    from opsieve.backends.reference.reference import BACKEND as REFERENCE

    def run(inputs):
        request = SimpleNamespace(
            model=model,
            ir=form,
            passes=(),
            options={"precision": "native"},
            stage=stage,
            inputs=inputs,
            notes=[],
            hazards=[],
            mapped=(),
        )
        return REFERENCE.prepare(request)(inputs)

    found = [
        fault for fault in engine.parse("+".join(faults), "") if f'"{fault.paths[0][0]}"'.encode() in model
    ]
    at_run = [fault for fault in found if fault.kind in engine.VALUE_FAULTS or fault.stage == "run"]
    for fault in found:
        if fault not in at_run:
            fault.act(None)

    def run_with_faults(inputs):
        outputs = run(inputs)
        for fault in at_run:
            outputs = {name: fault.act(None, value) for name, value in outputs.items()}
        return outputs

    return run_with_faults


def forgiving(model, run):
    """`run`, with zeros for what cannot be computed."""
    import onnx

    outputs = onnx.load_model_from_string(model).graph.output

    def runs(inputs):
        try:
            return run(inputs)
        except Exception:  # noqa: BLE001 -- that is what it is for
            kinds = [(item.name, item.type.tensor_type) for item in outputs]
            return {
                name: np.zeros(
                    [size.dim_value for size in kind.shape.dim],
                    onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type),
                )
                for name, kind in kinds
            }

    return runs
