"""The parts of an exported script that are the same in every one: comparing, running apart, telling."""

# For a backend that writes no lines of its own; the script then needs opsieve and says so.
OURS = """\
def run(model, inputs):
    from opsieve.backends.registry import resolve
    from opsieve.backends.workers.workers import Workers
    from opsieve.gen.irs.registry import ir_named

    program = ir_named({ir!a}).load(model{encode}, {passes!a}, "")
    with Workers() as workers:
        seen = workers.observe(resolve({target}), program, inputs)
    if seen.outputs is None:
        raise RuntimeError(f"{{seen.outcome}}: {{seen.message}}")
    return seen.outputs
"""
# A missing library is no failure of the compiler: the script ends with 2, as `opsieve` does.
LIBRARIES = """\
try:
    import numpy as np
{imports}except {errors} as error:
{ends}"""
EXITS = """\
    print("cannot run: " + ascii(str(error))[1:-1])
    sys.exit(2)
"""
SKIPS = """\
    import pytest

    pytest.skip(f"cannot run: {error}", allow_module_level=True)
"""
# ImportError passes through everywhere below: it means that the compiler is not installed.
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
# For a model that breaks a rule: here the exception is what a right compiler raises.
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
        for name, expected in EXPECTED.items():
            check(got[name], *expected, f"output {name!r}")
    except ImportError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check(got, want, dtype, within, name):
    """An AssertionError where a value is not what it should be."""
'''
# Only in scripts whose outputs are sequences or optionals; most stay short without it.
LISTS = """\
    if isinstance(want, list):
        fits = isinstance(got, (list, tuple)) and len(got) == len(want)
        assert fits, f"{name} is no sequence of {len(want)} values"
        for a, b in zip(got, want):
            check(a, b, dtype, within, name)
        return
    if want is None or got is None:
        assert want is got, f"{name} is absent on one side"
        return
"""
# Compilers give text as bytes, as str or as fixed-width arrays, and all of them mean the same.
TEXTS = """\
    if want.dtype.kind == "O":
        items = np.asarray(got).ravel().tolist()
        texts = [item.decode() if isinstance(item, bytes) else str(item) for item in items]
        got = np.array(texts, object).reshape(np.shape(got))
        dtype = ""
"""
# Where no oracle could give the value, only type and shape can be held against the compiler.
UNKNOWN = """\
    if within == float("inf"):  # only the type is known
        got, within = np.zeros(np.shape(got), np.asarray(got).dtype), 0.0
"""
ARRAYS = """\
    got = np.asarray(got)
    assert dtype in ("", got.dtype.name), f"{name} is of type {got.dtype.name}, not {dtype}"
    assert got.shape == want.shape, f"{name} has the shape {got.shape}, not {want.shape}"
    got = got.astype(want.dtype)
    if within:
        np.testing.assert_allclose(got, want, rtol=0, atol=within, err_msg=name)
    else:
        np.testing.assert_array_equal(got, want, err_msg=name)
"""
# NaN equals NaN here: a result that is NaN in both runs is the same one.
TWICE = '''
def failure():
    """What is wrong, "" when nothing is."""
    first = None
    for _ in range(RUNS):
        got = {name: np.asarray(value) for name, value in run(MODEL, INPUTS).items()}
        first = first or got
        for name, value in got.items():
            before = first[name]
            same = value.shape == before.shape
            if not same or not ((value == before) | ((value != value) & (before != before))).all():
                return f"output {name!r} is not the same in two runs of the same inputs"
    return ""
'''
# A crash would end the script before it could print; a child's signal can be reported.
APART = '''
def failure_apart():
    """The same, of a process of its own, which may die."""
    for _ in range(RUNS):
        command = [sys.executable, os.path.abspath(__file__), "--here"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"no answer within {SECONDS:g} s"
        if done.returncode < 0:
            return f"the process died of signal {-done.returncode}"
        problem = done.stdout.decode("utf-8", "replace").rpartition(ANSWER)[2].strip()
        if done.returncode == 2:
            raise ImportError(problem)
        if done.returncode:
            return f"the process ended by itself with exit code {done.returncode}"
        if problem:
            return problem
    return ""
'''
REPEATED = '''
def failure_repeated():
    """The first that is wrong in several runs, "" when nothing is."""
    return next(filter(None, (failure() for _ in range(RUNS))), "")
'''
# RLIMIT_AS counts addresses, many of which Python and its libraries hold before the model is read.
LIMIT = """
            import resource  # there is none on Windows
{imported}
            try:  # what is mapped before the program does not count
                with open("/proc/self/statm") as statm:
                    mapped = int(statm.read().split()[0]) * resource.getpagesize()
            except OSError:
                mapped = 0
            resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))"""
HERE = """\
    if sys.argv[1:] == ["--here"]:
        try:{limit}
            print("\\n" + ANSWER + one_line(failure()), flush=True)
        except ImportError as error:
            print("\\n" + ANSWER + one_line(error), flush=True)
            return 2
        return 0
"""
# The middle of a message goes first: compilers put the operator at its start and the cause at its end.
TELLING = '''
def one_line(text):
    """A line of printable ASCII: what compilers say is not trusted."""
    line = ascii(" ".join(str(text).split()))[1:-1]
    return line if len(line) <= 600 else line[:400] + " ... " + line[-195:]
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
# Only where it lies tells a build from the installed release.
BUILT = """\
    from importlib import util

    place = getattr({found}, "origin", None)
    about += f"; {{one_line(place)}}" if place else ""
    about += "" if problem else {seen!a}
"""
# Versions come from the metadata, which every installed package has.
MAIN = """
def main():
{here}    try:
        problem = {failure}()
    except ImportError as error:
        print(f"cannot run: {{one_line(error)}}")
        return 2
    versions = {{item.name: item.version for item in metadata.distributions()}}
    about = ", ".join(f"{{name}} {{versions.get(name, 'of unknown version')}}" for name in PACKAGES)
{built}    print(f"BUG: {{one_line(problem)}} ({{about}})" if problem else f"no failure here ({{about}})")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
"""
