"""What binds a step and what tokens cost: worked numbers by hand, and no answer without peaks or a price."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_npubench.backends.telemetry.round_state import RoundState
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.core.figures import Figure
from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.suites import hardware_files
from pytest_npubench.suites.buckets.binding import CAPPED, bindings, step_work
from pytest_npubench.suites.buckets.kinds.profile import KIND
from pytest_npubench.suites.buckets.plan import BucketPlan, bucket_plans
from pytest_npubench.suites.buckets.price import PriceDetail, price_metrics, token_prices
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.verdict.result import Metric

from .conftest import HARDWARE, TBT_S, TTFT_S, cases, measured

NO_STATE = Measured()


@pytest.fixture(scope="module")
def h100() -> BucketPlan:
    spec = hardware_files.load_all(hardware_files.known_folders())["nvidia-h100"]
    (plan,) = (one for one in bucket_plans(spec, "quick") if (one.model, one.batch_size) == ("llama-3.2-1b", 8))
    return plan


def held_back(fraction: float, reason: str = "power_violation") -> Measured:
    found = Measured()
    found.watched.append(Watched(state=RoundState(duration_s=10.0, throttled_s={reason: 10.0 * fraction})))
    return found


def test_the_work_of_a_step_by_hand(h100: BucketPlan) -> None:
    """1.2358e9 weights, 0.2627e9 of them the table; 16 layers of 32 query heads of 64; 32 KiB a token kept."""
    flops, read = step_work(h100, Phase.DECODE, 1024)
    assert read == pytest.approx(2 * 1.2358e9 + 8 * 1024 * 32_768, rel=1e-3)
    assert flops == pytest.approx(8 * (2 * 1.2358e9 + 4 * 16 * 2048 * 1024), rel=1e-3)
    flops, read = step_work(h100, Phase.PREFILL, 1024)
    assert read == pytest.approx(2 * 1.2358e9, rel=1e-3)
    assert flops == pytest.approx(2 * (0.9731e9 * 1024 + 0.2627e9) + 16 * 2 * 1024**2 * 2048, rel=2e-3)


@pytest.mark.parametrize(
    ("phase", "seconds", "state", "constraint"),
    [
        (Phase.DECODE, 0.001, NO_STATE, "memory"),
        (Phase.DECODE, 0.002, NO_STATE, "launch"),
        (Phase.PREFILL, 0.0030, NO_STATE, "compute"),
        (Phase.PREFILL, 0.0080, NO_STATE, "launch"),
        (Phase.PREFILL, 0.0030, held_back(2 * CAPPED), "power cap"),
        (Phase.PREFILL, 0.0030, held_back(CAPPED / 2), "compute"),
        (Phase.PREFILL, 0.0030, held_back(0.5, "thermal_violation"), "compute"),
        (Phase.PREFILL, 0.0080, held_back(0.5), "launch"),
    ],
)
def test_what_binds(h100: BucketPlan, phase: Phase, seconds: float, state: Any, constraint: str) -> None:
    found = bindings(h100, state, 1024, {phase: seconds})
    assert found is not None
    assert found[phase.value].constraint == constraint
    larger = min(found[phase.value].of_compute, found[phase.value].of_memory)
    assert (larger > 2) == (constraint == "launch")


def test_without_peaks_nobody_knows(h100: BucketPlan) -> None:
    bare = replace(h100, spec=replace(h100.spec, peak=replace(h100.spec.peak, flops_per_s={})))
    assert bindings(bare, NO_STATE, 1024, {Phase.DECODE: 0.001}) is None


TIME = Metric(name="tbt_s", unit="s", value=1.0)
PRICE = Figure(value=1.2, unit="USD/h", source="the test's own")


def priced(plan: BucketPlan, **changes: object) -> BucketPlan:
    return replace(plan, spec=replace(plan.spec, price=PRICE, **changes))


def test_the_worked_number(plan: BucketPlan) -> None:
    found = token_prices(replace(priced(plan, tensor_parallel=4), batch_size=8), 95, ttft_s=0.095, tbt_s=0.004)
    assert found is not None
    assert (found.currency, found.output) == ("USD", pytest.approx(0.6667, abs=1e-4))
    assert found.prompt == pytest.approx(2 * found.output)  # a millisecond each, and half of one
    two_a_chip = token_prices(priced(plan, tensor_parallel=4, devices_per_chip=2), 95, ttft_s=0.095, tbt_s=0.004)
    one_row = token_prices(priced(plan, tensor_parallel=2), 95, ttft_s=0.095, tbt_s=0.004)
    assert two_a_chip == one_row


def test_a_case_says_it_beside_its_latency(plan: BucketPlan) -> None:
    case = cases(plan, "profile")[0]
    points = KIND.points(case, plan)
    judgement = KIND.judge(case, priced(plan), measured(points, plan))
    bucket, second_usd = case.axis("bucket"), 1.2 / 3600
    assert judgement.detail.price == PriceDetail(
        currency="USD",
        prompt=pytest.approx(1e6 * second_usd * TTFT_S[bucket] / points[0].requests[0].input_tokens),
        output=pytest.approx(1e6 * second_usd * TBT_S[bucket] / plan.batch_size),
    )
    metrics = {metric.name: (metric.unit, metric.gate) for metric in judgement.metrics}
    assert metrics["output_tokens_price"] == metrics["prompt_tokens_price"] == ("USD/1M", "ratio")
    values = {metric.name: metric for metric in judgement.metrics}
    of_second = second_usd * 1e6 / plan.batch_size
    assert values["output_tokens_price"].samples == pytest.approx(
        [of_second * value for value in values["tbt_s"].samples]
    )


def test_without_a_price_there_is_none(plan: BucketPlan) -> None:
    assert token_prices(plan, 95, ttft_s=0.1, tbt_s=0.1) is None
    assert price_metrics(None, TIME, TIME) == ()


def test_a_file_states_it(tmp_path) -> None:
    path = tmp_path / "device.toml"
    path.write_text(HARDWARE + '\n[price]\nvalue = 1.2\nunit = "USD/h"\nsource = "the test\'s own"\n')
    found = load_hardware(path).price
    assert found is not None
    assert (found.value, found.unit) == (1.2, "USD/h")
    path.write_text(path.read_text().replace("USD/h", "dollars"))
    with pytest.raises(HardwareFileError, match=r"price.unit: .*a currency an hour"):
        load_hardware(path)
