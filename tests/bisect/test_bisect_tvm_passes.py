"""Attribution on TVM itself, with passes planted in it that miscompile: required passes, a masking pair, one
application of many.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from opsieve.backends import registry
from opsieve.backends.registry import resolve
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import Workers
from opsieve.bisect.passes.pass_source import Blamed, blame_passes
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram

PLANTED = '''
import sys

from opsieve.backends.compilers.tvm_relax import TvmRelax


class Planted(TvmRelax):
    """TVM whose zero pipeline begins with passes that take Relu for Tanh."""

    name, package, main_option = NAME, "", "pipeline"

    def load(self):
        version = super().load()
        import tvm
        from tvm import relax

        def wrong(name):
            @relax.expr_functor.mutator
            class Mutator(relax.PyExprMutator):
                def visit_call_(self, call):
                    call = self.visit_expr_post_order(call)
                    is_relu = call.op == tvm.ir.Op.get("relax.nn.relu")
                    return relax.op.tanh(call.args[0]) if is_relu else call

            def transform(module, context):
                mutator = Mutator(module)
                for variable, function in module.functions_items():
                    if isinstance(function, relax.Function):
                        mutator.builder_.update_func(variable, mutator.visit_expr(function))
                return mutator.builder_.get()

            return tvm.transform.module_pass(transform, opt_level=0, name=name)

        original = relax.get_pipeline
        passes = [wrong(name) for name in NAMES]
        zero = tvm.transform.Sequential([*passes, original("zero")])
        relax.get_pipeline = lambda name: zero if name == "zero" else original(name)
        return version


BACKEND = Planted()
'''


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], Blamed]]:
    """What is said of a plug-in that is TVM with passes of these names that miscompile."""
    pytest.importorskip("tvm")

    def install(names: list[str]) -> Blamed:
        name = "-".join(["planted", *names])
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(f"NAME, NAMES = {name!r}, {names!r}\n{PLANTED}")
        info = tmp_path / "planted-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[opsieve.backends]\n{name} = {module}:BACKEND\n")
        monkeypatch.syspath_prepend(tmp_path)
        registry._entries.cache_clear()  # looked up once in a process, and another test may have done so
        model = parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { a = Relu(x) y = Add(a,'
            " x) }"
        )
        x = np.array([0.5, -1.0, 2.0], np.float32)
        case = Case(OnnxProgram(model.SerializeToString()), {"x": x}, {"y": np.maximum(x, 0) + x})
        with Workers() as workers:
            return blame_passes(case, resolve(f"{name}:zero"), ObservationCache(workers))

    yield install
    registry._entries.cache_clear()  # no other test is to see the plug-in
    registry.plugin.cache_clear()


# in make test: attribution in test_bisect_passes.py, passes of TVM left out in test_tvm_backend.py
@pytest.mark.slow(seconds=30)
def test_a_pass_among_those_that_tvm_cannot_do_without(planted: Callable[[list[str]], Blamed]) -> None:
    blamed = planted(["PlantedA"])
    found = blamed.attribution
    assert (found.answer, found.passes, found.alone) == ("pass", ("PlantedA",), ("PlantedA",))
    assert blamed.wanted.symptom == "value mismatch"
    assert "s_tir.LowerOpaqueBlock" in found.kept  # without it TVM segfaults


@pytest.mark.slow(seconds=70)
def test_a_pair_that_mask_each_other(planted: Callable[[list[str]], Blamed]) -> None:
    found = planted(["PlantedA", "PlantedB"]).attribution
    assert (found.answer, set(found.passes)) == ("set", {"PlantedA", "PlantedB"})


@pytest.mark.slow(seconds=30)
def test_the_application_that_is_guilty(planted: Callable[[list[str]], Blamed]) -> None:
    """The planted pass bears the name of one that TVM runs three times more."""
    found = planted(["NormalizeGlobalVar"]).attribution
    assert (found.passes, found.applications) == (("NormalizeGlobalVar",), {"NormalizeGlobalVar": (1,)})
