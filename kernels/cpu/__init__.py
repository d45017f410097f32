"""Kernels for CPUs, written in Python and compiled by Numba for exactly the machine they run on. Start at `backend.py`."""
