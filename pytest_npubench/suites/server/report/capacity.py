"""A server that was swept: latency against throughput with the knee, and attainment by rate with the capacity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, marks, plain, table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import (
    GREEN,
    RED,
    DrawnSeries,
    axis,
    milliseconds,
    percents,
    spread_axis,
)
from pytest_npubench.suites.server.kinds.capacity import CapacityDetail
from pytest_npubench.suites.server.sweep import SweptRate
from pytest_npubench.verdict.case_record import CaseRecord

Swept = CaseRecord[CapacityDetail]
NOTE = (
    "A mark is a block of requests at one rate, lines go from the lowest rate to the highest: where the server has no "
    "more to give, latency rises and throughput does not. The knee has the most answers a second for each second of "
    "E2E. Blocks are short, so their queues are never as long as that of a service that goes on."
)
CAPACITY = (
    "The share of the arrived requests whose TTFT and every TBT keep their limits; the dotted line is what is wanted. "
    "The capacity is the rate at which a curve through all blocks crosses that line, with its 95 % interval."
)
TIMES = {"e2e_mean_s": "E2E, mean", "ttft_p99_s": "TTFT, p99", "ttft_mean_s": "TTFT, mean", "tbt_p99_s": "TBT, p99"}
HOVER = "{x:.3g} answered/s: {y:.4g} ms"


def capacity_line(case: Swept) -> str:
    """What a sweep came to, in a sentence."""
    detail, ends = case.detail, case.detail.capacity_interval
    rate = (
        "capacity unknown" if detail.capacity_per_s is None else f"capacity {plain(detail.capacity_per_s)} requests/s"
    )
    interval = f", 95 % interval {plain(ends[0])} to {plain(ends[1])}" if ends and any(ends) else ""
    return f"server under {detail.workload}: {rate}{interval}; knee at {plain(detail.knee_per_s)}: {detail.why}"


def swept_charts(detail: CapacityDetail) -> tuple[Chart, Chart]:
    """Returns latency against throughput, and attainment by rate."""
    return _throughput(detail), _attainment(detail)


def _throughput(detail: CapacityDetail) -> Chart:
    """Returns the means and percentiles of latency over the requests answered a second."""
    rates = detail.rates
    title, answered = f"Latency against throughput, {detail.workload}", [row.answered_per_s for row in rates]
    values = [value for name in TIMES for row in rates if (value := getattr(row, name))]
    return chart(
        title,
        f"Latencies under {detail.workload} at {len(rates)} rates from {rates[0].rate_per_s:.3g} to "
        f"{rates[-1].rate_per_s:.3g} requests/s: {max(answered):.3g} answered a second at the most.",
        (NOTE,),
        [
            *(
                line(name, answered, milliseconds(getattr(row, field) for row in rates), HOVER, index=index)
                for index, (field, name) in enumerate(TIMES.items())
            ),
            _mark("knee", rates, detail.knee_per_s, GREEN, "diamond-open"),
            _mark(f"{detail.wanted_fraction:.0%} attain", rates, detail.capacity_per_s, RED, "square-open"),
        ],
        (spread_axis("answered, requests/s", answered), spread_axis("latency, ms", [value * 1e3 for value in values])),
        table(
            title,
            [
                ("requests/s", lambda row: plain(row.rate_per_s)),
                ("attain, %", lambda row: number_text.percent(row.attainment)),
                ("95 % interval", lambda row: " to ".join(map(number_text.percent, row.attainment_interval))),
                ("failed", lambda row: f"{row.num_failed} of {row.num_arrived}"),
                ("answered/s", lambda row: plain(row.answered_per_s)),
                ("tokens/s", lambda row: plain(row.output_tokens_per_s)),
                *(
                    (f"{name}, ms", lambda row, field=field: number_text.milliseconds(getattr(row, field)))
                    for field, name in TIMES.items()
                ),
            ],
            rates,
        ),
    )


def _attainment(detail: CapacityDetail) -> Chart:
    """Returns the attainment at each rate with its interval, and the capacity with its own."""
    rates, wanted = detail.rates, 100 * detail.wanted_fraction
    title, (low, high) = f"SLO attainment by rate, {detail.workload}", detail.capacity_interval or (None, None)
    capacity = [] if detail.capacity_per_s is None else [detail.capacity_per_s]
    ends = [] if low is None or high is None else [(low, high)] * len(capacity)
    intervals = [(100 * least, 100 * most) for least, most in (row.attainment_interval for row in rates)]
    per_s, attained = [row.rate_per_s for row in rates], percents(row.attainment for row in rates)
    return chart(
        title,
        f"Attainment under {detail.workload}: {rates[0].attainment:.0%} at {rates[0].rate_per_s:.3g} and "
        f"{rates[-1].attainment:.0%} at {rates[-1].rate_per_s:.3g} requests/s.",
        (CAPACITY,),
        [
            line("attainment", per_s, attained, "{x:.3g} requests/s: {y:.1f} %", ends=intervals),
            marks(
                "capacity",
                capacity,
                [wanted] * len(capacity),
                "capacity {x:.3g} requests/s",
                color=RED,
                symbol="square-open",
                size=14,
                x_ends=ends,
            ),
        ],
        (spread_axis("rate, requests/s", per_s), axis("attainment, %", span=(0, 105))),
        table(
            title,
            [
                ("requests/s", lambda row: plain(row.rate_per_s)),
                ("attain, %", lambda row: number_text.percent(row.attainment)),
                ("95 % interval", lambda row: " to ".join(map(number_text.percent, row.attainment_interval))),
                ("failed", lambda row: f"{row.num_failed} of {row.num_arrived}"),
            ],
            rates,
        ),
        horizontals=(wanted,),
    )


def _mark(name: str, rates: Sequence[SweptRate], rate_per_s: float | None, color: str, symbol: str) -> DrawnSeries:
    """Returns a mark on the line of mean E2E at that rate, between the rates that were tried; none where it is not
    known."""
    seen = [row for row in rates if row.e2e_mean_s]
    x, y = (
        ([_between(seen, rate_per_s, field)] for field in ("answered_per_s", "e2e_mean_s"))
        if seen and rate_per_s is not None
        else ([], [])
    )
    return marks(name, x, [value * 1e3 for value in y], f"{name}: {HOVER}", color=color, symbol=symbol, size=14)


def _between(rows: Sequence[SweptRate], rate_per_s: float, field: str) -> float:
    """Returns a figure at a rate, linear between those on either side in the logarithm of the rate."""
    logs = np.log([row.rate_per_s for row in rows])
    return float(np.interp(np.log(rate_per_s), logs, [getattr(row, field) for row in rows]))
