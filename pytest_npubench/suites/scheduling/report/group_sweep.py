"""Mean TTFT and worst TBT of layered prefill by the number of layer groups, under one load."""

from __future__ import annotations

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, series_table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, ORANGE, log_axis, milliseconds, spread_axis
from pytest_npubench.reports.reported import conditions, label, reported
from pytest_npubench.suites.scheduling.kinds.group_sweep import GroupSweepDetail
from pytest_npubench.suites.scheduling.report.cells import load_name
from pytest_npubench.verdict.case_record import CaseRecord

GROUPS = (
    "Layered prefill with a fixed number of layer groups, one of which prefills in an iteration: mean TTFT of all "
    "requests, and the longest gap between two tokens of any request."
)
REPORTED = "its tail of TBT is a p99; other model, device and rate, so its direction alone can be compared"
HOVER = "{x}: {y:.4g}"


def group_chart(case: CaseRecord[GroupSweepDetail]) -> Chart:
    detail, name = case.detail, load_name(case, case.detail.rate_per_s)
    groups = detail.groups
    ttft, tbt = (list(map(number_text.milliseconds, times_s)) for times_s in (detail.ttft_mean_s, detail.worst_tbt_s))
    ttft_ms, tbt_ms = milliseconds(detail.ttft_mean_s), milliseconds(detail.worst_tbt_s)
    return chart(
        f"TTFT and TBT by layer groups, {name}",
        f"Layered prefill under {name}: mean TTFT {ttft[0]} ms and worst TBT {tbt[0]} ms with {groups[0]} layer "
        f"groups, {ttft[-1]} ms and {tbt[-1]} ms with {groups[-1]}.",
        (GROUPS, label(conditions("11"), REPORTED)),
        [
            line("mean TTFT", groups, ttft_ms, HOVER, color=BLUE, width=2),
            line("worst TBT", groups, tbt_ms, HOVER, color=ORANGE, symbol="square", width=2),
        ],
        (
            log_axis("layer groups", groups),
            spread_axis("ms", [1e3 * time_s for time_s in (*detail.ttft_mean_s, *detail.worst_tbt_s)]),
        ),
        series_table(
            f"Layer groups under {name}",
            "layer groups",
            list(map(str, groups)),
            {
                "mean TTFT ms": ttft,
                "worst TBT ms": tbt,
                "reported mean TTFT ms": [reported("11", "ttft_mean", 1e3, layer_groups=number) for number in groups],
                "reported p99 TBT ms": [reported("11", "tbt_p99", layer_groups=number) for number in groups],
            },
        ),
    )
