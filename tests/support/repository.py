"""Where things lie in the repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
CORPUS = TESTS / "corpus"
GOLDEN = CORPUS / "golden"
SAMPLES = ROOT / "samples"
