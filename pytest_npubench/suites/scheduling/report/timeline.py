"""How many tokens one request had at each time, under layered and under chunked prefill."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, series_table, stairs
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, ORANGE, DrawnSeries, axis, milliseconds
from pytest_npubench.suites.scheduling.kinds.timeline import TimelineDetail
from pytest_npubench.suites.scheduling.report.cells import load_name
from pytest_npubench.verdict.case_record import CaseRecord

TIMELINE = (
    "The request with the median end-to-end time under chunked prefill in the first block; each step up is a token."
)
REPORTED = (
    "reported (Layered Prefill, Fig. 5: Qwen3-30B-A3B, arXiv at 1.3 req/s): mean end-to-end time 9.4 s chunked, 5.5 s "
    "layered."
)


def timeline_chart(case: CaseRecord[TimelineDetail]) -> Chart:
    layered_s, chunked_s = case.detail.layered_s, case.detail.chunked_s
    name, num_tokens = load_name(case, case.detail.rate_per_s), max(len(layered_s), len(chunked_s))
    return chart(
        f"Tokens of one request over time, {name}",
        f"The last token of one request under {name} came after {number_text.milliseconds(layered_s[-1])} ms "
        f"with layered and {number_text.milliseconds(chunked_s[-1])} ms with chunked prefill.",
        (TIMELINE, REPORTED),
        [_steps("layered", layered_s, BLUE, ""), _steps("chunked", chunked_s, ORANGE, "dash")],
        (axis("ms since arrival", from_zero=True), axis("tokens so far", from_zero=True)),
        series_table(
            f"When each token came, {name}",
            "token",
            [f"{index + 1}" for index in range(num_tokens)],
            {"layered ms": _cells(layered_s, num_tokens), "chunked ms": _cells(chunked_s, num_tokens)},
        ),
    )


def _steps(policy: str, times_s: Sequence[float], color: str, dash: str) -> DrawnSeries:
    """Flat until the next token comes, then up by one."""
    at_ms, hover = milliseconds((0.0, *times_s)), "token {y} at {x:.4g} ms"
    return stairs(policy, at_ms, range(len(times_s) + 1), hover, color=color, dash=dash)


def _cells(times_s: Sequence[float], number: int) -> list[str]:
    return [*map(number_text.milliseconds, times_s), *[number_text.UNKNOWN] * (number - len(times_s))]
