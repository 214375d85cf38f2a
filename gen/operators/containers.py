"""Declared soon."""

OPERATORS = ()
