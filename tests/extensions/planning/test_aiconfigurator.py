"""NVIDIA's measured operators as a rival: what it refuses, and its own figures against a roofline and its whole runs.

The figures are read where aiconfigurator-core is installed (`make preflight` has an environment with it).
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest

from pytest_npubench.core.measurement import Request
from pytest_npubench.engines.model_directory import config_of
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.rivals import aiconfigurator
from pytest_npubench.predictors import predictor
from pytest_npubench.predictors.protocol import ModelRun, ProfileSamples
from pytest_npubench.predictors.two_point import plan_points

MODEL, BATCH_SIZE, BUCKETS = dense_shape("mistral-7b-v0.3"), 8, (128, 1024, 4096)
RUN = ModelRun(config=config_of(MODEL, "bf16"), dtype="bf16", system="h100_sxm", num_devices=1)
H100_FLOPS, H100_BYTES = 989.4e12, 3.35e12
NUM_WEIGHTS = 7.25e9
installed = pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed")


def samples(run: ModelRun | None = RUN, measured_s: float = 1.0) -> ProfileSamples:
    points = plan_points(BUCKETS, output_tokens=9)
    return ProfileSamples(samples_s=dict.fromkeys(points, (measured_s,)), batch_size=BATCH_SIZE, run=run)


def test_its_cost_is_nothing_and_its_figures_are_said_to_be_of_elsewhere() -> None:
    cost = predictor("aiconfigurator").cost(samples())
    assert (cost.binaries, cost.points, cost.total_s) == (0, 0, 0.0)
    assert predictor("aiconfigurator").basis == "from NVIDIA's measurements, nothing of this device"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (samples(None), "unavailable: a journal does not say what model"),
        (replace(samples(None), why_no_run="nobody knows"), "unavailable: nobody knows$"),
        (samples(replace(RUN, dtype="fp8")), "unavailable: it is asked for bf16 alone, and this is fp8"),
    ],
)
def test_it_says_why_it_has_none(given: ProfileSamples, why: str) -> None:
    with pytest.raises(MeasurementError, match=f"^{why}"):
        predictor("aiconfigurator").fit(given)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'aiconfigurator_core'")

    monkeypatch.setattr(aiconfigurator, "_model", absent)
    with pytest.raises(MeasurementError, match=r"^unavailable: No module .*pip install 'pytest-npubench\[aiconf"):
        predictor("aiconfigurator").fit(samples())


@installed
@pytest.mark.parametrize(
    "run",
    [replace(RUN, system="h1000"), replace(RUN, num_devices=3), replace(RUN, config={}), replace(RUN, system="l4")],
)
def test_what_nvidia_did_not_measure_is_unavailable(run: ModelRun) -> None:
    with pytest.raises(MeasurementError, match=rf"^unavailable: aiconfigurator has none of {run.system}: \S+"):
        predictor("aiconfigurator").fit(samples(run))


@installed
@pytest.mark.parametrize("measured_s", [1e-6, 1e6])
def test_a_prompt_and_a_step_take_what_the_chip_must_and_not_twice_that(measured_s: float) -> None:
    """Whatever was measured here. Products alone are 2 flops a weight and token; a step reads all weights."""
    timings = predictor("aiconfigurator").fit(samples(measured_s=measured_s)).lens.profile.buckets
    for bucket, timing in timings.items():
        least_s = max(2 * NUM_WEIGHTS * bucket / H100_FLOPS, 2 * NUM_WEIGHTS / H100_BYTES)
        assert least_s < timing.ttft_s < 2 * least_s
        assert 2 * NUM_WEIGHTS / H100_BYTES < timing.tbt_s < 2 * 2 * NUM_WEIGHTS / H100_BYTES
    ttfts, tbts = zip(*((timing.ttft_s, timing.tbt_s) for timing in timings.values()), strict=True)
    assert list(ttfts) == sorted(ttfts)
    assert list(tbts) == sorted(tbts)


@installed
def test_a_batch_in_one_bucket_takes_what_its_own_whole_run_says() -> None:
    """aiconfigurator's static run of 8 prompts of 1,008 and 16 tokens each, which it prefills at once."""
    model = aiconfigurator._model(json.dumps(RUN.config), RUN.system, 1)
    prefill_ms, decode_ms, _ = model.run_static(batch_size=BATCH_SIZE, isl=1008, osl=16, stride=1)
    batch = [Request(input_tokens=1008, output_tokens=16)] * BATCH_SIZE
    together = predictor("aiconfigurator").fit(replace(samples(), prefill_shared=True))
    assert together.predict(batch) == pytest.approx((prefill_ms + decode_ms) / 1e3, rel=0.05)
    one_by_one = predictor("aiconfigurator").fit(samples())
    assert one_by_one.predict(batch) == pytest.approx(together.predict(batch), rel=0.1)
