"""Memory-1: memory streams of one unit and of both, with the paper's in the table."""

from __future__ import annotations

import statistics

from pytest_npubench.extensions.pairs.suites.partition.kinds.bandwidth import BandwidthDetail
from pytest_npubench.reports.build import bars, chart, plain, ratio, table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, axis, category_axis
from pytest_npubench.reports.reported import HETERO_INFER, note, reported
from pytest_npubench.verdict.case_record import CaseRecord

MEMORY = (
    "Memory-1: bytes a second that the units read, each alone and both at once, median over the rounds; the error bars "
    "reach from the lowest to the highest round."
)
REPORTED = {"gpu alone": "gpu", "npu alone": "one", "both at once": "gpu+npu"}  # rows of the paper's Fig. 5


def memory_chart(record: CaseRecord[BandwidthDetail]) -> Chart:
    """Bytes a second of each unit alone and of both."""
    detail = record.detail
    streams = {
        "gpu alone": detail.gpu_alone_bytes_per_s,
        "npu alone": detail.npu_alone_bytes_per_s,
        "both at once": detail.together_bytes_per_s,
    }
    rates = {name: [value * 1e-9 for value in values] for name, values in streams.items()}
    middle = {name: statistics.median(values) for name, values in rates.items()}
    gain = ratio(detail.bandwidth_gain, detail.bandwidth_gain_interval)
    peaks = [f"{name} {_printed_rate(name)} GB/s" for name in ("reachable", "theoretical")]
    return chart(
        "Memory-1: bandwidth of one unit and of both",
        f"Memory bandwidth: {', '.join(f'{name} {plain(value)} GB/s' for name, value in middle.items())}.",
        (
            MEMORY,
            f"Both at once / the better unit alone: {gain}.",
            note("figure 5", *peaks, paper=HETERO_INFER),
        ),
        [
            bars(
                "GB/s",
                list(middle),
                list(middle.values()),
                "{y}: {x:.4g} GB/s",
                color=BLUE,
                ends=[(min(values), max(values)) for values in rates.values()],
            )
        ],
        (axis("GB/s", from_zero=True), category_axis(list(middle))),
        table(
            "Memory bandwidth",
            (
                ("units", lambda name: name),
                ("GB/s", lambda name: plain(middle[name])),
                ("lowest", lambda name: plain(min(rates[name]))),
                ("highest", lambda name: plain(max(rates[name]))),
                ("rounds", lambda name: str(len(rates[name]))),
                ("reported GB/s", lambda name: _printed_rate(REPORTED[name])),
            ),
            rates,
        ),
        legend=False,
    )


def _printed_rate(processors: str) -> str:
    low, high = (reported("figure 5", end, paper=HETERO_INFER, processors=processors) for end in ("low", "high"))
    return low if low == high else f"{low} to {high}"
