"""Documented tests inside programs: ONNX's node tests, or the models of a corpus, among random nodes.

The idea is that of OATest and OPERA: a meaningful test is cut out together with the conditions under which it
holds, and planted into another context. Here a piece is a whole node test. Its conditions are the values of
its integer, boolean and text inputs, which are kept; its other inputs become tensors of the program, and
later nodes read its outputs.
"""

import functools
import io
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper
from platformdirs import user_cache_path

from opsieve.gen.analysis.reading import Source, UnreadableModel, read
from opsieve.gen.case.case import Case
from opsieve.gen.data.inputs import seeded_inputs
from opsieve.gen.declarations.catalogue import OLDEST, choices, find_operator
from opsieve.gen.declarations.rng import Rng
from opsieve.gen.errors import BadInput
from opsieve.gen.generation import pieces, random_graph
from opsieve.gen.irs.onnx.edits import keep
from opsieve.gen.irs.onnx.program import onnx_programs
from opsieve.gen.model import durable, structure, tensors

NAME = "documented"
# The most nodes of a test that is planted.
_LARGEST_PIECE = 12
_TRIES = 8


@dataclass(frozen=True, slots=True)
class DocumentedRates:
    """How often: `planted`, the next nodes are those of a piece; `joined`, an input of a piece is a tensor of
    the program.
    """

    planted: float = 0.3
    joined: float = 0.8


_RATES = DocumentedRates()


def documented(request: random_graph.GenRequest, seed: int) -> Case:
    """Make the program of a seed: a piece first, then random nodes and other pieces of its opset in turn.

    Raises:
        BadInput: If no piece can be read.
    """
    rng = Rng(f"{NAME} {seed}", request.bins)
    first = _choose_first(request, rng, seed)
    builder = random_graph.start(replace(request, opset=first.opset), seed, NAME)
    from_all = builder.program.choices = choices(builder.opset, request.only, request.dtypes)
    pieces.plant_piece(builder, first, _RATES.joined)
    while builder.size < request.nodes and builder.program.elements < request.budget.elements:
        piece = _choose_piece(request, rng, seed, first.opset) if rng.chance(_RATES.planted) else None
        if piece is not None:
            pieces.plant_piece(builder, piece, _RATES.joined)
        elif from_all:
            builder.grow(random_graph.draw_operator(builder, from_all))
        else:
            break
    return random_graph.finish(builder, request, NAME, seed)


def _choose_first(request: random_graph.GenRequest, rng: Rng, seed: int) -> Source:
    """Choose the first piece, and with it the opset."""
    opsets = [request.opset] if request.opset else sorted(_load_pieces(request.corpus))
    for opset in rng.shuffle_items(opsets):
        found = _choose_piece(request, rng, seed, opset)
        if found is not None:
            return found
    raise BadInput(
        "no documented test or model of the corpus can be read as parts of a program with these operators"
    )


def _choose_piece(request: random_graph.GenRequest, rng: Rng, seed: int, opset: int) -> Source | None:
    """Choose a readable piece of an opset that uses only what is requested, from a few draws."""
    there = _load_pieces(request.corpus).get(opset, ())
    for _ in range(_TRIES if there else 0):
        try:
            model = rng.choice(there)
            found = read(model, seeded_inputs(model, seed))
        except (UnreadableModel, BadInput):
            # Some tests use types or domains that a graph cannot be read back from.
            continue
        named = [find_operator(node.domain, node.op) for node in found.nodes]
        wanted = request.only is None or all(
            operator is not None and operator.name in request.only for operator in named
        )
        # A test in training mode draws random numbers, or has more outputs than its node names.
        training = any(node.attrs.get("training_mode") for node in found.nodes)
        if (
            wanted
            and not training
            and all(operator is not None and not operator.excluded for operator in named)
        ):
            return found
    return None


@functools.lru_cache(maxsize=4)
def _load_pieces(corpus: tuple[object, ...]) -> dict[int, tuple[onnx.ModelProto, ...]]:
    """Return small models by opset: those of the corpus, else ONNX's node tests, with conditions as
    initializers.
    """
    given = [each.proto for each in onnx_programs(corpus)] or _load_node_tests()
    found: dict[int, list[onnx.ModelProto]] = {}
    for model in given:
        opset = max(
            (each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0
        )
        if OLDEST <= opset <= random_graph.SUPPORTED and len(model.graph.node) <= _LARGEST_PIECE:
            found.setdefault(opset, []).append(model)
    return {opset: tuple(models) for opset, models in found.items()}


def _load_node_tests() -> list[onnx.ModelProto]:
    """Load ONNX's node tests with conditions; computing them takes seconds, so they are cached for the
    user.
    """
    kept = user_cache_path("opsieve") / "node-tests" / f"onnx-{onnx.__version__}-numpy-{np.__version__}.zip"
    # The tests are cached, because onnx computes their outputs when they are imported, which takes seconds. A
    # damaged cache is rebuilt.
    with suppress(OSError, BadZipFile, DecodeError), ZipFile(kept) as held:
        return [onnx.ModelProto.FromString(held.read(name)) for name in held.namelist()]
    made = _make_node_tests()
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as held:
        for name, model in made.items():
            held.writestr(name, model.SerializeToString(deterministic=True))
    # A home that cannot be written costs only the cache.
    with suppress(OSError):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write_file(kept, packed.getvalue())
    return list(made.values())


def _make_node_tests() -> dict[str, onnx.ModelProto]:
    """Make the node tests by name; their inputs are drawn by a seed of opsieve's own."""
    from onnx.backend.test.loader import load_node_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_node_model_tests()
    found = {}
    for test in sorted(tests, key=lambda test: test.name):
        if test.model is not None:
            names = [value.name for value in test.model.graph.input]
            inputs = test.data_sets[0][0] if test.data_sets else ()
            found[test.name] = _store_conditions(test.model, dict(zip(names, inputs, strict=False)))
    return found


def _store_conditions(model: onnx.ModelProto, values: dict[str, tensors.Value]) -> onnx.ModelProto:
    """Store the inputs that are not floats as initializers; None if that is impossible."""
    held = {
        name: value
        for name, value in values.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub"
    }
    copy = structure.copied(model)
    keep(copy.graph.input, lambda value: value.name not in held)
    copy.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in held.items())
    return copy
