"""The settings of a search as a page: what each costs over the rate that it carries, and those that nothing beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.reports.build import chart, line, marks, table
from pytest_npubench.reports.html import command_page
from pytest_npubench.reports.number_text import plain
from pytest_npubench.reports.plot_parts import BLUE, GREY, axis

MOST_MARKS = 1000
PARETO = "Nothing that is cheaper an hour carries as much: the line goes through those settings."


def search_page(rows: Sequence[Mapping[str, Any]], num_settings: int, sought: str, doubts: Sequence[str] = ()) -> str:
    """rows as `npubench search --json` prints them: the best of so many settings. sought: which is the best of them.
    doubts: of all of them, in words."""
    carried = sorted(rows, key=lambda row: (row["price"], row["name"]))
    best: list[Mapping[str, Any]] = []
    for row in sorted(carried, key=lambda row: (row["price"], -row["rate_per_s"])):
        if not best or row["rate_per_s"] > best[-1]["rate_per_s"]:
            best.append(row)
    others = [row for row in carried if row not in best][:MOST_MARKS]
    series = [
        marks(
            "others", _of(others, "price"), _of(others, "rate_per_s"), "{y:g}/s for {x:g} an hour", color=GREY, size=6
        ),
        line("best at its price", _of(best, "price"), _of(best, "rate_per_s"), "{y:g}/s for {x:g} an hour", color=BLUE),
    ]
    shown = table(
        "Best at their price",
        (
            ("setting", lambda row: row["name"]),
            ("carries, requests/s", lambda row: f"{row['rate_per_s']:g}"),
            ("price an hour", lambda row: f"{row['price']:g}"),
            ("1000 requests", lambda row: plain(row["cost"])),
        ),
        best,
    )
    picture = chart(
        "Rate over price",
        f"{len(carried)} of {num_settings} settings; all keep the SLO, {len(best)} are the best at their price.",
        (PARETO,),
        series,
        (axis("price an hour", from_zero=True), axis("requests/s", from_zero=True)),
        shown,
    )
    facts = [
        ("kept", f"the best {len(carried)} of {num_settings} settings keep the SLO"),
        ("clock", "virtual: no device ran"),
        *(("doubt", words) for words in doubts),
    ]
    charts, tables = ([picture], [shown]) if carried else ([], [])
    return command_page("npubench search", sought, facts, "Rates and prices", charts, tables)


def _of(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows]
