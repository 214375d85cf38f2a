"""Read the archives that `torch.export.save` writes (`.pt2`), without torch and without unpickling anything.

Since torch 2.8 an archive is a zip file: the graph as JSON (torch/_export/serde/schema.py describes it), and
the bytes of each weight in a file of its own. Older archives, and constants that are no plain tensors, are
pickles; these are refused here. `opsieve import --script` has torch read them in a worker.
"""

import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from opsieve.gen.irs.torch.graph import (
    BARRED,
    MOST_ELEMENTS,
    OPERATOR,
    Argument,
    MalformedProgram,
    Ref,
    TorchCall,
    TorchGraph,
    Word,
    encode_graph,
)
from opsieve.gen.irs.view import Array
from opsieve.gen.model.tensors import TensorType

# A zip file can unpack to a thousand times its size; this bounds all files of one archive together.
_LIMIT = 1 << 30
# RuntimeError: an encrypted file, a method of compression that zipfile lacks, and JSON nested too deep
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, LookupError, TypeError, AttributeError, ValueError,
    ArithmeticError, RuntimeError,
)  # fmt: skip
# The numbers of torch's schema
DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn",
    30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 34: "uint32", 35: "uint64",
}  # fmt: skip
_LAYOUTS = {7: "strided"}
_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
# Kinds of arguments whose numbers name one of torch's words.
_WORDS = {
    "as_scalar_type": ("dtype", DTYPES),
    "as_layout": ("layout", _LAYOUTS),
    "as_memory_format": ("memory_format", _FORMATS),
}
_PLAIN = ("as_int", "as_float", "as_bool", "as_string")
_PLAIN_LISTS = ("as_ints", "as_floats", "as_bools", "as_strings")
_SYMBOLS = ("as_sym_int", "as_sym_bool", "as_sym_float", "as_sym_ints", "as_sym_argument")


def is_archive(data: bytes) -> bool:
    """Return whether bytes begin like those of a zip file."""
    return data.startswith(b"PK\x03\x04")


def read_archive(data: bytes) -> bytes:
    """Return the JSON of the program in an archive. Raises MalformedProgram where none can be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # Names and numbers of a wrong kind may show only when they are written.
            return encode_graph(_Archive(archive).read_graph())
    except _UNREADABLE as error:
        if isinstance(error, MalformedProgram):
            raise
        raise MalformedProgram(
            "it is not an archive of torch.export.save as torch 2.8 and newer write it;"
            " `opsieve import --script` has torch itself read it"
        ) from None


class _Archive:
    """One archive."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive, self.left = archive, _LIMIT
        self.places = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        self.types: dict[str, TensorType] = {}
        self.strides: dict[str, tuple[int, ...]] = {}

    def read_bytes(self, place: str) -> bytes:
        """Return a file of the archive; all of them together are bounded."""
        info = self.places[place]
        # Other methods raise errors of their own, and torch uses none of them.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise MalformedProgram("it is packed in a way that torch does not write")
        self.left -= info.file_size
        if self.left < 0:
            raise MalformedProgram("it unpacks to more than a gigabyte")
        return self.archive.read(info)

    def read_graph(self) -> TorchGraph:
        """Return the program."""
        root = json.loads(self.read_bytes("models/model.json"))["graph_module"]
        graph, signature = root["graph"], root["signature"]
        for name, meta in graph["tensor_values"].items():
            self.declare_value(name, meta)
        inputs, constants = [], dict[str, Array]()
        weights = {**self.read_tensors("weights"), **self.read_tensors("constants")}
        for item in signature["input_specs"]:
            ((kind, spec),) = item.items()
            if kind == "user_input":
                ((how, named),) = spec["arg"].items()
                if how != "as_tensor":
                    raise MalformedProgram(f"it takes an input that is not a tensor ({how[3:40]})")
                inputs.append(named["name"])
            elif kind in ("parameter", "buffer", "tensor_constant"):
                constants[spec["arg"]["name"]] = weights[spec[f"{kind}_name"]]
            else:
                raise MalformedProgram(f"it takes an input of the kind {kind[:40]}")
        calls = tuple(self.read_call(node) for node in graph["nodes"])
        outputs = []
        for item in signature["output_specs"]:
            ((kind, spec),) = item.items()
            if kind != "user_output":
                raise MalformedProgram(f"it has an output of the kind {kind[:40]}")
            # Outputs that are numbers or None are the same in every run.
            if "as_tensor" in spec["arg"]:
                outputs.append(spec["arg"]["as_tensor"]["name"])
        calls = tuple(call for call in calls if call.key or call.mutates)
        # Other layouts follow from the calls.
        strides = {name: steps for name, steps in self.strides.items() if name in inputs}
        return TorchGraph(tuple(inputs), constants, calls, tuple(outputs), self.types, strides)

    def declare_value(self, name: str, meta: dict[str, Any]) -> None:
        """Keep the type of a value; sizes that are symbols make it unknown."""
        sizes = [size.get("as_int") for size in meta["sizes"]]
        # A symbolic size has no number.
        if None in sizes or meta["dtype"] not in DTYPES:
            return
        self.types[name] = TensorType(DTYPES[meta["dtype"]], tuple(map(int, sizes)))
        strides = tuple(int(stride["as_int"]) for stride in meta["strides"])
        if strides != contiguous_strides(sizes):
            self.strides[name] = strides

    def read_tensors(self, kind: str) -> dict[str, Array]:
        """Return the weights or the constants by name."""
        place = f"data/{kind}/model_{kind}_config.json"
        listed = json.loads(self.read_bytes(place))["config"] if place in self.places else {}
        found = {}
        for name, item in listed.items():
            if item.get("use_pickle"):
                raise MalformedProgram(f"it holds the pickle {name[:40]}, which only torch reads")
            # Several weights may share one storage: each has its offset and strides.
            meta = item["tensor_meta"]
            sizes = [int(size["as_int"]) for size in meta["sizes"]]
            strides = [int(stride["as_int"]) for stride in meta["strides"]]
            data, offset = (
                self.read_bytes(f"data/{kind}/{item['path_name']}"),
                int(meta["storage_offset"]["as_int"]),
            )
            flat = np.frombuffer(data, np.dtype(DTYPES[meta["dtype"]]))
            found[name] = _spread_storage(flat[offset:], sizes, strides)
        return found

    def read_call(self, node: dict[str, Any]) -> TorchCall:
        """Return the call of a node."""
        operator = str(node["target"]).removeprefix("torch.ops.")
        if not OPERATOR.fullmatch(operator) or operator.startswith(BARRED):
            raise MalformedProgram(f"it calls {operator[:60]!a}, which is not an operator of aten's")
        args, kwargs = [], []
        for item in node["inputs"]:
            value = self.read_argument(item["arg"])
            # 2: given by keyword
            if item.get("kind") == 2:
                kwargs.append((str(item["name"]), value))
            else:
                args.append(value)
        made = node["outputs"]
        # torch returns a tuple or list then, also for a single element.
        many = len(made) > 1 or any("as_tensors" in item for item in made)
        names = [name for item in made for name in _result_names(item)]
        return TorchCall(operator, tuple(args), tuple(kwargs), tuple(names), many)

    def read_argument(self, item: dict[str, Any]) -> Argument:
        """Return an argument of a node."""
        ((kind, held),) = item.items()
        if kind == "as_none":
            return None
        if kind in _PLAIN:
            return held  # type: ignore[no-any-return]
        if kind in _PLAIN_LISTS:
            return tuple(held)
        if kind == "as_tensor":
            return Ref(str(held["name"]))
        if kind == "as_tensors":
            return tuple(Ref(str(each["name"])) for each in held)
        if kind == "as_optional_tensors":
            return tuple(self.read_argument(each) for each in held)
        if kind in _WORDS:
            word, texts = _WORDS[kind]
            return Word(word, texts[held])
        if kind == "as_device":
            return Word("device", str(held["type"]))
        if kind in _SYMBOLS:
            raise MalformedProgram("it has symbolic sizes; export it without dynamic_shapes")
        raise MalformedProgram(f"it has an argument of the kind {kind[3:40]}")


def _result_names(item: dict[str, Any]) -> Iterator[str]:
    ((kind, held),) = item.items()
    if kind == "as_tensor":
        yield str(held["name"])
    elif kind == "as_tensors":
        yield from (str(each["name"]) for each in held)
    elif kind == "as_none":
        yield ""
    else:
        raise MalformedProgram(f"an operator makes a value of the kind {kind[3:40]}")


def contiguous_strides(sizes: Any) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    found, step = [], 1
    for size in reversed(list(sizes)):
        found.append(step)
        step *= max(int(size), 1)
    return tuple(reversed(found))


def _spread_storage(flat: Array, sizes: list[int], strides: list[int]) -> Array:
    """Return a tensor of these strides over its storage."""
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    # Without elements the last place is -1 or less, and the checks below would refuse it.
    if 0 in sizes:
        return np.zeros(sizes, flat.dtype)
    if last >= flat.size or min(sizes + strides, default=0) < 0 or math.prod(sizes) > MOST_ELEMENTS:
        raise MalformedProgram("a weight is shorter than its sizes, or too large")
    steps = [stride * flat.itemsize for stride in strides]
    # `ascontiguousarray` would give a tensor without dimensions one.
    return np.lib.stride_tricks.as_strided(flat, sizes, steps).copy()
