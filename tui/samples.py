"""Where the failing models lie that opsieve brings along: beside the packages, in a checkout as in an
installation.
"""

from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
