"""Common code of backends on the worker's side: defaults of fed inputs, types at a model's border, meanings
of errors.

Workers load the package `opsieve` in the environments of old releases too (workers/inside/child.py). So the
modules of this folder keep to the standard library, numpy and Python 3.8 while they are imported; onnx and
the compiler are imported inside functions.
"""

import os
import re
import sys
from typing import TYPE_CHECKING, Any, Callable, Collection, Mapping, Sequence, Tuple

if TYPE_CHECKING:
    from opsieve.backends.protocol import Request

# What an exception's class alone says, whichever compiler raised it.
CLASSES: Mapping[str, str] = {
    "NotImplementedError": "unsupported",
    "MemoryError": "out-of-memory",
    "_ArrayMemoryError": "out-of-memory",
    "ImportError": "environment",
    "ModuleNotFoundError": "environment",
    "DecodeError": "rejected",
}


class NotRun(Exception):
    """Raised when the runtime cannot run the original model, which says nothing about the compiler under
    test. The message is the runtime's own.
    """


class BrokenModel(Exception):
    """Raised for a defect in a model that a transformer or an exporter made of a good one."""


class UnknownName(Exception):
    """A pass, a part or a setting that the installed release does not have."""


class Adapter:
    """Base of the adapters to compilers: a release needs numpy and `requirements`, and `meanings` classify
    messages.

    The default is a backend without releases of its own, which runs where opsieve does.
    """

    package = ""
    extra = ""
    requirements: Tuple[str, ...] = ()
    meanings: Sequence[Tuple[str, str]] = ()

    def base(self, python: Tuple[int, int]) -> Tuple[str, ...]:
        """Return the requirements that all releases share."""
        return (numpy_requirement(python), *self.requirements) if self.package else ()

    def companions(self, release: str) -> Tuple[str, ...]:
        """Return the additional requirements of a release."""
        return ()

    def classify(self, stage: str, exception: str, message: str) -> str:
        """Classify by the exception's class if it is specific, otherwise by the message."""
        return meaning_of(exception, message[:4000], self.meanings)


def version_of(package: str) -> str:
    """Return the version of an imported package: that of the distribution in which it lies, else its own
    `__version__`, or "".

    A build that is imported from its tree lies in none, though another version of it may be installed.
    """
    from importlib import metadata

    module = sys.modules[package]
    try:
        found = metadata.distribution(package)
        home = os.path.join(os.path.realpath(str(found.locate_file(""))), "")
        # Links are resolved: a virtual environment may be reached by several names.
        if os.path.realpath(str(module.__file__)).startswith(home):
            return str(found.version)
    except metadata.PackageNotFoundError:
        # A build tree can be imported without having been installed; its version is then looked up otherwise.
        pass
    return str(getattr(module, "__version__", ""))


def numpy_requirement(python: Tuple[int, int]) -> str:
    """Return the numpy that releases of a compiler run with in an environment of this Python."""
    return "numpy==1.24.4" if python < (3, 9) else "numpy==1.26.4" if python < (3, 13) else "numpy>=2.1"


def drop_fed_defaults(graph: Any, request: "Request") -> None:
    """Drop the default value of every graph input that is fed: front ends take a default for a constant."""
    declared = {item.name for item in graph.input}
    kept = [
        tensor
        for tensor in graph.initializer
        if not (tensor.name in declared and tensor.name in request.inputs)
    ]
    if len(kept) < len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(kept)
        request.notes.append("default values of inputs that are fed were left out of the model")


def onnx_name(number: int) -> str:
    """Return ONNX's name of an element type in lower case, `undefined` for 0."""
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(number)).lower()


def numpy_name(number: int) -> str:
    """Return the name of the numpy dtype of an element type (`object` for strings); an undefined one passes
    for float32.
    """
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(number).name if number else "float32"


def refuse_border(
    graph: Any,
    compiler: str,
    name_of: Callable[[int], str],
    carried: Callable[[str], bool],
    containers: Tuple[Collection[str], Collection[str]] = ((), ()),
) -> None:
    """Raise NotImplementedError for inputs and outputs of a GraphProto whose type the compiler cannot be fed
    or read from.

    `carried` says whether elements of a type, by the name that `name_of` gives it, can cross; `containers`
    are the kinds of values beside tensors (`sequence_type`, `optional_type`) that can, among inputs and among
    outputs.
    """
    for passing, items in zip(containers, (graph.input, graph.output)):
        for item in items:
            kind = item.type
            what = kind.WhichOneof("value")
            # Containers can be nested: a sequence of optionals.
            while what in passing:
                kind = getattr(kind, what).elem_type
                what = kind.WhichOneof("value")
            if what not in ("tensor_type", None):
                raise NotImplementedError(
                    "a %s cannot cross the border of a model in %s" % (what.replace("_", " "), compiler)
                )
            name = name_of(kind.tensor_type.elem_type)
            if not carried(name):
                raise NotImplementedError(
                    "a tensor of %s cannot cross the border of a model in %s" % (name, compiler)
                )


def read_onnx(
    request: "Request",
    compiler: str,
    name_of: Callable[[int], str],
    carried: Callable[[str], bool],
    containers: Tuple[Collection[str], Collection[str]] = ((), ()),
) -> Any:
    """Read the model without the default values of what is fed; the rest is for `refuse_border`."""
    import onnx

    model = onnx.load_model_from_string(request.model)
    drop_fed_defaults(model.graph, request)
    refuse_border(model.graph, compiler, name_of, carried, containers)
    return model


def meaning_of(
    exception: str,
    message: str,
    patterns: Sequence[Tuple[str, str]],
    classes: Mapping[str, str] = CLASSES,
    memory: str = "",
    otherwise: str = "error",
) -> str:
    """Classify an exception (`Backend.classify`): by its class if that is specific enough, otherwise by the
    first pattern in its message.

    `exception` is the dotted name of the class, `patterns` are pairs of a meaning and a regular expression;
    `otherwise` is the default. A message that matches `memory`, if given, is `out-of-memory` whatever its
    class.
    """
    # First: compilers report a lack of memory under many classes.
    if memory and re.search(memory, message):
        return "out-of-memory"
    kind = exception.rpartition(".")[2]
    if kind in classes:
        return classes[kind]
    return next((meaning for meaning, pattern in patterns if re.search(pattern, message)), otherwise)


def meaning_of_host(meaning: str) -> str:
    """Translate the meaning of a failure of the host (`NotRun`) on the original model for the compiler.

    A bug of the host is not an answer about the compiler: the host is a target of its own.
    """
    return "environment" if meaning in ("error", "rejected") else meaning
