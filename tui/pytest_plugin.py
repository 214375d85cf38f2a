"""The pytest plug-in (entry point `pytest11`): replay a folder of cases as tests.

    @pytest.mark.opsieve_cases("cases", targets=["onnxruntime"])
    def test_case(opsieve_case):
        opsieve_case.assert_agrees()

It loads with every pytest of an environment with opsieve, so it imports only pytest until a test uses a case.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Of a folder that is a case
_MARKERS = frozenset(["case.json", "model.onnx", "module.json"])
_OPTION = "opsieve_targets"


@dataclass(frozen=True, slots=True)
class ReplayedCase:
    """A case of the marked folder: a model or a case folder, its targets, and the folder of its reduction.

    `targets` are those of `--opsieve-target`, or else of the marker, or else the one on which the case
    failed.
    """

    path: Path
    targets: tuple[str, ...]
    output: Path

    def assert_agrees(self, **options: Any) -> None:
        """Call `opsieve.assert_agrees` on the case, with its options."""
        __tracebackhide__ = True
        from opsieve.backends.releases.consent import named_by_file
        from opsieve.tui.api import assert_agrees, open_case

        targets = self.targets or (
            # A case may be a stranger's: its target is no consent to run code of the user's own.
            named_by_file(open_case(self.path).parameters.get("target", "onnxruntime")),
        )
        assert_agrees(self.path, targets=targets, **{"output": self.output, **options})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--opsieve-target`, which replays the cases on another compiler than the tests name."""
    parser.getgroup("opsieve").addoption(
        "--opsieve-target",
        dest=_OPTION,
        action="append",
        default=[],
        metavar="TARGET",
        help=(
            "Compiler that opsieve's cases are replayed on, in place of those that the tests name;"
            " repeatable."
        ),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check the targets of the command line."""
    if targets := config.getoption(_OPTION):
        from opsieve.backends.registry import resolve
        from opsieve.gen.errors import BadInput

        try:
            # Before the collection: else each of a thousand cases would report it.
            for text in targets:
                resolve(text)
        except BadInput as error:
            raise pytest.UsageError(f"--opsieve-target: {error}") from None
    config.addinivalue_line(
        "markers",
        "opsieve_cases(folder, targets=()): run the test with the fixture opsieve_case for every case below"
        " folder.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each case of the folder; an empty folder is an error, since its test would check
    nothing at all.
    """
    if "opsieve_case" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("opsieve_cases")
    if marker is None or len(marker.args) != 1 or marker.kwargs.keys() - {"targets"}:
        pytest.fail('opsieve_case needs the marker opsieve_cases("folder", targets=[...])', pytrace=False)
    targets = marker.kwargs.get("targets", ())
    # A string is a sequence too: each of its letters would be a target.
    if isinstance(targets, str):
        pytest.fail(f"targets is a list: targets=[{targets!r}]", pytrace=False)
    folder = metafunc.definition.path.parent / marker.args[0]
    # The order of os.walk depends on the file system, and pytest-xdist wants equal ids in all workers.
    paths = sorted(_iter_cases(folder))
    if not paths:
        pytest.fail(
            f"{folder} holds no case: no folder with case.json or model.onnx, no .onnx file", pytrace=False
        )
    targets = tuple(metafunc.config.getoption(_OPTION)) or tuple(targets)
    names = [path.relative_to(folder).as_posix() for path in paths]
    metafunc.parametrize("opsieve_case", [(path, targets) for path in paths], indirect=True, ids=names)


@pytest.fixture(scope="session")
def opsieve_compilers() -> Iterator[None]:
    """Keep the compilers started by a test for the tests after it."""
    from opsieve.backends.workers.zygotes.shared_zygotes import ZYGOTES

    # pytest changes this variable for each test, and a zygote counts as another one in another environment.
    ZYGOTES.keep_idle(8, ignored=["PYTEST_CURRENT_TEST"])
    yield
    ZYGOTES.keep_idle(0)


@pytest.fixture
def opsieve_case(request: pytest.FixtureRequest, tmp_path: Path, opsieve_compilers: None) -> ReplayedCase:
    """Return the case of a test that is marked with `opsieve_cases`."""
    path, targets = request.param
    return ReplayedCase(path, targets, tmp_path / "reduced")


def _iter_cases(folder: Path) -> Iterator[Path]:
    """Yield case folders, without entering them, and .onnx files beside them."""
    for root, folders, files in os.walk(folder):
        if _MARKERS & set(files):
            # The files in a case folder are no cases of their own.
            folders.clear()
            yield Path(root)
            continue
        yield from (Path(root) / name for name in files if name.endswith(".onnx"))
