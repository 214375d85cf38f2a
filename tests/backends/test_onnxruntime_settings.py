"""Devices and session options of onnxruntime as options of its target; backends that share a name."""

import subprocess
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from commands import opsieve
from models import X, chain

from opsieve.backends import registry
from opsieve.backends.compilers.ort import PROVIDERS
from opsieve.backends.registry import plugin, resolve
from opsieve.backends.target import BadTarget
from opsieve.backends.workers.workers import Workers
from opsieve.gen.case.case import Case, save
from opsieve.gen.irs.onnx.program import OnnxProgram

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
)


def test_settings_are_taken_and_what_is_absent_is_said() -> None:
    program, inputs = OnnxProgram(MODEL.SerializeToString()), {"x": np.array([-1, 2], np.float32)}
    absent = next(
        name for name, provider in PROVIDERS.items() if provider not in onnxruntime.get_available_providers()
    )
    with Workers() as workers:
        for options in (
            "threads=4,mode=parallel",
            "basic,config=session.disable_prepacking=1+session.set_denormal_as_zero=1",
        ):
            seen = workers.observe(resolve(f"onnxruntime:{options}"), program, inputs)
            assert seen.outcome == "ok", seen.message
            assert seen.outputs["y"].tolist() == [0, 2]
        for options, sentence in (
            (absent, f"cannot compute on {absent}: this build lacks {PROVIDERS[absent]}"),
            ("config=x", "config=KEY=VALUE"),
        ):
            seen = workers.observe(resolve(f"onnxruntime:{options}"), program, inputs)
            assert seen.outcome == "environment", seen.message
            assert sentence in seen.message


def test_a_bare_word_may_set_another_option_than_the_main_one() -> None:
    assert resolve("onnxruntime:cuda") == resolve("onnxruntime:level=all,device=cuda")
    assert resolve("onnxruntime:basic").options["level"] == "basic"
    assert resolve("onnxruntime:cuda").baseline == resolve("onnxruntime:disable_all,device=cuda")
    with pytest.raises(BadTarget, match="level of onnxruntime cannot be 'fpga'"):
        resolve("onnxruntime:fpga")


def test_scripts_have_the_settings() -> None:
    found = resolve("onnxruntime:openvino,threads=2,mode=parallel,config=a.b=c")
    source = plugin("onnxruntime").backend.script(found.options, ())  # type: ignore[attr-defined]
    assert 'providers=["OpenVINOExecutionProvider", "CPUExecutionProvider"]' in source
    assert "intra_op_num_threads = options.inter_op_num_threads = 2" in source
    assert "ORT_PARALLEL" in source
    assert "add_session_config_entry('a.b', 'c')" in source
    compile(source, "script", "exec")


def test_a_name_that_two_distributions_give_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = registry.importlib.metadata.EntryPoint("twice", "a_module:BACKEND", registry.GROUP)
    there = registry.importlib.metadata.EntryPoint("twice", "b_module:BACKEND", registry.GROUP)
    monkeypatch.setitem(registry._entries(), "twice", {here.value: here, there.value: there})
    with pytest.raises(
        BadTarget, match="two backends are called twice, one of each of a_module:BACKEND and b_module:BACKEND"
    ):
        resolve("twice")


LIBRARY = """#include <cstdio>
extern "C" void* RegisterCustomOps(void*, const void*) { std::fputs("operators of the user's own\\n", stderr); return nullptr; }
"""


@pytest.mark.slow
def test_a_library_of_operators_is_loaded_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPSIEVE_STORE", str(tmp_path / "releases"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.cpp").write_text(LIBRARY)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "ops.so", "ops.cpp"], check=True)
    (tmp_path / "none.so").write_text("no library")
    target = resolve("onnxruntime:basic,custom_ops=ops.so")
    assert str(target) == f"onnxruntime:custom_ops={tmp_path}/ops.so,level=basic"
    save(Case(chain("Relu"), X, parameters={"target": str(target)}), tmp_path / "case")
    code, _, err = opsieve("reduce", "case", capsys=capsys)
    assert code == 2
    assert "ops.so' is named by a file and was never named on the command line" in err
    (tmp_path / "opsieve.toml").write_text('[run]\ntarget = ["onnxruntime:custom_ops=ops.so"]\n')
    code, _, err = opsieve("run", "case", capsys=capsys)
    assert code == 2
    assert "opsieve.toml names the library" in err
    (tmp_path / "opsieve.toml").unlink()
    code, _, err = opsieve("run", "case", "-t", "onnxruntime:custom_ops=nowhere.so", capsys=capsys)
    assert (code, "there is no library of operators at" in err) == (2, True)
    code, out, _ = opsieve("run", "case", "-t", "onnxruntime:custom_ops=none.so", capsys=capsys)
    assert "Failed to load library" in out
    assert "environment" in out
    code, out, _ = opsieve("run", "case", "-t", str(target), capsys=capsys)
    assert code == 0, out
    with Workers() as workers:
        seen = workers.observe(target, chain("Relu"), X)
        assert (seen.outcome, "operators of the user's own" in seen.log) == ("ok", True)
        assert "operators" not in workers.observe(resolve("onnxruntime:basic"), chain("Relu"), X).log
    assert f"register_custom_ops_library('{tmp_path}/ops.so')" in target.backend.script(target.options, ())  # type: ignore[attr-defined]
