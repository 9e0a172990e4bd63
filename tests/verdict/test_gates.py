"""Absolute limits: passed, failed, or not known well enough to say."""

import pytest

from pytest_npubench.verdict import Gate, VerdictKind, judge_gates


@pytest.mark.parametrize(
    ("value", "interval", "kind"),
    [
        (0.138, (0.0, 0.424), VerdictKind.INCONCLUSIVE),
        (0.138, (0.099, 0.177), VerdictKind.INCONCLUSIVE),
        (0.138, (0.101, 0.175), VerdictKind.FAILED),
        (0.138, None, VerdictKind.FAILED),
        (float("nan"), (float("nan"), 0.5), VerdictKind.FAILED),
        (0.06, (0.0, 0.18), VerdictKind.INCONCLUSIVE),
        (0.06, (0.0, 0.14), VerdictKind.PASSED),
        (0.06, None, VerdictKind.PASSED),
        (0.1, (0.1, 0.1), VerdictKind.PASSED),
    ],
)
def test_an_interval_puts_a_value_in_doubt(value, interval, kind):
    """Limit 10 %: over it the interval must begin above 10 %, within it end below 15 %."""
    assert judge_gates((Gate(metric="error", value=value, limit=0.1, interval=interval),)).kind is kind


def test_what_is_in_doubt_says_its_interval_and_what_is_not_fails_all_the_same():
    doubtful = Gate(metric="prediction error", value=0.138, limit=0.1, unit="%", interval=(0.0, 0.424))
    held = Gate(metric="mean", value=0.02, limit=0.05, unit="%", interval=(0.01, 0.03))
    over = Gate(metric="steps", value=3, limit=0)
    assert judge_gates((held, doubtful)).reason == (
        "prediction error 13.80 % (95 % interval 0 % to 42.40 %), limit 10.00 %: not known well enough"
    )
    assert judge_gates((held,)).reason == "mean 2.00 % <= 5.00 % (95 % interval 1.00 % to 3.00 %)"
    failed = judge_gates((doubtful, over))
    assert (failed.kind, failed.reason) == (VerdictKind.FAILED, "steps 3 > 0")
