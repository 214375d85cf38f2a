"""opsieve: reduce, triage and bisect the bugs of deep-learning compilers."""

__version__ = "0.1.0"
