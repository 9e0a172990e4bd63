"""Orders of subgraphs: simulated bubbles, replayed on the pair, and replayed while something else takes its time."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.extensions.pairs.offload.factorial import OUT_OF_ORDER
from pytest_npubench.extensions.pairs.offload.out_of_order import OrderOutcome
from pytest_npubench.extensions.pairs.offload.summaries import ReplayRow
from pytest_npubench.extensions.pairs.pair_rounds import other_device
from pytest_npubench.extensions.pairs.suites.offload.kinds.contention import ContentionDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.out_of_order import OutOfOrderDetail
from pytest_npubench.extensions.pairs.suites.offload.report.arms import by_arm, over, settings_of
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import NO_BREAK, series_table, table
from pytest_npubench.reports.page import Table
from pytest_npubench.verdict.case_record import CaseRecord

SIMULATED = (
    "Orders of subgraphs in simulated time, durations as in docs/offload.md: the static unit's idle share, and in "
    "parentheses the time over FIFO's."
)
REPLAYED = (
    "The same orders on the pair: each unit takes what is ready by the order's rule. Ratios to FIFO are medians of the "
    "rounds' own; an interval needs 6 rounds. Predicted is the order simulated with durations measured before."
)
CONTENTION = (
    "The orders again with nothing else, with random stalls of the units, and beside a process that moves memory all "
    "the time. Below 1 an order beats FIFO under the same disturbance."
)


def simulated_table(record: CaseRecord[OutOfOrderDetail]) -> Table:
    """The static unit's idle share under each order, by the number of chunks."""
    detail = record.detail
    policies = list(dict.fromkeys(outcome.policy for outcome in detail.simulated))
    found: dict[int, dict[str, str]] = {}
    for outcome in detail.simulated:
        found.setdefault(outcome.num_chunks, {})[outcome.policy] = _bubble(outcome)
    return series_table(
        "Orders, simulated: bubbles",
        "order",
        policies,
        {
            f"{number_text.count(count)} chunks, bubble %": [own.get(name, number_text.UNKNOWN) for name in policies]
            for count, own in found.items()
        },
        note=f"{SIMULATED} Reported ({detail.published}): printed there, not measured here and compared with nothing.",
    )


def replayed_table(record: CaseRecord[OutOfOrderDetail]) -> Table:
    """The same orders on the pair, undisturbed."""
    return table(
        "Orders, replayed on the pair",
        (
            ("order", lambda row: row.arm),
            ("ms", lambda row: number_text.milliseconds(row.total_s)),
            ("over FIFO", over),
            ("bubble %", lambda row: number_text.percent(row.bubble_fraction)),
            ("predicted ms", lambda row: number_text.milliseconds(row.predicted_s)),
        ),
        record.detail.arms,
        note=REPLAYED,
    )


def contention_table(record: CaseRecord[ContentionDetail]) -> Table:
    """Time over FIFO by what else takes the units or the memory."""
    arms = by_arm(record.detail.arms)
    series: dict[str, list[str]] = {}
    for setting in settings_of(arms):
        rows = [own.get(setting) for own in arms.values()]
        series[f"{setting}, ms"] = [number_text.milliseconds(row.total_s if row else None) for row in rows]
        series[f"{setting}, over FIFO"] = [over(row) if row else number_text.UNKNOWN for row in rows]
    return series_table("Orders under contention", "order", list(arms), series, note=CONTENTION)


def order_line(record: CaseRecord[ContentionDetail] | CaseRecord[OutOfOrderDetail]) -> str:
    """ "offload: C / FIFO 0.93 calm, 0.95 stalls, 1.02 hog"; empty where C was not among the orders."""
    arms: Sequence[ReplayRow] = record.detail.arms
    shown = [f"{row.over:.3g} {row.setting}" for row in arms if row.arm == OUT_OF_ORDER and row.over is not None]
    device = other_device(record)
    return f"offload: C / FIFO {', '.join(shown)}{f' ({device})' if device else ''}" if shown else ""


def _bubble(outcome: OrderOutcome) -> str:
    return f"{number_text.percent(outcome.bubble_fraction)} ({outcome.over_fifo:.3g}{NO_BREAK}x)"
