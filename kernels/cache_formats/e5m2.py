"""e5m2: 8-bit floats of OCP's specification, 5 bits of exponent and 2 of fraction: up to 57344.

Its codes of infinity are never written. Source: OCP 8-bit Floating Point Specification 1.0 (2023), E5M2.
"""

from .floats import small_float

FORMAT = small_float("e5m2", exponent_bits=5, bias=15, finite=0x7C)
