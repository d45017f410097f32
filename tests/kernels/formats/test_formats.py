"""Every format equals gguf's NumPy meaning bit for bit, whatever the bytes are."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from edgellm.errors import UnsupportedError
from edgellm.kernels import formats

NAMES = sorted(formats.FORMATS)
# Offsets of a group's f16 scales: the fields whose unusual values (zeros, subnormals, infinities) must survive.
SCALE_OFFSETS = {
    "F16": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "Q1_0": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    **dict.fromkeys(("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), (0,)),
}
ODD_SCALES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7C00, 0xFC00, 0x7E01, 0x7D00, 0x7BFF, 0x3C00], np.uint16)


def expected(rows: np.ndarray, name: str) -> np.ndarray:
    if name == "Q1_0":  # the package knows its size only: a set bit is d, any other -d, the lowest bits first
        groups = rows.reshape(-1, 18)
        d = groups[:, :2].copy().view(np.float16).astype(np.float32)
        positive = groups[:, 2 + np.arange(128) // 8] >> np.arange(128) % 8 & 1
        return np.where(positive, d, -d).reshape(len(rows), -1)
    with np.errstate(all="ignore"):
        return quants.dequantize(rows, GGMLQuantizationType[name]).reshape(len(rows), -1)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype == np.float32 and got.shape == want.shape
    assert np.array_equal(np.isnan(got), np.isnan(want))
    different = (got.view(np.uint32) != want.view(np.uint32)) & ~np.isnan(want)
    assert not different.any(), (got[different][:4], want[different][:4])


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_ggmls(name: str) -> None:
    format = formats.get(name)
    assert (format.group_size, format.group_bytes) == GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    assert format.type_id == GGMLQuantizationType[name] and format.name == name
    assert format.row_bytes(512) == 512 // format.group_size * format.group_bytes


@pytest.mark.parametrize("name", NAMES)
def test_random_bytes(name: str) -> None:
    format = formats.get(name)
    rows = np.random.default_rng(0).integers(0, 256, (33, format.row_bytes(1024)), np.uint8)
    assert_same_bits(format.dequantize(rows), expected(rows, name))


@pytest.mark.parametrize("name", sorted(SCALE_OFFSETS))
def test_odd_scales(name: str) -> None:
    format = formats.get(name)
    offsets = SCALE_OFFSETS[name]
    scales = np.stack(np.meshgrid(*[ODD_SCALES] * len(offsets)), -1).reshape(-1, len(offsets))
    for fill in (0, 255, None):
        rng = np.random.default_rng(1)
        rows = rng.integers(0, 256, (len(scales), format.group_bytes), np.uint8)
        if fill is not None:
            rows[:] = fill
        for column, offset in enumerate(offsets):
            rows[:, offset : offset + 2] = scales[:, column : column + 1].copy().view(np.uint8)
        assert_same_bits(format.dequantize(rows), expected(rows, name))


def test_every_exponent_of_mxfp4() -> None:
    """Byte 0 of a group: subnormal scales first, then all powers of two; the largest times 12 is infinite."""
    rows = np.random.default_rng(3).integers(0, 256, (256, 17), np.uint8)
    rows[:, 0] = np.arange(256)
    rows[:, 1:] = 17 * np.arange(16)  # every code
    got = formats.get("MXFP4").dequantize(rows)
    assert_same_bits(got, expected(rows, "MXFP4"))
    assert got[0, 1] == 2.0**-128 and np.isinf(got[255]).any() and not np.isnan(got).any()


def test_odd_scales_of_iq1_m() -> None:
    """Its scale lies in the upper four bits of four words."""
    rows = np.random.default_rng(3).integers(0, 256, (len(ODD_SCALES), 56), np.uint8)
    words = rows[:, 48:].view("<u2")
    words[:] = words & 0x0FFF | (ODD_SCALES[:, None] >> np.array([0, 4, 8, 12], np.uint16)) << 12
    assert_same_bits(formats.get("IQ1_M").dequantize(rows), expected(rows, "IQ1_M"))


def test_every_scale_of_nvfp4() -> None:
    rows = np.random.default_rng(3).integers(0, 256, (256, 36), np.uint8)
    rows[:, :4] = np.arange(256)[:, None]
    rows[:, 4:] = np.tile(17 * np.arange(16), 2)  # every code
    got = formats.get("NVFP4").dequantize(rows)
    assert_same_bits(got, expected(rows, "NVFP4"))
    assert got[1, 1] == 2.0**-10 and got[0x7E, 7] == 12 * 224 and not got[0x7F].any() and got[0xFF, 1] == 240


def test_what_the_gguf_package_can_read_can_be_read() -> None:
    readable = []
    for kind in GGMLQuantizationType:
        with contextlib.suppress(NotImplementedError):
            quants.dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
            readable.append(kind.name)
    assert len(readable) > 20 and set(readable) <= set(formats.FORMATS)


def test_every_half_is_exact_in_single() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    got = formats.get("F16").dequantize(halves.view(np.uint8).reshape(256, -1)).ravel()
    with np.errstate(invalid="ignore"):  # signalling NaNs
        assert np.array_equal(got.astype(np.float64), halves.view(np.float16).astype(np.float64), equal_nan=True)
    assert np.signbit(got[0x8000]) and got[1] == 2.0**-24


def test_many_groups_are_read_in_parts() -> None:
    format = formats.get("Q8_0")
    rows = np.random.default_rng(2).integers(0, 256, (3, format.row_bytes(32 * 12000)), np.uint8)
    assert_same_bits(format.dequantize(rows), expected(rows, "Q8_0"))


def test_dequantize_reads_read_only_rows() -> None:
    rows = np.zeros((2, 20), np.uint8)
    rows.flags.writeable = False
    assert formats.get("Q4_1").dequantize(rows).shape == (2, 32)


def test_unknown_format_names_those_there_are() -> None:
    with pytest.raises(UnsupportedError, match=r"Q8_K.*BF16, F16, F32, .*Q4_0"):
        formats.get("Q8_K")
