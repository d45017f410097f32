"""Random tensors in any GGUF format: random codes under sane scales, so that a model of them computes finite numbers.

Knows the byte layouts only as far as where the float16 scales lie; the gguf package's NumPy formats say what they mean.
Used by `synthesise.py` and by the tests' tiny models: the package's Python code cannot quantise the K formats.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from gguf import GGMLQuantizationType, quants
from gguf.constants import GGML_QUANT_SIZES
from numpy.typing import NDArray

# Where a group's float16 scales lie, and each one's size relative to the first. The second one (a minimum or an offset)
# is chosen so that values are centred. A lone scale takes either sign, as quantisers write it.
SCALES: dict[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 1.0),),
    "Q4_1": ((0, 1.0), (2, -7.5)),
    "Q5_0": ((0, 1.0),),
    "Q5_1": ((0, 1.0), (2, -15.5)),
    "Q8_0": ((0, 1.0),),
    "Q2_K": ((80, 1.0), (82, 1.5)),
    "Q3_K": ((108, 1.0),),
    "Q4_K": ((0, 1.0), (2, 7.5)),
    "Q5_K": ((0, 1.0), (2, 15.5)),
    "Q6_K": ((208, 1.0),),
    "IQ4_NL": ((0, 1.0),),
    "IQ4_XS": ((0, 1.0),),
    "Q1_0": ((0, 1.0),),
    "TQ1_0": ((52, 1.0),),
    "TQ2_0": ((64, 1.0),),
    "IQ1_S": ((0, 1.0),),
    "IQ2_XXS": ((0, 1.0),),
    "IQ2_XS": ((0, 1.0),),
    "IQ2_S": ((0, 1.0),),
    "IQ3_XXS": ((0, 1.0),),
    "IQ3_S": ((0, 1.0),),
    # Not a float16 in one piece: see below.
    "MXFP4": (),
    "IQ1_M": (),
    "NVFP4": (),
}
PLAIN = ("F32", "F16", "BF16")


def get_row_bytes(format: str, row_length: int) -> int:
    """Return the bytes of one row. Raises ValueError where rows of that length cannot have the format."""
    size, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[format]]
    if row_length % size:
        raise ValueError(f"{format} needs rows of a multiple of {size} values, not {row_length}")
    return row_length // size * nbytes


def _random_groups(format: str, count: int, unit: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[format]][1]
    groups = np.frombuffer(rng.bytes(count * nbytes), np.uint8).reshape(count, nbytes).copy()
    fields = SCALES[format]
    scale = unit * rng.uniform(0.5, 1.5, count)
    if format == "MXFP4":
        groups[:, 0] = _random_exponents(scale, rng)
    if format == "NVFP4":
        each = 2 * scale[:, None] * rng.uniform(0.5, 1.5, (count, 4))
        groups[:, :4] = quants.NVFP4.fp32_to_ue4m3(each.astype(np.float32))
    if len(fields) < 2 and format not in ("Q8_0", "MXFP4", "NVFP4"):
        scale *= rng.choice((-1.0, 1.0), count)
    if format == "IQ1_M":
        d = scale.astype(np.float16).view(np.uint16)[:, None]
        words = groups[:, 48:].view("<u2")
        words[:] = words & 0x0FFF | (d >> np.array([0, 4, 8, 12], np.uint16)) << 12
    for offset, factor in fields:
        groups[:, offset : offset + 2] = (scale * factor).astype(np.float16).view(np.uint8).reshape(count, 2)
    return groups


def _random_exponents(scale: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Bytes e of scales 2**(e - 128): the powers of two around each scale, in the proportion that keeps its square's mean."""
    whole = np.floor(np.log2(scale))
    up = ((scale / 2.0**whole) ** 2 - 1) / 3  # 1 - up of the square 1, up of the square 4
    return 128 + whole + (rng.random(len(scale)) < up)


@cache
def _get_spread(format: str) -> float:
    """Return the standard deviation of a format's random values when its scales are about one."""
    if format == "Q1_0":  # the package knows its size only; a value is its scale, with either sign
        return (13 / 12) ** 0.5
    groups = _random_groups(format, 256, 1.0, np.random.default_rng(0))
    return float(quants.dequantize(groups, GGMLQuantizationType[format]).std())


def make_random(format: str, rows: int, row_length: int, std: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return u8[rows, row bytes]: random values of standard deviation `std`. Raises ValueError for an unfit row."""
    row_bytes = get_row_bytes(format, row_length)
    if format in PLAIN:
        values = rng.standard_normal((rows, row_length), np.float32) * np.float32(std)
        return quants.quantize(values, GGMLQuantizationType[format]).view(np.uint8).reshape(rows, row_bytes)
    if format not in SCALES:
        raise ValueError(f"no random values for {format}; there are {', '.join((*PLAIN, *SCALES))}")
    size = GGML_QUANT_SIZES[GGMLQuantizationType[format]][0]
    groups = _random_groups(format, rows * row_length // size, std / _get_spread(format), rng)
    return groups.reshape(rows, row_bytes)
