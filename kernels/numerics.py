"""The version of the arithmetic: one number, changed by hand whenever the bits or the places of cached keys and values do.

Keys and values on disk are of use only where they would come out the same. A hash of the kernels' sources would say "changed"
at every comment and throw everybody's caches away at every release; so a person keeps this number, and a test keeps the person:
`tests/kernels/test_numerics.py` compares what is cached after a few programs with pinned hashes, and fails when they change.
"""

NUMERICS_VERSION = 1
"""Raise it together with the hashes of that test."""
