"""Attribution: which passes cause a failure, on made-up compilers and on real ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import parser

from opsieve.backends.observation import Observation
from opsieve.backends.registry import ResolvedTarget, resolve
from opsieve.backends.stacks.frame_lines import PassTrace, read_trace
from opsieve.backends.workers.questions.observation_cache import ObservationCache
from opsieve.backends.workers.workers import COMPILED, Workers
from opsieve.bisect.passes.attribution import Attribution, find_guilty_passes
from opsieve.bisect.passes.pass_source import blame_passes, find_skip_option, list_attributable
from opsieve.bisect.search.search import TestResult
from opsieve.gen.case.case import Case
from opsieve.gen.irs.onnx.program import OnnxProgram
from opsieve.gen.model.program import Program
from opsieve.tui.commands.examine.bisect_command import write_sentence

Probe = Callable[[str, tuple[str, ...]], TestResult]


def compiler(needed: list[set[str]], level: str = "basic") -> Probe:
    """A compiler that fails when all passes of one of `needed` are on."""
    levels = ["disable_all", "basic", "extended", "all"]

    def probe(asked: str, off: tuple[str, ...]) -> TestResult:
        fails = levels.index(asked) >= levels.index(level) and any(not group & set(off) for group in needed)
        return TestResult.BAD if fails else TestResult.GOOD

    return probe


def blame(levels: list[str], passes: list[str], probe: Probe, **options: Any) -> Attribution:
    """Attribution of a compiler whose trace tells that all its passes ran, and those of `acted` changed the
    program.
    """
    acted, hosts = options.pop("acted", ()), options.pop("hosts", ())

    def trace(level: str, off: tuple[str, ...]) -> PassTrace:
        acting = tuple(name for name in acted if name not in off)
        return PassTrace(tuple(passes), acting, hosts, options.get("times", {}))

    return find_guilty_passes(levels, probe, trace, counted="times" in options)


def test_a_pass_that_the_program_asks_for_is_named_where_skipping_all_fails_alike() -> None:
    def probe(asked: str, off: tuple[str, ...]) -> TestResult:
        cured = asked == "none" or ("Mine" in off and not {"Needed", "AlsoNeeded"} & set(off))
        return TestResult.GOOD if cured else TestResult.BAD

    passes = ("Needed", "Mine", "AlsoNeeded")

    def trace(level: str, off: tuple[str, ...]) -> PassTrace:
        return PassTrace(passes, tuple(name for name in passes if name not in off), ())

    assert find_guilty_passes(["none", "target"], probe, trace).answer == "unnamed"
    found = find_guilty_passes(["none", "target"], probe, trace, own=["Mine"])
    assert (found.answer, found.passes) == ("pass", ("Mine",))


PASSES = [f"Pass{number}" for number in range(40)]
LEVELS = ["disable_all", "basic", "extended", "all"]


def test_one_guilty_pass() -> None:
    found = blame(LEVELS, PASSES, compiler([{"Pass23"}]))
    assert (found.answer, found.passes, found.alone) == ("pass", ("Pass23",), ("Pass23",))
    assert found.probes <= 16
    assert found.levels == {"disable_all": "good", "basic": "bad", "extended": "bad", "all": "bad"}


def test_two_passes_that_mask_each_other() -> None:
    found = blame(LEVELS, PASSES, compiler([{"Pass3"}, {"Pass31"}], "extended"))
    assert (found.answer, set(found.passes), set(found.alone)) == (
        "set",
        {"Pass3", "Pass31"},
        {"Pass3", "Pass31"},
    )
    assert found.probes <= 65


def test_what_runs_again_at_a_higher_level_is_named_too() -> None:
    """The optimisation of Pass3 runs at the highest level once more, as Pass31."""

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        wanted = {"disable_all": set(), "basic": {"Pass3"}}.get(level, {"Pass3", "Pass31"})
        return TestResult.BAD if wanted - set(off) else TestResult.GOOD

    found = blame(LEVELS, PASSES, probe)
    assert (found.answer, set(found.passes)) == ("set", {"Pass3", "Pass31"})
    assert (probe("all", found.passes), found.levels["basic"]) == (TestResult.GOOD, "bad")


def test_two_passes_that_need_each_other() -> None:
    found = blame(LEVELS, PASSES, compiler([{"Pass3", "Pass31"}]))
    assert found.answer == "pass"
    assert found.passes[0] in ("Pass3", "Pass31")
    assert found.alone == ()


def test_of_two_acting_passes_that_need_each_other_the_later_one_is_named() -> None:
    for acted in (("Pass3", "Pass9", "Pass31"), ("Pass31", "Pass9", "Pass3")):
        found = blame(LEVELS, PASSES, compiler([{"Pass3", "Pass31"}]), acted=acted)
        assert (found.answer, found.passes, found.alone) == ("pass", acted[-1:], ())
        assert found.probes <= 16
    # A pass that causes it alone stays, whatever acts later.
    assert blame(LEVELS, PASSES, compiler([{"Pass3"}]), acted=("Pass3", "Pass9")).passes == ("Pass3",)


def test_not_a_pass() -> None:
    found = blame(LEVELS, PASSES, lambda level, off: TestResult.BAD)
    assert (found.answer, found.passes, found.probes) == ("not-a-pass", (), 4)


@pytest.mark.parametrize(("left", "answer"), [((), "conversion"), (("Pass7",), "unnamed")])
def test_what_fails_with_every_pass_off_is_the_conversion(left: tuple[str, ...], answer: str) -> None:
    """A tool that only converts the program without its passes; Pass7 may run in spite of being skipped."""

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        return TestResult.GOOD if level == "none" else TestResult.BAD

    def trace(level: str, off: tuple[str, ...]) -> PassTrace:
        return PassTrace(tuple(name for name in PASSES if name not in off or name in left), ("Pass3",))

    assert find_guilty_passes(["none", "target"], probe, trace, converts=True).answer == answer
    assert find_guilty_passes(["none", "target"], probe, trace).answer == "unnamed"


@pytest.mark.parametrize(("acted", "answer"), [((), "conversion"), (("Pass1",), "set")])
def test_passes_that_each_cause_it_without_any_effect_are_not_blamed(
    acted: tuple[str, ...], answer: str
) -> None:
    passes = ("Pass1", "Pass2", "Pass3")

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        # The compiler exports the program only if a pass ran.
        return TestResult.GOOD if level == "none" or set(passes) <= set(off) else TestResult.BAD

    def trace(level: str, off: tuple[str, ...]) -> PassTrace:
        return PassTrace(tuple(name for name in passes if name not in off), acted)

    found = find_guilty_passes(["none", "target"], probe, trace, converts=True)
    assert (found.answer, found.passes) == (answer, () if answer == "conversion" else passes)


def test_a_host_is_blamed_only_when_no_single_pass_is() -> None:
    assert blame(LEVELS, PASSES, compiler([{"Host"}]), hosts=("Host",)).passes == ("Host",)
    assert blame(LEVELS, PASSES, compiler([{"Other"}]), hosts=("Host",)).answer == "unnamed"


def test_of_hosts_inside_each_other_the_innermost_that_cures_is_blamed() -> None:
    hosts = ("Outer", "Middle", "Inner", "Beside")
    for cures, named in (({"Outer", "Middle", "Inner"}, "Inner"), ({"Outer", "Middle"}, "Middle")):
        assert blame(LEVELS, PASSES, compiler([cures]), hosts=hosts).passes == (named,)


def test_what_acted_is_asked_first() -> None:
    found = blame(LEVELS, PASSES, compiler([{"Pass23"}]), acted=("Pass7", "Pass23"))
    assert (found.passes, found.alone) == (("Pass23",), ("Pass23",))
    assert found.probes <= 9


def test_what_acts_in_the_place_of_another_is_found_where_that_fails_elsewhere() -> None:
    """Both raise the same sentence, Pass31 in another place, so that a probe without Pass3 is no answer."""
    alike = compiler([{"Pass3"}, {"Pass31"}])

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        seen = alike(level, off)
        return TestResult.SKIP if seen is TestResult.BAD and "Pass3" in off else seen

    def trace(level: str, off: tuple[str, ...]) -> PassTrace:
        return PassTrace(tuple(PASSES), ("Pass31",) if "Pass3" in off else ("Pass3",))

    found = find_guilty_passes(LEVELS, probe, trace)
    assert (found.answer, set(found.passes)) == ("set", {"Pass3", "Pass31"})
    assert found.probes <= 14


def test_several_passes_are_told_in_a_sentence() -> None:
    start = "passes A and B: only skipping all of them cures the failure; "
    for alone, end in (
        ((), "none causes it alone"),
        (("A",), "A causes it alone"),
        (("A", "B"), "A and B each cause it alone"),
    ):
        assert write_sentence("set", ("A", "B"), alone, 4) == start + end


def test_what_acts_in_the_place_of_another_is_found() -> None:
    """Pass31 acts only when Pass3 is off; either alone causes the failure."""
    probe = compiler([{"Pass3"}, {"Pass31"}])

    def trace(level: str, off: tuple[str, ...]) -> PassTrace:
        return PassTrace(tuple(PASSES), ("Pass31",) if "Pass3" in off else ("Pass3", "Pass5"))

    found = find_guilty_passes(LEVELS, probe, trace)
    assert (found.answer, set(found.passes), set(found.alone)) == (
        "set",
        {"Pass3", "Pass31"},
        {"Pass3", "Pass31"},
    )
    assert found.probes <= 14


def needing(required: set[str], inner: Probe) -> Probe:
    """A compiler that breaks without some passes."""

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        return TestResult.SKIP if required & set(off) else inner(level, off)

    return probe


def test_passes_that_the_compiler_cannot_do_without() -> None:
    required = {f"Pass{number}" for number in range(0, 40, 3)}
    found = blame(LEVELS, PASSES, needing(required, compiler([{"Pass23"}])), acted=tuple(PASSES[18:30]))
    assert (found.answer, found.passes, found.alone) == ("pass", ("Pass23",), ("Pass23",))
    assert set(found.kept) == required & set(PASSES[18:30])


def test_a_masking_pair_among_passes_that_cannot_all_be_skipped() -> None:
    required = {"Pass0", "Pass20", "Pass39"}
    found = blame(LEVELS, PASSES, needing(required, compiler([{"Pass3"}, {"Pass31"}])))
    assert (found.answer, set(found.passes)) == ("set", {"Pass3", "Pass31"})


def test_passes_that_can_be_skipped_one_by_one_but_not_together() -> None:
    inner = compiler([{"Pass9"}, {"Pass30"}])

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        return TestResult.SKIP if {"Pass1", "Pass2"} <= set(off) else inner(level, off)

    assert set(blame(LEVELS, PASSES, probe).passes) == {"Pass9", "Pass30"}


def test_the_guilty_application_is_counted() -> None:
    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        cured = level == "disable_all" or "Fold" in off or "Fold@3" in off
        return TestResult.GOOD if cured else TestResult.BAD

    found = blame(LEVELS, ["Fuse", "Fold"], probe, times={"Fuse": 2, "Fold": 5})
    assert (found.passes, found.applications) == (("Fold",), {"Fold": (3,)})


def test_without_levels_all_passes_off_decides() -> None:
    always = lambda level, off: TestResult.BAD  # noqa: E731
    assert blame(["target"], PASSES, always).answer == "unnamed"
    assert blame(["none", "target"], PASSES, always).answer == "not-a-pass"
    assert blame(["target"], PASSES, lambda level, off: TestResult.GOOD).answer == "does-not-fail"


def test_skipping_that_breaks_the_compiler_is_no_cure() -> None:
    """Without Pass5 the compiler crashes, which is another failure: untestable."""
    inner = compiler([{"Pass9"}])

    def probe(level: str, off: tuple[str, ...]) -> TestResult:
        return TestResult.SKIP if "Pass5" in off and len(off) < 40 else inner(level, off)

    assert blame(LEVELS, PASSES, probe).passes == ("Pass9",)


@settings(deadline=None)
@given(st.lists(st.sets(st.sampled_from(PASSES), min_size=1, max_size=2), min_size=1, max_size=3))
def test_what_is_blamed_cures_and_no_part_of_it_does(needed: list[set[str]]) -> None:
    probe = compiler(needed)
    found = blame(LEVELS, PASSES, probe)
    assert probe("all", found.passes) is TestResult.GOOD
    for name in found.passes:
        assert probe("all", tuple(set(found.passes) - {name})) is TestResult.BAD


def test_a_trace_is_read_in_order() -> None:
    log = (
        "opsieve pass ran Fold\nsome noise\nopsieve pass acted Fold\nopsieve pass ran Outer\nopsieve pass ran"
        " Fold\nopsieve pass host Outer\nopsieve pass ran two words\nopsieve pass ran a+b\nopsieve pass acted"
        " Fuse\n"
    )
    assert read_trace(log, died=False) == PassTrace(
        ("Fold", "Fuse"), ("Fold", "Fuse"), ("Outer",), {"Fold": 2, "Outer": 1}
    )
    assert read_trace("opsieve pass ran A\nopsieve pass acted A\nopsieve pass ran B\n", died=True).acted == (
        "B",
        "A",
    )


def test_the_log_of_an_onnxruntime_that_crashed_is_read() -> None:
    log = (
        "2026 [V:onnxruntime:, mgr.cc:55 ApplyTransformers] Applying graph transformer ConstantFolding on"
        " step 1.\n2026 [I:onnxruntime:, graph_transformer.cc:15 Apply] GraphTransformer ConstantFolding"
        " modified: 1 with status: OK\n2026 [I:onnxruntime:, graph_transformer.cc:15 Apply] GraphTransformer"
        " GeluFusion modified: 0 with status: OK\n2026 [V:onnxruntime:, mgr.cc:55 ApplyTransformers] Applying"
        " graph transformer MatMulAddFusion on step 1.\n"
    )
    assert read_trace(log, died=True).acted == ("MatMulAddFusion", "ConstantFolding")


@settings(deadline=None)
@given(st.text(max_size=300), st.booleans())
def test_any_text_is_a_log(log: str, died: bool) -> None:
    told = read_trace("opsieve pass ran A\n" + log, died)
    assert all(name and "+" not in name for name in told.ran)


@pytest.mark.parametrize(
    ("backend", "option"),
    [
        ("onnxruntime", "disabled_optimizers"),
        ("tvm", "disabled"),
        ("onnxsim", "skip"),
        ("inductor", "disabled"),
        ("reference", ""),
        # Its one switch leaves the whole tool out.
        ("onnxruntime-transformers", ""),
    ],
)
def test_backends_take_part_by_their_options(backend: str, option: str) -> None:
    assert find_skip_option(backend) == option
    assert (backend in list_attributable()) == bool(option)


NEGATED = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { a = Neg(x) y = Relu(a) }'
CLIPPED = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
<float low = {1}, float high = {-1}> { a = Clip(x, low, high) y = Relu(a) }"""

BETWEEN = CLIPPED.replace("a = Clip(x, low", "b = Relu(x) a = Clip(b, low")


def parsed(text: str) -> Program:
    return OnnxProgram(parser.parse_model(text).SerializeToString())


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("onnxruntime:disabled_optimizers=PadFusion", "PadFusion"),
        ("onnxoptimizer:skip=fuse_pad_into_poool", "fuse_pad_into_poool"),
        ("onnxsim:skip=nop+eliminate_all", "eliminate_all"),
        ("onnxscript:skip=FoldConstants", "FoldConstants"),
        ("onnxslim:skip=constant_fold", "constant_fold"),
        ("tvm:disabled=FuseOp", "FuseOp"),
    ],
)
def test_a_pass_that_is_not_there_is_refused_by_name(workers: Workers, target: str, name: str) -> None:
    pytest.importorskip(resolve(target).facts.package.replace("apache-", ""))
    seen = workers.observe(resolve(target), parsed(NEGATED), {"x": np.ones(2, np.float32)})
    assert (seen.outcome, repr(name) in seen.message) == ("environment", True)


@pytest.mark.parametrize(
    "target",
    [
        "onnxruntime:disabled_optimizers=Pad_Fusion+ConstantFolding",
        "onnxsim:skip=eliminate_nop_pad",
        "tvm:disabled=FuseOps",
    ],
)
def test_a_pass_that_is_there_is_taken(workers: Workers, target: str) -> None:
    pytest.importorskip(resolve(target).facts.package.replace("apache-", ""))
    assert workers.observe(resolve(target), parsed(NEGATED), {"x": np.ones(2, np.float32)}).outcome == "ok"


@pytest.mark.parametrize(
    ("target", "acted", "ran"),
    [
        ("onnxruntime", "FuseReluClip", "GeluFusion"),
        ("onnxscript", "FuseSuccessiveReluClip", "FoldConstantsPass"),
        ("onnxoptimizer", "", "fuse_pad_into_pool"),
        ("onnxslim", "", "FusionPadConv"),
        ("tvm:zero", "FuseTIRInner", "s_tir.LowerOpaqueBlock"),
    ],
)
def test_compilers_tell_their_passes(workers: Workers, target: str, acted: str, ran: str) -> None:
    pytest.importorskip(resolve(target).facts.package.replace("apache-", ""))
    traced = resolve(target).with_options(trace="on")
    seen = workers.observe(traced, parsed(BETWEEN), {"x": np.ones(2, np.float32)})
    told = read_trace(seen.log, died=False)
    assert ran in told.ran
    assert not acted or acted in told.acted
    assert not set(told.hosts) & {*told.ran, *told.acted}
    # A fused pattern can be mended, and the step that runs all of them cannot.
    assert "graph_fusion" not in told.ran


@pytest.mark.slow(seconds=3)
def test_a_rewrite_rule_is_blamed(workers: Workers) -> None:
    """Clip with its minimum above its maximum gives the maximum; onnxscript's rule takes a Relu behind it for
    another minimum.
    """
    pytest.importorskip("onnxscript")
    case = Case(parsed(CLIPPED), {"x": np.ones(2, np.float32)}, {"y": np.zeros(2, np.float32)})
    blamed = blame_passes(case, resolve("onnxscript"), ObservationCache(workers))
    assert (blamed.attribution.answer, blamed.attribution.passes) == ("pass", ("FuseSuccessiveReluClip",))
    assert blamed.beneath is None


class Overheard(ObservationCache):
    """A lab that keeps the questions."""

    def __init__(self, workers: Workers):
        super().__init__(workers)
        self.asked: list[tuple[str, int]] = []

    def observe(
        self,
        target: ResolvedTarget,
        program: Program,
        inputs: dict[str, Any],
        *,
        fresh: bool = False,
        repeat: int = 0,
    ) -> Observation:
        self.asked.append((str(target), repeat))
        return super().observe(target, program, inputs, fresh=fresh, repeat=repeat)


RAISING = """<ir_version: 8, opset_import: ["": 14]> g (double[2] x) => (double[2] y)
<double low = {0}, double high = {6}> { a = Relu(x) y = Clip(a, low, high) }"""


@pytest.mark.parametrize("large", [False, True])
def test_an_error_is_attributed_without_asking_what_is_right(workers: Workers, large: bool) -> None:
    """onnxruntime's rule FuseReluClip raises for double; the reference is slow, so a large model does without
    it.
    """
    model = parsed(RAISING).proto
    if large:
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.zeros(5000, np.float32), "weight_of_a_host")
        )
    lab = Overheard(workers)
    blamed = blame_passes(
        Case(OnnxProgram(model.SerializeToString()), {"x": np.ones(2)}), resolve("onnxruntime"), lab
    )
    assert (blamed.attribution.answer, blamed.attribution.passes) == ("pass", ("FuseReluClip",))
    assert (blamed.wanted.stage, blamed.beneath) == ("compile", None)
    named = [target for target, _ in lab.asked]
    assert not any("float64" in target for target in named)
    assert any("reference" in target for target in named) != large
    assert sum(repeat == COMPILED for _, repeat in lab.asked) >= blamed.attribution.probes - 2


def test_a_case_with_a_rare_element_type_is_attributed(workers: Workers) -> None:
    """The judge asks a small program whether the type is refused everywhere: that is not the case, whose
    answer is remembered.
    """
    rare = RAISING.replace("double[2] x)", "double[2] x, uint16[2] u)").replace(
        "double[2] y)", "double[2] y, uint16[2] v)"
    )
    case = Case(
        parsed(rare.replace("y = Clip", "v = Identity(u) y = Clip")),
        {"x": np.ones(2), "u": np.ones(2, np.uint16)},
    )
    blamed = blame_passes(case, resolve("onnxruntime"), ObservationCache(workers))
    assert (blamed.attribution.answer, blamed.attribution.passes) == ("pass", ("FuseReluClip",))
