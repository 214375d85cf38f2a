"""A script that shows a reduced failure to somebody who has the compiler and nothing of ours.

Whatever comes from the model stands in the script as a literal that `repr` made, or as a comment on one line: text cannot leave it.
"""

import base64
import textwrap
from typing import Any

import numpy as np
import onnx.printer

from opsieve.backends.registry import all_options, display, resolve
from opsieve.backends.target import Target
from opsieve.reducer.discover import Premise
from opsieve.reducer.subject import Subject

_MOST_BYTES = 64 << 10  # of a model or a value inside the script; larger ones are read from the files beside it
_MOST_LINES = 80

_ORT = """
def run(optimised):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    level = {level!r} if optimised else {base!r}
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    disabled = {disabled!r} if optimised else []
    session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    return session.run(None, INPUTS)
"""
_ORT_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disable_all": "ORT_DISABLE_ALL",
}
_TVM = """
def run(optimised):
    model = onnx.load_model_from_string(MODEL)
    shapes = {{name: list(value.shape) for name, value in INPUTS.items()}}
    module = from_onnx(model, shapes, keep_params_in_input=False)
    with tvm.transform.PassContext(opt_level={opt} if optimised else 0):
        machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    names = [parameter.name_hint for parameter in module["main"].params]
    result = machine["main"](*(tvm.runtime.tensor(INPUTS[name]) for name in names))
    return [item.numpy() for item in (result if hasattr(result, "__len__") and not hasattr(result, "numpy") else [result])]
"""
_REFERENCE = """
def right():
    import onnx.reference

    return onnx.reference.ReferenceEvaluator(onnx.load_model_from_string(MODEL)).run(None, INPUTS)
"""
_MAIN = """
if __name__ == "__main__":
    wanted = {wanted}
    print("expected:", *wanted, sep="\\n")
    got = run(True)
    print("got:", *got, sep="\\n")
    for a, b in zip(got, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape, b.dtype, b.shape)
        if a.dtype.kind in "fc":
            scale = max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), 1e-30)
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * scale)
        else:
            np.testing.assert_array_equal(a, b)
    print("no failure here")
"""


def script(subject: Subject, premise: Premise, version: str, model_file: str) -> str:
    """The source of `repro.py`; it ends with an exception, or dies, where the failure is there."""
    target = resolve(premise.target)
    run = _runner(target)
    head = [f"Reduced by opsieve. {display(target)} {version}: {premise.failure.verdict.kind}."]
    head += textwrap.wrap(_plain(premise.reason), 100)
    lines = ['"""' + "\n".join(_plain(line).replace('"', "'") for line in head) + '\n"""', ""]
    lines += ["import base64", "", "import numpy as np", "import onnx", *run[0], ""]
    lines += ["# The model, as onnx.printer shows it:"]
    lines += [f"#   {_plain(line)}" for line in printed(subject).splitlines()[:_MOST_LINES]]
    data = subject.model.SerializeToString(deterministic=True)
    if len(data) <= _MOST_BYTES:
        lines += [
            "MODEL = base64.b64decode(",
            *(f"    {part!r}" for part in _chunks(base64.b64encode(data).decode())),
            ")",
        ]
    else:
        lines += [f"MODEL = open({model_file!r}, 'rb').read()"]
    lines += ["INPUTS = {", *(f"    {name!r}: {_literal(value)}," for name, value in subject.inputs.items()), "}", ""]
    unoptimised = premise.arbiter is not None and premise.arbiter.backend == target.backend
    body = [run[1], "" if unoptimised else _REFERENCE]
    body.append(_MAIN.format(wanted="run(False)" if unoptimised else "right()"))
    return "\n".join(lines) + "\n".join(part for part in body if part)


def printed(subject: Subject) -> str:
    """The model as text; a sentence for one that onnx cannot print."""
    try:
        return str(onnx.printer.to_text(subject.model))
    except Exception as error:  # noqa: BLE001  the printer is C++ and raises several unrelated classes
        return f"(onnx.printer cannot print it: {type(error).__name__})"


def _runner(target: Target) -> tuple[list[str], str]:
    """The imports and the function `run` for a backend."""
    options = all_options(target)
    if target.backend == "onnxruntime":
        disabled = [item for item in options["disabled_optimizers"].split("+") if item]
        text = _ORT.format(level=_ORT_LEVELS[options["level"]], base="ORT_DISABLE_ALL", disabled=disabled)
        return ["import onnxruntime as ort"], text
    if target.backend == "tvm":
        imports = ["import tvm", "from tvm import relax", "from tvm.relax.frontend.onnx import from_onnx"]
        return imports, _TVM.format(opt=int(options.get("opt") or 3))
    # Others are run through opsieve: their modules know how.
    text = (
        "\ndef run(optimised):\n"
        f"    target = {str(target)!r}\n"
        "    with Workers() as workers:\n"
        "        observation = workers.observe(resolve(target), Program(MODEL), INPUTS)\n"
        "    assert observation.outputs is not None, (observation.outcome, observation.message)\n"
        "    return list(observation.outputs.values())\n"
    )
    imports = [
        "from opsieve.backends.registry import resolve",
        "from opsieve.backends.workers import Workers",
        "from opsieve.gen.program import Program",
    ]
    return imports, text


def _literal(value: Any) -> str:
    """A value as Python source."""
    if value is None:
        return "None"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return f"np.array({[str(item) for item in array.ravel()]!r}, dtype=object).reshape({array.shape})"
    if array.dtype.name not in np.sctypeDict:
        code = base64.b64encode(array.tobytes()).decode()
        return f"np.frombuffer(base64.b64decode({code!r}), onnx.helper.tensor_dtype_to_np_dtype({_number(array)})).reshape({array.shape})"
    if array.size and (array == array.ravel()[0]).all():
        return f"np.full({array.shape}, {_item(array.ravel()[0])}, np.{_numpy_name(array)})"
    if array.nbytes > 1024:
        code = base64.b64encode(array.tobytes()).decode()
        return f"np.frombuffer(base64.b64decode({code!r}), np.{_numpy_name(array)}).reshape({array.shape})"
    return f"np.array([{', '.join(map(_item, array.ravel()))}], np.{_numpy_name(array)}).reshape({array.shape})"


def _item(item: Any) -> str:
    text = repr(item.item())
    return f"float({text!r})" if text in ("nan", "inf", "-inf") else text


def _numpy_name(array: "np.ndarray[Any, Any]") -> str:
    return "bool_" if array.dtype.kind == "b" else array.dtype.name


def _number(array: "np.ndarray[Any, Any]") -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def _chunks(text: str) -> list[str]:
    return [text[start : start + 100] for start in range(0, len(text), 100)] or [""]


def _plain(text: str) -> str:
    """One line of printable ASCII without backslashes, fit for a comment or a docstring."""
    return "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in " ".join(text.split(" ")))
