"""How a matrix is cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest

from edgellm.kernels.cpu.lower import share_rows


@pytest.mark.parametrize("taper", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize(("least", "most"), [(1, 16), (3, 8), (6, 90), (5, 5)])
def test_chunks_cover_every_row_group_once(threads: int, least: int, most: int, taper: bool) -> None:
    for groups in (1, 2, 3, 7, 24, 192, 6144):
        bounds = share_rows(groups, threads, least, most, taper)
        sizes = np.diff(bounds)
        assert bounds[0] == 0 and bounds[-1] == groups
        assert (sizes > 0).all() and (sizes <= most).all()
        assert (sizes[:-1] >= min(least, groups)).all()


def test_chunks_shrink_towards_the_end_so_that_threads_finish_together() -> None:
    assert np.diff(share_rows(192, 2, 6, 90, taper=True)).tolist() == [48, 48, 24, 24, 12, 12, 6, 6, 6, 6]


def test_a_matrix_that_others_follow_is_not_cut_small() -> None:
    assert np.diff(share_rows(192, 2, 6, 300, taper=False)).tolist() == [96, 96]
