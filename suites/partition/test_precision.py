"""Operators in fp32, bf16 and with 4-bit weights on both units (HeteroInfer runs W4A16)."""

import pytest

pytestmark = pytest.mark.partition


@pytest.mark.npubench_cases("precision")
def test_precision(npubench_case):
    """Times of each unit alone and of both, by number format; one token on cold weights."""
    npubench_case.run()
