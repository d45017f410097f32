"""e4m3: 8-bit floats of OCP's specification, 4 bits of exponent and 3 of fraction: up to 448, no infinity.

Source: OCP 8-bit Floating Point Specification 1.0 (2023), E4M3.
"""

from .floats import small_float

FORMAT = small_float("e4m3", exponent_bits=4, bias=7, finite=0x7F)
