"""Rivals that add up parts, on a device whose parts are known: exact where it is their sum, and no case's matter."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from pytest_npubench.campaign.protocol import campaign_digest
from pytest_npubench.core.measurement import Phase
from pytest_npubench.core.parts import OPERATORS
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.suites.buckets.kinds.prediction import KIND
from pytest_npubench.suites.buckets.service import BucketService

from .conftest import TBT_S, TTFT_S, cases, measured, seconds

RIVALS = ("kernel_sum", "layer_sum", "operator_sum", "operator_sum_e2e")
LAYERS = dense_shape("tiny-llama").num_layers
BESIDE_SHARE = 0.3  # of a step is what no layer does


@pytest.fixture
def asked(plan):
    return replace(plan, rivals=RIVALS)


def operator_s(operator, phase, bucket):
    """Of its own for each; the same for all buckets where no length enters."""
    number = OPERATORS.index(operator) + 1
    if phase is Phase.PREFILL:
        return 1e-4 * number * (1 if operator == "head" else bucket)
    return 1e-5 * number * (bucket if operator == "attend" else 7)


def part_s(point):
    part = point.part
    if part.operator:
        return operator_s(part.operator, part.phase, part.bucket)
    return {Phase.PREFILL: TTFT_S, Phase.DECODE: TBT_S}[part.phase][part.bucket]


def run(asked, without=""):
    """Rounds without noise: an engine of n layers takes the share of n layers. `without`: points that failed."""
    (case,) = (one for one in cases(asked, "prediction") if one.axis("workload") == "long")
    points = KIND.points(case, asked)
    own = measured(points, asked)
    for row in own.rounds:
        for point in points:
            if point.part:
                row[point.name] = (part_s(point),)
            elif point.variant:
                share = BESIDE_SHARE + (1 - BESIDE_SHARE) * point.variant.num_layers / LAYERS
                row[point.name] = (share * seconds(point, asked.buckets),)
    lost = {point.name: "lost: out of memory" for point in points if without and without in point.name}
    own.rounds[:] = [{name: row[name] for name in row if name not in lost} for row in own.rounds]
    own.failures.update(lost)
    return KIND.judge(case, asked, own), points


def test_layers_and_kernels_that_add_up_predict_exactly(asked):
    judgement, _ = run(asked)
    truth = [seconds(batch, asked.buckets) for batch in asked.draws("long")]
    for name in ("layer_sum", "kernel_sum"):
        assert judgement.detail.predictors[name].predicted_s == pytest.approx(truth)
    assert judgement.detail.predictors["layer_sum"].cost.points == 2 * 6
    assert judgement.detail.predictors["kernel_sum"].cost.points == 6


def test_operators_are_interpolated_and_added_up_over_every_step(asked):
    def line(phase, operator, tokens):
        low, high = (16, 32) if tokens <= 32 else (32, 64)
        ends = operator_s(operator, phase, low), operator_s(operator, phase, high)
        inside = min(max(tokens, 16), 64)
        return ends[0] + (ends[1] - ends[0]) * (inside - low) / (high - low)

    def step(phase, tokens):
        # a sum of lines is a line, so each operator can be asked by itself
        return sum(line(phase, one, tokens) * (1 if one in ("embed", "head") else LAYERS) for one in OPERATORS)

    expected = []
    for batch in asked.draws("long"):
        total = sum(step(Phase.PREFILL, one.input_tokens) for one in batch.requests)
        for index in range(max(one.output_tokens for one in batch.requests) - 1):
            held = [one.input_tokens + index + 1 for one in batch.requests if index < one.output_tokens - 1]
            total += step(Phase.DECODE, fmean(held))
        expected.append(total)
    found = run(asked)[0].detail.predictors["operator_sum"]
    assert found.predicted_s == pytest.approx(expected)
    assert found.cost.points == 3 * 5 + 1 + 5 + 3, "what no length changes is timed once"


def test_one_correction_makes_the_bucket_that_it_comes_from_exact(asked):
    """The middle bucket's own two points, whatever operators say."""
    from pytest_npubench.predictors import predictor
    from pytest_npubench.suites.buckets.profile_samples import profile_samples

    (case,) = (one for one in cases(asked, "prediction") if one.axis("workload") == "long")
    points = KIND.points(case, asked)
    own = measured(points, asked)
    for row in own.rounds:
        row.update({point.name: (part_s(point),) for point in points if point.part})
    fitted = predictor("operator_sum_e2e").fit(profile_samples(asked, own, asked.buckets))
    for one in asked.profile_points((32,)):
        point = asked.profile_point(one)
        assert fitted.predict(point.requests) == pytest.approx(seconds(point, asked.buckets))


def test_the_points_of_rivals_are_no_part_of_the_campaign_s_digest(plan, asked):
    (case,) = (one for one in cases(plan, "prediction") if one.axis("workload") == "long")
    alone, beside = KIND.points(case, plan), KIND.points(case, asked)
    assert set(alone) < set(beside)
    assert campaign_digest(plan, alone) == campaign_digest(asked, beside)


@pytest.mark.parametrize(
    ("without", "lost"),
    [
        ("layers2/profile/32/1", {"layer_sum"}),
        ("part/kernels", {"kernel_sum"}),
        ("part/attend/decode/64", {"operator_sum", "operator_sum_e2e"}),
    ],
)
def test_a_part_that_fails_is_its_rival_s_matter_alone(plan, asked, without, lost):
    judgement, _ = run(asked, without)
    said = judgement.detail.predictors
    assert {name for name in said if said[name].reason} == lost
    assert {said[name].reason for name in lost} == {"lost: out of memory"}
    alone = run(plan)[0]
    assert (judgement.verdict, judgement.metrics) == (alone.verdict, alone.metrics)


def test_an_engine_without_parts_says_so(asked, monkeypatch):
    monkeypatch.setattr(type(asked.service), "compares_engines", False)
    assert isinstance(asked.service, BucketService)
    judgement, points = run(asked)
    assert not any(point.variant for point in points)
    assert "unavailable" in judgement.detail.predictors["layer_sum"].reason
    assert judgement.detail.predictors["kernel_sum"].reason is None
