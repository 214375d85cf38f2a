import pytest
from hypothesis import given, strategies as st

from opsieve.backends.registry import names, resolve
from opsieve.backends.target import BadTarget, Target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("onnxruntime", Target("onnxruntime")),
        ("onnxruntime==1.20.1:all", Target("onnxruntime", "1.20.1", (("", "all"),))),
        ("tvm:pipeline=zero,opt=0", Target("tvm", "", (("opt", "0"), ("pipeline", "zero")))),
        ("reference:float64", Target("reference", "", (("", "float64"),))),
        ("x:faults=wrong@Relu>Clip", Target("x", "", (("faults", "wrong@Relu>Clip"),))),
    ],
)
def test_the_grammar(text: str, expected: Target) -> None:
    assert Target.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "==1.0", "a b", "onnxruntime==", "onnxruntime==../x", "a:b,b", "a:k=1,k=2", "x" * 3000]
)
def test_what_is_no_target_gets_one_sentence(text: str) -> None:
    with pytest.raises(BadTarget) as caught:
        Target.parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


OPTIONS = st.lists(
    st.tuples(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9_+>@&=.-]{1,12}", fullmatch=True),
    ),
    unique_by=lambda pair: pair[0],
    max_size=4,
)


@given(
    st.sampled_from(["onnxruntime", "tvm", "a-b_c"]), st.sampled_from(["", "1.2", "0.27.0.post1"]), OPTIONS
)
def test_a_target_is_read_as_it_is_written(
    backend: str, release: str, options: list[tuple[str, str]]
) -> None:
    target = Target(backend, release, tuple(sorted(options)))
    assert Target.parse(str(target)) == target


def test_equal_compilers_give_equal_targets() -> None:
    assert resolve("onnxruntime:all") == resolve("onnxruntime:level=all") == resolve("onnxruntime")
    assert resolve("onnxruntime:all").target == Target("onnxruntime")
    assert len({resolve("onnxruntime:all"), resolve("onnxruntime")}) == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("nosuch", "there is no backend 'nosuch'"),
        ("onnxruntime:speed=9", "no option 'speed'"),
        ("onnxruntime:maximal", "cannot be 'maximal'"),
        ("fake==1.0", "has no releases"),
    ],
)
def test_targets_that_no_backend_knows(text: str, word: str) -> None:
    with pytest.raises(BadTarget, match=word):
        resolve(text)


def test_display_is_how_a_person_writes_it() -> None:
    assert resolve("onnxruntime==1.20.1:level=basic").display == "onnxruntime==1.20.1:basic"


def test_the_baseline_is_the_unoptimised_build_of_the_same_release() -> None:
    target = resolve("onnxruntime==1.20.1:extended,disabled_optimizers=Pad_Fusion")
    base = target.baseline
    assert base is not None
    assert base.display == "onnxruntime==1.20.1:disable_all"
    assert base.baseline is None


def test_changes_are_checked_as_what_was_written() -> None:
    target = resolve("onnxruntime==1.20.1:basic")
    assert str(target.with_options(level="all", trace="on")) == "onnxruntime==1.20.1:trace=on"
    assert str(target.with_release("1.21.0")) == "onnxruntime==1.21.0:level=basic"
    with pytest.raises(BadTarget, match="cannot be 'maximal'"):
        target.with_options(level="maximal")


def test_every_option_has_a_value() -> None:
    defaults = {"level": "all", "disabled_optimizers": "", "trace": "off"}
    assert resolve("onnxruntime").options == {
        **defaults,
        "device": "cpu",
        "threads": "1",
        "mode": "sequential",
        "config": "",
        "custom_ops": "",
    }


def test_the_backends_of_the_base_install_are_found() -> None:
    assert {"onnxruntime", "tvm", "reference", "checker", "fake"} <= set(names())
