"""The folder of the failing models that come with opsieve: beside the packages, in a checkout and an
installation.
"""

from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
