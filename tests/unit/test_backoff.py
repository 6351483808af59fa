"""Backoff: delays after repeated failures."""

import pytest

from packtrain.backoff import Backoff


@pytest.mark.parametrize(
    ("n_failures", "expected_s"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (5, 3.0), (10**6, 3.0)]
)
def test_delays_double_up_to_the_maximum(n_failures, expected_s):
    assert Backoff(initial_s=0.5, max_s=3.0).delay_s(n_failures) == expected_s


def test_factor():
    assert [Backoff(initial_s=60, max_s=1e9, factor=4).delay_s(n) for n in (1, 2, 3)] == [60, 240, 960]
