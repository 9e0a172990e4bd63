"""What a million tokens of a bucket cost, by the price of a chip's hour in the hardware file.

    price of 1M = seconds of a token x chips x price of a chip's second x 1,000,000
    prompt token    TTFT_b / l       l the tokens of a profile point's prompt; over N where a batch has one prefill
    output token    TBT_b / N

A bucket that is full, and a device that does nothing else: the least that they cost. Prices are judged as the times
are that they are made of, sample by sample.

Worked number: four chips at 1.20 USD an hour, 8 rows, TBT 4 ms: 0.5 ms x 4 x 0.000333 USD x 1M = 0.667 USD.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.profile_detail import PriceDetail
from pytest_npubench.verdict.result import Metric

MILLION = 1_000_000


def token_prices(plan: BucketPlan, input_tokens: int, *, ttft_s: float, tbt_s: float) -> PriceDetail | None:
    """Prices tokens; None where the hardware file states no price."""
    price = plan.spec.price
    if price is None:
        return None
    num_chips = plan.spec.tensor_parallel / plan.spec.devices_per_chip
    million_s = MILLION * num_chips * price.value / 3600
    prefill_s = ttft_s / plan.batch_size if plan.service.prefill_shared else ttft_s
    return PriceDetail(
        currency=price.unit.removesuffix("/h"),
        prompt=prefill_s / input_tokens * million_s,
        output=tbt_s / plan.batch_size * million_s,
    )


def price_metrics(detail: PriceDetail | None, ttft: Metric, tbt: Metric) -> tuple[Metric, ...]:
    if detail is None:
        return ()
    prices = (("prompt", detail.prompt, ttft), ("output", detail.output, tbt))
    return tuple(_priced(time, f"{name}_tokens_price", f"{detail.currency}/1M", price) for name, price, time in prices)


def _priced(time: Metric, name: str, unit: str, price: float) -> Metric:
    of_second = price / time.value if time.value else 0.0
    return replace(time, name=name, unit=unit, value=price, samples=tuple(of_second * value for value in time.samples))
