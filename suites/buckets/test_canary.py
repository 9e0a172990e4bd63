"""Canary kernels: a matrix product, a copy and an empty launch, beside everything else that is measured."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("canary")
def test_canary(npubench_case):
    """Passes once measured; `npubench compare` tells by it whether a device or a suite became slower."""
    npubench_case.run()
