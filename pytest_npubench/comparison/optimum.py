"""Does the best choice move between two stacks? Cases that time several choices have the throughput of each,
relative to all (stats.ranking.relative_throughputs).

Worked example: batch 4 at 1.10 and batch 8 at 0.95 before, 0.98 and 1.06 after: the best was batch 4 and is batch 8;
settled where either moved by more than chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_npubench.comparison.outcome import MOVED, Row
from pytest_npubench.stats.ranking import RELATIVE_THROUGHPUT


def moved_optima(rows: Iterable[Row]) -> tuple[str, ...]:
    """A sentence for each case whose best choice is another one."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        if row.definition.metric.startswith(f"{RELATIVE_THROUGHPUT}/") and None not in (row.before, row.after):
            by_case.setdefault(row.definition.case, []).append(row)
    return tuple(text for case, found in by_case.items() if (text := _moved(case, found)))


def _moved(case: str, rows: Sequence[Row]) -> str:
    was, now = max(rows, key=lambda row: row.before or 0.0), max(rows, key=lambda row: row.after or 0.0)
    if was is now:
        return ""
    settled = was.kind in MOVED or now.kind in MOVED
    chance = "" if settled else ", though neither moved by more than chance"
    return f"{case}: the best choice was {_choice(was)} and is {_choice(now)}{chance}"


def _choice(row: Row) -> str:
    return row.definition.metric.removeprefix(f"{RELATIVE_THROUGHPUT}/")
