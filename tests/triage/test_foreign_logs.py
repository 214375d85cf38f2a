"""Logs of other languages, loggers and runners: what failed, where, without names of users or machines."""

from pathlib import Path

import pytest
from commands import opsieve
from onnx import parser

from opsieve.triage.external.external_logs import read_and_cluster
from opsieve.triage.fingerprint.normalise import normalise_message
from opsieve.triage.fingerprint.traces import read_trace

LLVM = """Stack dump:
0.	Program arguments: /home/jane.doe/llvm/bin/opt -O2 in.ll
 #0 0x000055d1e7a3b2c7 llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) /home/jane.doe/Signals.inc:723:13
 #1 0x000055d1e7a3911e llvm::sys::RunSignalHandlers() /home/jane.doe/Signals.cpp:106:18
 #2 0x000055d1e7a3b9af SignalHandler(int) Signals.cpp:0:0
 #3 0x00007f1c5ac42520 (/lib/x86_64-linux-gnu/libc.so.6+0x42520)
 #4 0x000055d1e6f1a2b3 foldSelect(llvm::SelectInst*) /home/jane.doe/InstCombine.cpp:1289:9
 #5 0x000055d1e6f1b2b3 llvm::InstCombinerImpl::visitAdd(llvm::BinaryOperator&) (/opt/llvm/bin/opt+0x2234567)
Segmentation fault (core dumped)
"""
MACOS = """Stack dump:
0  libLLVM.dylib  0x000000010f3c5a10 llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) + 56
1  libLLVM.dylib  0x000000010f3c5b20 llvm::sys::RunSignalHandlers() + 112
2  libLLVM.dylib  0x000000010f3c5c30 SignalHandler(int) + 220
3  libLLVM.dylib  0x000000010e3c5d40 foldSelect(llvm::SelectInst*) + 84
zsh: segmentation fault  ./opt
Command './opt' died with return code -11
"""
GLOG = """F20260101 10:00:00.123456 12345 lowering.cc:88] Check failed: rank == 4 (5 vs. 4) conv needs rank 4
*** Check failure stack trace: ***
    @     0x7f0e6f1a2b3c  google::LogMessage::Fail()
    @     0x7f0e6f1a2b3f  google::LogMessageFatal::~LogMessageFatal()
    @     0x55d0c1a2b3c4  acme::Lower::Conv(acme::Node const&)
    @     0x55d0c1a2b3c6  main
    @     0x7f0e6d029d90  (unknown)
Aborted (core dumped)
"""
ABSL = """*** SIGSEGV received at time=1700000000 on cpu 3 ***
PC: @     0x55d0c1a2b3c4  (unknown)  acme::Lower::Conv()
    @     0x7f0e6d042520       1392  (unknown)
    @     0x55d0c1a2b3c5         96  acme::Pipeline::Run()
"""
JVM = """# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f9c3b5d1234, pid=4242, tid=4243
# Problematic frame:
# C  [libacme.so+0x1234]  acme::Lower::Conv(float*)+0x34
"""
JAVA = """[INFO] compiling
Exception in thread "main" java.lang.IllegalStateException: unsupported rank 5
	at org.acme.Pipeline.run(Pipeline.java:41)
	at org.acme.Main.main(Main.java:12)
Caused by: java.lang.ArrayIndexOutOfBoundsException: Index 4 out of bounds for length 4
	at java.base/java.util.ArrayList.get(ArrayList.java:427)
	at org.acme.Lower.lambda$conv$0(Lower.java:30)
	... 2 more
"""
JAVASCRIPT = """Error: no kernel for Conv3D
    at fuse (/home/jane/acme/dist/fuse.js:12:11)
    at Pipeline.run (/home/jane/acme/dist/pipeline.js:40:5)
"""


@pytest.mark.parametrize(
    ("text", "kind", "signal", "innermost"),
    [
        (LLVM, "crash", 11, "foldSelect"),
        (MACOS, "crash", 11, "foldSelect"),
        (GLOG, "crash", 6, "acme::Lower::Conv"),
        (ABSL, "crash", 11, "acme::Lower::Conv"),
        (JVM, "crash", 11, "acme::Lower::Conv"),
        (JAVA, "error", 0, "org.acme.Lower.lambda$conv"),
        (JAVASCRIPT, "error", 0, "fuse"),
    ],
)
def test_stacks_of_other_programs(tmp_path: Path, text: str, kind: str, signal: int, innermost: str) -> None:
    trace = read_trace(text)
    assert (trace.kind, trace.signal) == (kind, signal)
    (tmp_path / "a.log").write_text(text)
    (found,) = read_and_cluster(tmp_path / "a.log").assignments
    frames = found.why.split("frames: ")[1].split(" (")[0]
    assert innermost in frames.split(" < ")[:2], frames
    assert "jane" not in found.title + found.why


def test_the_cause_of_a_java_exception_counts() -> None:
    trace = read_trace(JAVA)
    assert trace.exception == "java.lang.ArrayIndexOutOfBoundsException"
    assert trace.message.startswith("Index 4 out of bounds")
    assert [frame.line for frame in trace.frames] == [12, 41, 30, 427]


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("run.sh: Zeile 3: 4242 Speicherzugriffsfehler (Speicherabzug geschrieben) ./compile", 11),
        ("./run.sh : ligne 4 : 99 Erreur de segmentation  ./compile m.onnx", 11),
        ("run.sh: 第 3 行： 99 段错误               （核心已转储） ./compile", 11),
        ("Violación de segmento (`core' generado)", 11),
        ("Abandon (core dumped)", 6),
        ("run.sh: line 3: 4242 Killed   ./compile", 9),
        ("Ошибка шины", 7),
        ("Command './compile' returned non-zero exit status 139.", 11),
        ("process exited with code -6", 6),
        ("Process finished with exit code -1073741819 (0xC0000005)", 11),
        ("fish: Job 1, './x' terminated by signal SIGFPE (Floating point exception)", 8),
        ("exit code: 1", 0),
        ("Abandon all hope", 0),
        ("exit status 0139x", 11),
    ],
)
def test_a_deadly_signal_in_any_language(text: str, signal: int) -> None:
    assert read_trace(f"compiling\n{text}\n").signal == signal


def test_a_junit_report_holds_one_failure_for_each_case(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text("""<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" hostname="buildbox17"><testcase classname="t" name="a"/>
<testcase classname="t" name="b"><failure message="ValueError: rank 5 is not handled">def test_a(n):
&gt;       lower(n)

/venv/lib/python3.11/site-packages/acme/check.py:7: ValueError
E   ValueError: rank 5 is not handled</failure></testcase>
<testcase classname="t" name="c"><error message="failed on setup"><![CDATA[Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/acme/fuse.py", line 3, in fuse
    x
KeyError: 'pads'
]]></error></testcase>
<testcase name="d"><failure type="acme.Mistake" message="a &lt; b has no kernel"/></testcase>
<testcase name="e"><failure/></testcase></testsuite></testsuites>""")
    found = read_and_cluster(tmp_path)
    assert [each.title for each in found.assignments] == [
        "ValueError in check.py test_a: rank <n> is not handled",
        "KeyError in fuse.py fuse: a key is missing",
        "Mistake: a < b has no kernel",
    ]
    assert [why for _, why in found.skipped] == ["it holds no failure"]
    (tmp_path / "junit.xml").write_text("<testsuite><failure>" * 9)
    assert [why for _, why in read_and_cluster(tmp_path).skipped] == ["the report holds no failure"]


@pytest.mark.parametrize(
    "place",
    [
        r"C:\Users\Erika Muster\models\net7.onnx",
        r"C:\Users\erika\net.onnx",
        r"\\server\erika\net.onnx",
        "erika@buildbox:/data/net.onnx",
        "/Users/erika/Library/net.bin",
        "~/erika/net.bin",
    ],
)
def test_names_of_users_and_machines_are_removed(place: str) -> None:
    template = normalise_message(f"cannot open {place} for reading")
    assert template.replace("\\", "") == "cannot open <path> for reading"


def test_a_frame_of_windows_is_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("""Traceback (most recent call last):
  File "C:\\Users\\Erika Muster\\venv\\Lib\\site-packages\\acme\\lower.py", line 12, in lower
    x
ValueError: no rank is known
""")
    (found,) = read_and_cluster(tmp_path / "a.log").assignments
    assert found.title == "ValueError in lower.py lower: no rank is known"
    assert "Erika" not in found.why


@pytest.mark.parametrize(
    ("said", "files", "kind"),
    [
        (
            "AttributeError: 'NoneType' object has no attribute 'shape'",
            ("run.py", "/src/acme/lower.py"),
            "error",
        ),
        ("TypeError: 'int' object is not iterable", ("run.py", "/src/acme/lower.py"), "error"),
        ("IndexError: list index out of range", ("/src/run.py", "/src/acme/lower.py"), "error"),
        ("IndexError: list index out of range", ("/src/run.py", "/src/run.py"), "environment"),
    ],
)
def test_an_editable_install_is_the_compilers_own_code(
    tmp_path: Path, said: str, files: tuple[str, ...], kind: str
) -> None:
    lines = "".join(f'  File "{file}", line {at}, in f\n    x\n' for at, file in enumerate(files, 3))
    (tmp_path / "a.log").write_text(f"Traceback (most recent call last):\n{lines}{said}\n")
    assert [each.kind for each in read_and_cluster(tmp_path / "a.log").assignments] == [kind]


def test_cases_that_run_saved_are_clustered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, operator in enumerate(("Neg", "Neg", "Exp")):
        model = tmp_path / f"m{number}.onnx"
        text = f'<ir_version: 8, opset_import: ["": 17]> g (float[{number + 1}] x) => (float[{number + 1}] y) {{ y = {operator}(x) }}'
        model.write_bytes(parser.parse_model(text).SerializeToString())
        for fault in ("error@*", "wrong@*"):
            target = f"fake:faults={fault}"
            opsieve("run", model, "-t", target, "--save", tmp_path / fault[:5], capsys=capsys)
    for fault, kind, clusters in (("error", "error", 1), ("wrong", "mismatch", 2)):
        found = read_and_cluster(tmp_path / fault)
        assert [each.kind for each in found.assignments] == [kind] * 3
        assert len({each.cluster for each in found.assignments}) == clusters
    code, _, err = opsieve("triage", tmp_path / "error", capsys=capsys)
    assert code == 2
    assert "opsieve triage --logs clusters its cases" in err
    (tmp_path / "error" / "odd").mkdir()
    (tmp_path / "error" / "odd" / "case.json").write_text("{")
    assert len(read_and_cluster(tmp_path / "error").skipped) == 1
