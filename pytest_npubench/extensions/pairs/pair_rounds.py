"""What reports on pairs of units share: rounds with one figure a point for the chart of their drift, lanes, devices.

Worked example: "1024x1024x8/npu0:1024x0:8/8/total_s" is the point "npu/1024x1024x8 as 0:8/8", and
"shadow/clip/8 outliers/total_s" is "shadow/clip/8 outliers". Splits over both units are left out: one that waits for
the other says less of the machine than each alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_npubench.campaign.visits import Round, columns_of
from pytest_npubench.reports.lanes import Lane, in_turn
from pytest_npubench.reports.page import Rounds
from pytest_npubench.verdict.case_record import CaseRecord

TIME = "/total_s"
UNITS = ("gpu", "npu")
ALONE = re.compile(r"(\d+x\d+x\d+)/(gpu|npu)\d+:\d+x([^+]*?)/total_s")
OFFLOADED = re.compile(r"(?:chunk_graphs|shadow|replay|factorial)/.+/total_s")


def other_device(record: CaseRecord[Any]) -> str:
    """Returns the device, where it is not the first of its family."""
    return "" if record.device.endswith(":0") else record.device


def pair_rounds(rounds: Rounds) -> Rounds:
    """Rounds of one index become one, whichever campaign they are of; points have seconds only."""
    merged: dict[int, dict[str, Sequence[float]]] = {}
    for record in rounds:
        merged.setdefault(record["round"], {}).update(_points(record["points"]))
    return tuple({"round": index, "points": merged[index]} for index in sorted(merged))


def _points(columns: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    named = ((_shown(column), values) for column, values in columns.items() if column.endswith(TIME))
    return {name: values for name, values in named if name}


def _shown(column: str) -> str:
    """Returns the unit first, which gives the line its colour; empty for what is not followed."""
    alone = ALONE.fullmatch(column)
    if alone is not None:
        shape, unit, tokens = alone.groups()
        return "" if tokens.endswith("/online") else f"{unit}/{shape} as {tokens}"
    return column.removesuffix(TIME) if OFFLOADED.fullmatch(column) else ""


def pair_lanes(points: Round) -> Iterator[Lane]:
    """Yields a lane of a trace for every point that was timed as a whole: its visits in turn, under each the time that
    a unit took for its part. A part is drawn from its visit's start; when it began is not measured."""
    for name in (column.removesuffix(TIME) for column in points if column.endswith(TIME)):
        columns = columns_of(points, name)
        whole = tuple(in_turn("whole", "whole", columns["total_s"]))
        units = [
            replace(span, track=unit, name=unit, duration_s=own_s)
            for unit in UNITS
            for span, own_s in zip(whole, columns.get(f"{unit}_s", ()), strict=False)
        ]
        yield Lane(title=name, spans=(*whole, *units))
