"""LENS on slopes: an engine that packs its prompts and pages its cache, walked step by step, is the oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.predictors import predictor
from pytest_npubench.predictors.lens import PREDICTOR as LENS
from pytest_npubench.predictors.protocol import ProfileSamples
from pytest_npubench.predictors.ragged import Line, RaggedLens
from pytest_npubench.predictors.two_point import plan_points

BUCKETS = (128, 256, 512)
FIXED_S, PROMPT_TOKEN_S, STEP_S, KV_TOKEN_S = 0.004, 3e-5, 0.001, 2e-7


def served_s(batch: list[tuple[int, int]], batch_size: int) -> float:
    """Packed prompts share what a pass takes, of which each row has its part; a step reads what is there."""
    total_s = sum(FIXED_S / batch_size + PROMPT_TOKEN_S * prompt for prompt, _ in batch)
    for step in range(max(output for _, output in batch) - 1):
        held = [prompt + step + 1 for prompt, output in batch if step < output - 1]
        total_s += STEP_S + KV_TOKEN_S * sum(held)
    return total_s


def samples_of(batch_size: int) -> ProfileSamples:
    points = plan_points(BUCKETS)
    return ProfileSamples(
        samples_s={
            point: (served_s([(point.input_tokens, point.output_tokens)] * batch_size, batch_size),) for point in points
        },
        batch_size=batch_size,
        finished="drop",
        pads=False,
    )


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 200)), min_size=2, max_size=2))
def test_an_engine_whose_times_are_linear_is_predicted_exactly(batch: list[tuple[int, int]]) -> None:
    fitted = LENS.fit(samples_of(2))
    requests = [Request(input_tokens=prompt, output_tokens=output) for prompt, output in batch]
    assert fitted.predict(requests) == pytest.approx(served_s(batch, 2), rel=1e-9)


def test_a_staircase_is_off_there() -> None:
    """The reason for all of this: rows of very different lengths."""
    batch = [Request(input_tokens=10, output_tokens=60), Request(input_tokens=260, output_tokens=60)]
    real_s = served_s([(10, 60), (260, 60)], 2)
    stair = LENS.fit(replace(samples_of(2), pads=True)).predict(batch)
    assert stair > 1.05 * real_s
    assert LENS.fit(samples_of(2)).predict(batch) == pytest.approx(real_s, rel=1e-9)


def test_the_printed_equations_stay_a_staircase() -> None:
    batch = [Request(input_tokens=10, output_tokens=60), Request(input_tokens=260, output_tokens=60)]
    stair = predictor("lens_without_moves").fit(samples_of(2)).predict(batch)
    assert stair == LENS.fit(replace(samples_of(2), pads=True)).predict(batch)


def test_the_worked_number() -> None:
    found = RaggedLens(batch_size=2, ttft=Line((96, 224), (0.010, 0.018)), tbt=Line((112.5, 240.5), (0.002, 0.003)))
    assert found.predict_batch([(160, 1)]).prefill_s == pytest.approx(0.014)
    assert float(found.tbt.at(112.5) + found.tbt.at(240.5)) / 2 == pytest.approx(0.0025)
    alone = found.predict_batch([(239, 2), (1, 1)])  # at a KV length of 240
    assert alone.decode_s == pytest.approx((0.003 - 0.5 * 0.001 / 128 + 0.002 - 112.5 * 0.001 / 128) / 2)


def test_one_length_says_the_same_for_all() -> None:
    assert Line((100,), (0.5,)).at([1, 100, 900]).tolist() == [0.5] * 3


def test_a_line_does_not_fall_below_nothing() -> None:
    assert Line((100, 200), (0.1, 0.3)).at([0, 50, 250]).tolist() == pytest.approx([0, 0, 0.4])


def test_bad_input_is_named() -> None:
    fitted = RaggedLens.fit(samples_of(2).samples_s, 2)
    for batch in ([], [(1, 1)] * 3):
        with pytest.raises(LengthError, match="requests; the profile is of batches of 2"):
            fitted.predict_batch(batch)
    with pytest.raises(ConfigError, match="ascending"):
        Line((2, 1), (0.1, 0.2))
    with pytest.raises(ConfigError, match="want one and more"):
        Line((), ())
