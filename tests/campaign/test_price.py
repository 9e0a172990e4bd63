"""What tokens cost: the worked number by hand, and nothing without a price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_npubench.core.figures import Figure
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.suites.buckets.kinds.profile import KIND
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.price import PriceDetail, price_metrics, token_prices
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.verdict.result import Metric

from .conftest import HARDWARE, TBT_S, TTFT_S, cases, measured

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
