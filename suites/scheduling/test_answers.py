"""The engine's answers to probe prompts: those of a float64 decoder, and the same under every policy."""

import pytest

pytestmark = pytest.mark.scheduling


@pytest.mark.npubench_cases("answers")
def test_answers(npubench_case):
    """Fails where answers are farther from float64 than rounding explains, or depend on the policy."""
    npubench_case.run()
