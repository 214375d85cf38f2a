"""The dimensions that every IR has, of ONNX models."""

from functools import partial

from opsieve.reducer.engine.edit import ListedPass
from opsieve.reducer.onnx_edit.edits import EDITS
from opsieve.reducer.passes.nodes import bypass_operations, drop_operations, drop_outputs, open_bodies
from opsieve.reducer.passes.values import shrink_dimensions, simplify_dtypes

NODES = ListedPass("nodes", partial(drop_operations, EDITS))
OUTPUTS = ListedPass("outputs", partial(drop_outputs, EDITS))
BYPASS = ListedPass("bypass", partial(bypass_operations, EDITS))
OPENING = ListedPass("bodies", partial(open_bodies, EDITS))
DIMENSIONS = ListedPass("dimensions", partial(shrink_dimensions, EDITS))
DTYPES = ListedPass("dtypes", partial(simplify_dtypes, EDITS))
