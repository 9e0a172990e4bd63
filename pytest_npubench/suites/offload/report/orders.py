"""Orders of subgraphs: simulated bubbles, replayed on the pair, and replayed while something else takes its time."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.pair_cells import NO_BREAK, entries, milliseconds, of_kind, percent, ratio
from pytest_npubench.reports.record_fields import Record, number, numbers, table, text
from pytest_npubench.suites.offload.report import notes as offload_notes
from pytest_npubench.suites.offload.report.charts import by_arm, settings_of


def order_tables(records: Sequence[Record]) -> list[Table]:
    """Those that there are cases for."""
    orders = of_kind(records, "out_of_order")
    tables = (
        *(simulated_table(record) for record in orders),
        *(replayed_table(record) for record in orders),
        *map(contention_table, of_kind(records, "contention")),
    )
    return [made for made in tables if made is not None]


def simulated_table(record: Record) -> Table | None:
    """The static unit's idle share under each order, by the number of chunks."""
    rows = entries(table(record, "detail"), "simulated")
    chunks = list(dict.fromkeys(number_text.count(number(row, "num_chunks")) for row in rows))
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        own = found.setdefault(text(row, "policy") or "an order", {})
        own[number_text.count(number(row, "num_chunks"))] = _bubble(row)
    if not found:
        return None
    printed = text(table(record, "detail"), "published")
    theirs = f" Reported ({printed}): printed there, not measured here and compared with nothing." if printed else ""
    return Table(
        caption="Orders, simulated: bubbles",
        note=f"{offload_notes.SIMULATED}{theirs}",
        header=("order", *(f"{count} chunks, bubble %" for count in chunks)),
        rows=tuple(
            (policy, *(own.get(count, number_text.UNKNOWN) for count in chunks)) for policy, own in found.items()
        ),
    )


def replayed_table(record: Record) -> Table | None:
    """The same orders on the pair, undisturbed."""
    rows = entries(table(record, "detail"), "arms")
    if not rows:
        return None
    return Table(
        caption="Orders, replayed on the pair",
        note=offload_notes.REPLAYED,
        header=("order", "ms", "over FIFO", "bubble %", "predicted ms"),
        rows=tuple(
            (
                text(row, "arm") or "an order",
                milliseconds(row, "total_s"),
                _over(row),
                percent(row, "bubble_fraction"),
                milliseconds(row, "predicted_s"),
            )
            for row in rows
        ),
    )


def contention_table(record: Record) -> Table | None:
    """Time over FIFO by what else takes the units or the memory."""
    arms = by_arm(table(record, "detail"))
    settings = settings_of(arms)
    if not settings:
        return None
    return Table(
        caption="Orders under contention",
        note=offload_notes.CONTENTION,
        header=("order", *(head for setting in settings for head in (f"{setting}, ms", f"{setting}, over FIFO"))),
        rows=tuple(
            (
                arm,
                *(
                    cell
                    for setting in settings
                    for cell in (milliseconds(rows.get(setting, {}), "total_s"), _over(rows.get(setting, {})))
                ),
            )
            for arm, rows in arms.items()
        ),
    )


def _over(row: Record) -> str:
    return ratio(number(row, "over"), numbers(row, "over_interval"))


def _bubble(row: Record) -> str:
    over = number(row, "over_fifo")
    shown = percent(row, "bubble_fraction")
    return shown if over is None else f"{shown} ({over:.3g}{NO_BREAK}x)"
