"""Lengths across the edges of graph sizes (HeteroInfer, Fig. 14): a line for the solver's split and for each way."""

from __future__ import annotations

from pytest_npubench.extensions.pairs.suites.partition.kinds.bucket_edges import BASELINES, DECIDED, BucketEdgesDetail
from pytest_npubench.extensions.pairs.suites.partition.report.curves import operator_of
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, plain, series_table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import axis, milliseconds, spread_axis
from pytest_npubench.reports.reported import HETERO_INFER, note, reported
from pytest_npubench.verdict.case_record import CaseRecord

EDGES = (
    "One operator at lengths on and just past the sizes that graphs exist for, median over the rounds. Padding runs "
    "the next larger graph, pipe a few that fit together, chunked always the smallest, and online prepare compiles one "
    "for this very length."
)
SPLIT = "solver's split"
REPORTED_WAYS = ("online prepare", "padding", "pipe")
REPORTED_TOKENS = 525


def edges_chart(record: CaseRecord[BucketEdgesDetail]) -> Chart:
    """Time of one operator by length."""
    detail, operator = record.detail, operator_of(record)
    ways = {SPLIT: DECIDED, **{name: name for name in BASELINES.values()}}
    times_ms = {name: milliseconds(detail.seconds(way)) for name, way in ways.items()}
    known = {name: values for name, values in times_ms.items() if any(value is not None for value in values)}
    over = {name: "1" if name == SPLIT else plain(detail.speedups.get(name)) for name in known}
    told = ", ".join(f"{name} {ratio}" for name, ratio in over.items() if name != SPLIT)
    printed = ", ".join(f"{name} {_reported(name)}" for name in REPORTED_WAYS)
    return chart(
        f"Across the edges of graph sizes: {operator}",
        f"Time of {operator} at {len(detail.lengths)} lengths; over the solver's split in the median: {told}.",
        (
            EDGES,
            f"Time over the solver's split, median over the lengths: {told}.",
            note("figure 14", f"at {REPORTED_TOKENS} tokens, whole prefill: {printed}", paper=HETERO_INFER),
        ),
        [
            line(
                name,
                detail.tokens,
                values,
                "{x} tokens: {y:.4g} ms",
                place=place,
                width=3 if name == SPLIT else 1.5,
            )
            for place, (name, values) in enumerate(known.items())
        ],
        (axis("tokens"), spread_axis("ms", [one for values in known.values() for one in values if one is not None])),
        series_table(
            f"{operator} across the edges",
            "tokens",
            list(map(number_text.count, detail.tokens)),
            {f"{name} ms": list(map(plain, values)) for name, values in known.items()},
            last=(
                ("over the solver's split, median", *over.values()),
                (f"reported at {REPORTED_TOKENS} tokens", *map(_reported, known)),
            ),
        ),
    )


def _reported(name: str) -> str:
    return reported("figure 14", "speedup", paper=HETERO_INFER, baseline=name.replace(" ", "_"))
