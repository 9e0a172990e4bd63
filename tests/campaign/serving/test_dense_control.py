"""The dense control fails where layered prefill is proven to win, and says so where it is ahead without a proof."""

import json
from dataclasses import asdict

import pytest

from pytest_npubench.suites.scheduling.kinds import dense_control
from pytest_npubench.verdict import VerdictKind

from .conftest import serving_plan


@pytest.fixture
def judged(measure, monkeypatch):
    """The case's judgement with these ratios of mean TTFT, a block each."""

    def judge(*ratios):
        monkeypatch.setattr(dense_control, "paired_ratios", lambda layered, chunked, figure: ratios)
        plan = serving_plan("qwen3-8b", num_requests=2)
        kind, (case,), measured = measure(plan, "dense_control")
        return kind.judge(case, plan, measured)

    return judge


def test_a_proven_win_of_layered_prefill_fails(judged):
    """t(0.975, 2) = 4.303: logs of mean -0.2231 and a standard error of 0.0144 reach up to -0.161, a ratio of 0.851."""
    judgement = judged(0.78, 0.80, 0.82)
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert judgement.detail.ttft_ratio_interval == pytest.approx((0.752, 0.851), abs=1e-3)
    assert "0.800 (0.752 to 0.851), 1 req/s" in judgement.what


def test_a_lead_that_may_be_chance_passes_and_is_told(judged):
    judgement = judged(0.5, 1.0, 1.024)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert "0.800 (" in judgement.what
    assert "layered ahead by 20 %, not proven" in judgement.what


@pytest.mark.parametrize("ratios", [(1.2, 1.3), (1.1, 1.1, 1.1)])
def test_where_layered_prefill_is_slower_it_passes(judged, ratios):
    judgement = judged(*ratios)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert "ahead" not in judgement.what
    assert judgement.detail.tokens_per_iteration == 512


def test_one_block_proves_nothing_and_can_be_written_down(judged):
    judgement = judged(0.1)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.detail.ttft_ratio_interval is None
    json.dumps(asdict(judgement.detail), allow_nan=False)
