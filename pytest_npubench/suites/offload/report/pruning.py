"""What leaving outliers out costs in error: by the share pruned, and by hot channels that moved."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.offload.pruning import PruningOutcome
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, plain, table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import axis, percents
from pytest_npubench.reports.reported import LLM_NPU, note, reported
from pytest_npubench.suites.offload.kinds.pruning import PruningDetail
from pytest_npubench.suites.offload.report.arms import ERROR
from pytest_npubench.suites.offload.report.shadow_outlier import error_axis
from pytest_npubench.verdict.case_record import CaseRecord

PRUNED = (
    "Outliers left out, the smallest channels or the least important layers first; in the table also what is left of "
    "the other unit's work. Computed, not timed."
)
MISSED = (
    "Hot channels that moved since they were listed: error with the missed ones dropped, and with their weights "
    "fetched. Computed, not timed."
)
HOVER = "{x}: {y:.4g}"


def pruning_chart(record: CaseRecord[PruningDetail]) -> Chart:
    """Error by the share of outlier channels, and of layers, that go without a shadow."""
    rows = {"channels": record.detail.channels, "layers": record.detail.layers}
    share = reported("3.3", "share", paper=LLM_NPU, quantity="layers pruned of their outliers")
    return chart(
        "Error by what is pruned",
        f"Relative error by the share pruned: {'; '.join(_ends(name, own) for name, own in rows.items())}.",
        (PRUNED, ERROR, note("3.3", f"{share} % of layers pruned", paper=LLM_NPU)),
        [
            line(
                name,
                percents(outcome.pruned_fraction for outcome in own),
                [outcome.relative_error for outcome in own],
                HOVER,
                place=place,
            )
            for place, (name, own) in enumerate(rows.items())
        ],
        (axis("pruned, %"), axis("relative error", from_zero=True)),
        table(
            "Error by what is pruned",
            (
                ("what", lambda row: row[0]),
                ("pruned %", lambda row: number_text.percent(row[1].pruned_fraction)),
                ("shadow work left %", lambda row: number_text.percent(row[1].work_fraction)),
                ("relative error", lambda row: plain(row[1].relative_error)),
            ),
            [(name, outcome) for name, own in rows.items() for outcome in own],
        ),
    )


def miss_chart(record: CaseRecord[PruningDetail]) -> Chart:
    """Error by the share of hot channels that have moved."""
    rows = record.detail.missed
    errors = {
        "missed channels dropped": [outcome.dropped_error for outcome in rows],
        "missed channels fetched": [outcome.fetched_error for outcome in rows],
    }
    first, last = (
        f"{plain(outcome.dropped_error)} where {number_text.percent(outcome.moved_fraction)} %"
        for outcome in (rows[0], rows[-1])
    )
    shares = percents(outcome.moved_fraction for outcome in rows)
    return chart(
        "Error by hot channels that moved",
        f"Relative error with missed channels dropped: {first} moved, {last}.",
        (MISSED, ERROR),
        [line(name, shares, values, HOVER, place=place) for place, (name, values) in enumerate(errors.items())],
        (axis("moved, %"), error_axis([one for values in errors.values() for one in values])),
        table(
            "Error by hot channels that moved",
            (
                ("moved %", lambda row: number_text.percent(row.moved_fraction)),
                ("missed %", lambda row: number_text.percent(row.miss_fraction)),
                ("error, dropped", lambda row: plain(row.dropped_error)),
                ("error, fetched", lambda row: plain(row.fetched_error)),
                ("fetched kB", lambda row: plain(row.fetched_bytes * 1e-3)),
            ),
            rows,
        ),
    )


def _ends(name: str, rows: Sequence[PruningOutcome]) -> str:
    first, last = (
        f"{plain(row.relative_error)} at {number_text.percent(row.pruned_fraction)} %" for row in (rows[0], rows[-1])
    )
    return f"{name} {first}, {last}"
