"""Both ways of scanning a vocabulary: plain, and the compiled kernels of this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from edgellm import paths
from edgellm.kernels.cpu import objects
from edgellm.kernels.cpu.vocabulary import KERNELS, CpuVocabulary
from edgellm.kernels.vocabulary import Vocabulary


@functools.cache
def get_kernels() -> dict[str, int]:
    return objects.addresses(KERNELS, objects.choose_level().level, paths.home() / "kernels")


@pytest.fixture(params=["plain", "compiled"])
def make_vocabulary(request: pytest.FixtureRequest) -> Callable[[int], Vocabulary]:
    """A maker of scans for rows of some length."""
    if request.param == "plain":
        return lambda size: Vocabulary()
    return lambda size: CpuVocabulary(get_kernels(), size)
