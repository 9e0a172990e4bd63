"""The engine's answers to fixed prompts: beside float64, beside each other, and beside the accepted ones."""

import pytest

pytestmark = pytest.mark.buckets


@pytest.mark.npubench_cases("answers")
def test_answers(npubench_case):
    """Fails where answers are farther from float64 than rounding explains, or pairs of the same meaning disagree."""
    npubench_case.run()
