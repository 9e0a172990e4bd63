"""How a campaign drifted from round to round: each point's mean in a round over its mean over all rounds.

Worked example: a point of 10, 12 and 8 ms in three rounds has drift 1.0, 1.2 and 0.8. Profile points and judged batches
that rise and fall together leave the prediction error alone; what would have happened to a campaign that profiled in
round 0 and judged in round 2 can be read off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, median

from pytest_npubench.reports import definitions
from pytest_npubench.reports.build import line
from pytest_npubench.reports.page import Chart, Rounds, Table
from pytest_npubench.reports.plot_parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    Axis,
    DrawnFigure,
    DrawnSeries,
    Shape,
    label,
    level_axis,
)
from pytest_npubench.store.journal_reader import Journal
from pytest_npubench.verdict.case_record import LARGEST

Drift = tuple[float | None, ...]
HOVER = "round {x}: {y:.3f}"

_BUCKET_COLORS = {"profile": BLUE, "batch": ORANGE, "step": GREEN, "move": PURPLE}
_POLICY_COLORS = {"layered": BLUE, "chunked": ORANGE, "hybrid": GREEN, "continuous": PURPLE, "static": PINK}
_UNIT_COLORS = {"gpu": BLUE, "npu": ORANGE}
_OFFLOAD_COLORS = {"chunk_graphs": BLUE, "shadow": ORANGE, "replay": GREEN, "factorial": PURPLE}
_COLORS = {**_BUCKET_COLORS, **_POLICY_COLORS, **_UNIT_COLORS, **_OFFLOAD_COLORS}


def campaign_rounds(journal: Journal, campaign: str, fingerprint: str | None, sessions: Collection[str]) -> Rounds:
    """The latest run of a campaign on this fingerprint among these sessions, whichever points it had."""
    digests = [
        (record["campaign"], record["campaign_digest"])
        for record in journal.records
        if record["record"] == "round"
        and record["campaign"] == campaign
        and record["fingerprint"] == fingerprint
        and record["session"] in sessions
    ]
    if not digests or fingerprint is None:
        return ()
    return journal.rounds(*digests[-1], fingerprint, sessions=sessions)


def drifts(rounds: Rounds) -> dict[str, Drift]:
    """Point name -> one ratio a round, None where the round has no sample of it."""
    means = [
        {name: fmean(numbers) for name, values in item["points"].items() if (numbers := _reckonable(values))}
        for item in rounds
    ]
    overall: dict[str, list[float]] = defaultdict(list)
    for row in means:
        for name, mean in row.items():
            overall[name].append(mean)
    levels = {name: fmean(values) for name, values in overall.items()}
    return {
        name: tuple(row[name] / level if name in row else None for row in means)
        for name, level in levels.items()
        if level > 0
    }


def drift_chart(rounds: Rounds, note: str = definitions.DRIFT) -> Chart | None:
    """Needs two rounds; with fewer there is no drift to see. `note` says what is followed."""
    ratios = drifts(rounds)
    if len(rounds) < 2 or not ratios:
        return None
    indexes = [record["round"] for record in rounds]
    columns = [[row[index] for row in ratios.values()] for index in range(len(indexes))]
    levels = [[ratio for ratio in column if ratio is not None] for column in columns]
    middle = [median(level) if level else None for level in levels]
    medians = [ratio for ratio in middle if ratio is not None]
    lines = [_line(indexes, name, row, first=first) for name, row, first in _grouped(ratios)]
    overall = line("median of all points", indexes, middle, HOVER, color=RED, symbol="circle", width=3)
    return Chart(
        title="Drift from round to round",
        summary=f"{len(ratios)} points over {len(indexes)} rounds; the median of all points moves between "
        f"{min(medians):.3f} and {max(medians):.3f} of the overall mean.",
        notes=(note,),
        figure=DrawnFigure(
            series=(*lines, overall),
            x=Axis(title="round", ticks=tuple(indexes) if len(indexes) <= 12 else ()),
            y=level_axis("round mean / overall mean", [ratio for level in levels for ratio in level]),
        ),
        table=Table(
            caption="Drift of all points by round",
            header=("round", "points", "median", "lowest", "highest"),
            rows=tuple(_row(index, level) for index, level in zip(indexes, levels, strict=True)),
        ),
    )


def _reckonable(values: Sequence[float]) -> list[float]:
    """Keeps the values whose sums are finite too."""
    return [value for value in values if abs(value) <= LARGEST]


def _grouped(ratios: Mapping[str, Drift]) -> list[tuple[str, Drift, bool]]:
    """Points by kind, each with whether it is the first of its kind, which stands in the legend for all."""
    ordered = sorted(ratios.items(), key=lambda item: _kind(item[0]))
    kinds = [_kind(name) for name, _ in ordered]
    return [(name, row, kinds.index(kinds[place]) == place) for place, (name, row) in enumerate(ordered)]


def _line(indexes: list[int], name: str, row: Drift, *, first: bool) -> DrawnSeries:
    kind = _kind(name)
    return DrawnSeries(
        name=f"{label(kind)} points",
        shape=Shape.LINE,
        x=indexes,
        y=row,
        hover=HOVER,
        color=_COLORS.get(kind, GREY),
        width=1,
        opacity=0.6,
        in_legend=first,
        title=label(name),
    )


def _row(index: int, level: list[float]) -> tuple[str, ...]:
    if not level:
        return (str(index), "0", "–", "–", "–")
    return (str(index), str(len(level)), *(f"{value:.3f}" for value in (median(level), min(level), max(level))))


def _kind(name: str) -> str:
    return name.partition("/")[0]
