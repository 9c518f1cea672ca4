"""Memory that is used again."""

from __future__ import annotations

import threading

import numpy as np

from skjaxwin import RollingJaxEstimator, models
from skjaxwin.kernels.scratch import _KEPT_BYTES, _free, scratch

DOUBLE = np.dtype(np.float64)


def test_a_buffer_is_lent_to_one_at_a_time_and_again_when_it_is_back():
    with scratch() as first:
        a = first.empty((1000, 3), DOUBLE)
        with scratch() as second:
            b = second.empty((1000, 3), DOUBLE)
            c = first.empty((1000, 3), DOUBLE)
            assert not any(np.shares_memory(*pair) for pair in ((a, b), (a, c), (b, c)))
            assert b.ctypes.data % 64 == 0
    with scratch() as third:
        assert any(np.shares_memory(third.empty((1000, 3), DOUBLE), old) for old in (a, b, c))
        assert third.empty((10,), DOUBLE).shape == (10,)


def test_what_is_kept_is_bounded():
    with scratch() as buffers:
        for _ in range(5):
            buffers.empty((_KEPT_BYTES // 4,), np.dtype(np.uint8))
        buffers.empty((2 * _KEPT_BYTES,), np.dtype(np.uint8))
    assert sum(buffer.nbytes for buffer in _free) <= _KEPT_BYTES


def test_fits_at_the_same_time_do_not_share_buffers():
    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(20_000, 2)), rng.normal(size=20_000)) for _ in range(4)]
    alone = [RollingJaxEstimator(models.Linear(), window=100).fit(X, y).params_["coef"] for X, y in data]
    found: list = [None] * 4

    def fit(i):
        for _ in range(3):
            found[i] = RollingJaxEstimator(models.Linear(), window=100).fit(*data[i]).params_["coef"]

    threads = [threading.Thread(target=fit, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, its in zip(found, alone, strict=True):
        np.testing.assert_array_equal(mine, its)
