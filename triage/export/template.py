"""The parts of an exported script that are the same in every one: comparing, running apart, telling."""

OURS = """\
def run(model, inputs):
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.model.program import OnnxProgram

    with Workers() as workers:
        seen = workers.observe(resolve({target}), OnnxProgram(model), inputs)
    if seen.outputs is None:
        raise RuntimeError(f"{{seen.outcome}}: {{seen.message}}")
    return seen.outputs
"""
OURS_OF_MODULES = """\
def run(model, inputs):
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.forms.tvm_program import {kind}

    with Workers() as workers:
        seen = workers.observe(resolve({target}), {kind}(model.encode(), tuple({passes!a})), inputs)
    if seen.outputs is None:
        raise RuntimeError(f"{{seen.outcome}}: {{seen.message}}")
    return seen.outputs
"""
GIVE_UP = """

def give_up(why):
    print("cannot run: " + ascii(str(why))[1:-1])
    sys.exit(2)

"""
GIVE_UP_TEST = """

def give_up(why):
    import pytest

    pytest.skip(f"cannot run: {why}", allow_module_level=True)

"""
LIBRARIES = """
try:
    import numpy as np
    import onnx
    import onnx.parser
except ImportError as error:
    give_up(error)
"""
NUMPY = """
try:
    import numpy as np
except ImportError as error:
    give_up(error)
"""
PARSED = """
try:
    MODEL = onnx.parser.parse_model(TEXT).SerializeToString()
except onnx.parser.ParseError as error:  # of an older onnx
    give_up(error)
"""
ENDS = '''
def failure():
    """What is wrong, "" when nothing is."""
    try:
        run(MODEL, INPUTS)
    except ImportError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
'''
ACCEPTED = '''
def failure():
    """What is wrong, "" when nothing is."""
    try:
        run(MODEL, INPUTS)
    except ImportError:
        raise
    except Exception:  # it is refused, as it should be
        return ""
    return "a model that breaks a rule of ONNX is run"
'''
COMPARED = '''
def failure():
    """What is wrong, "" when nothing is."""
    try:
        got = run(MODEL, INPUTS)
    except ImportError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for name, (want, dtype, within) in EXPECTED.items():
        problem = difference(got[name], want, dtype, within) if name in got else "is missing"
        if problem:
            return f"output {name!r} {problem}"
    return ""


def difference(got, want, dtype, within):
    """How a value differs from what it should be, "" when it does not."""
'''
LISTS = """\
    if isinstance(want, list):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"is no sequence of {len(want)} values"
        return next(filter(None, (difference(a, b, dtype, within) for a, b in zip(got, want))), "")
    if want is None or got is None:
        return "" if want is got else "is absent on one side"
"""
TEXTS = """\
    if want.dtype.kind == "O":
        texts = [item.decode() if isinstance(item, bytes) else str(item) for item in np.asarray(got).ravel().tolist()]
        same = np.shape(got) == want.shape and texts == want.ravel().tolist()
        return "" if same else f"is {texts}, not {want.ravel().tolist()}"
"""
ARRAYS = """\
    got = np.asarray(got)
    if dtype and got.dtype.name != dtype:
        return f"is of type {got.dtype.name}, not {dtype}"
    if got.shape != want.shape:
        return f"has the shape {got.shape}, not {want.shape}"
    with np.errstate(all="ignore"):
        if want.dtype.kind in "fc":
            got = got.astype(want.dtype)
            right = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= within)
        else:
            right = got == want
    if right.all():
        return ""
    place = tuple(int(index) for index in np.argwhere(~right)[0])
    share = f"{int((~right).sum())} of {right.size} elements are wrong"
    return f"is {got[place]} instead of {want[place]} at {list(place)}; {share}"
"""
TWICE = '''
def failure():
    """What is wrong, "" when nothing is."""
    first = None
    for _ in range(RUNS):
        got = {name: np.asarray(value) for name, value in run(MODEL, INPUTS).items()}
        first = first or got
        for name, value in got.items():
            before = first[name]
            same = value.shape == before.shape and ((value == before) | ((value != value) & (before != before))).all()
            if not same:
                return f"output {name!r} is not the same in two runs of the same inputs"
    return ""
'''
APART = '''
def failure_apart():
    """The same, of a process of its own, which may die."""
    for _ in range(RUNS):
        command = [sys.executable, os.path.abspath(__file__), "--here"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"no answer within {SECONDS:g} s"
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        answers = [line for line in lines if line.startswith(ANSWER)]
        if done.returncode < 0:
            return f"the process died of signal {-done.returncode}"
        if not answers:
            return f"the process ended by itself with exit code {done.returncode}"
        problem = answers[-1][len(ANSWER) :]
        if done.returncode == 2:
            raise ImportError(problem)
        if problem:
            return problem
    return ""
'''
REPEATED = '''
def failure_repeated():
    """The first that is wrong in several runs, "" when nothing is."""
    return next(filter(None, (failure() for _ in range(RUNS))), "")
'''
LIMIT = """
        import resource  # there is none on Windows

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))"""
HERE = """\
    if sys.argv[1:] == ["--here"]:{limit}
        try:
            print("\\n" + ANSWER + one_line(failure()), flush=True)
        except ImportError as error:
            print("\\n" + ANSWER + one_line(error), flush=True)
            return 2
        return 0
"""
TELLING = '''
def one_line(text):
    """A line of printable ASCII: what compilers say is not trusted."""
    line = ascii(" ".join(str(text).split()))[1:-1]
    return line if len(line) <= 600 else line[:400] + " ... " + line[-195:]


def about():
    """What this was run on."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} of unknown version")
    return f"{', '.join(found)}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
'''
TEST = """
def test_{name}():
    import pytest

    try:
        problem = {failure}()
    except ImportError as error:
        pytest.skip(f"cannot run: {{one_line(error)}}")
    assert not problem, one_line(problem)
"""
MAIN = """
def main():
{here}    try:
        problem = {failure}()
    except ImportError as error:
        print(f"cannot run: {{one_line(error)}} ({{about()}})")
        return 2
    if problem:
        print(f"BUG: {{one_line(problem)}} ({{about()}})")
        return 1
    print(f"no failure here ({{about()}})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
"""
