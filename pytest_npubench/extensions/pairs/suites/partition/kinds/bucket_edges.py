"""Lengths across the edges of graph sizes: padding, pipe, online prepare, chunked, beside the solver's split (Fig. 14).

Just past an edge padding wastes most of a graph; HeteroInfer is 2.24, 2.21 and 1.35 times as fast as online prepare,
padding and pipe at 525 tokens. The case fails where the solver's split is slower than padding in the median over all
lengths; the times of both, over all lengths, are compared with accepted sessions too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.paired_rounds import time_metric, whole_rounds
from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.partition.strategies import all_splits
from pytest_npubench.extensions.pairs.suites.partition.decisions import single_points
from pytest_npubench.extensions.pairs.suites.partition.experiment import (
    PartitionExperiment,
    ratio_metric,
    total_s,
    unit_metrics,
)
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import DecisionPoint, OperatorPoint, SplitPoint
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

BASELINES = {"npu_only": "padding", "pipe": "pipe", "online_prepare": "online prepare", "chunked": "chunked"}
DECIDED = "decided"
PAST_EDGE = (0.0, 0.05, 0.5)  # of the edge


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketEdgesDetail:
    """lengths: a row for each number of tokens, by what stands in it: tokens, decided_s, and the seconds of each way as
    "WAY_s", without those that have no split of that length. speedups: by way, its time over that of the solver's
    split, median over the lengths."""

    lengths: tuple[Mapping[str, float], ...]
    speedups: Mapping[str, float]

    def __post_init__(self) -> None:
        """Raises ValueError for a row without its number of tokens, or no row."""
        if not self.lengths or not all("tokens" in row for row in self.lengths):
            raise ValueError("lengths: want a row or more, each with its tokens")

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(int(row["tokens"]) for row in self.lengths)

    def seconds(self, way: str) -> tuple[float | None, ...]:
        """Returns the seconds of a way at each length, DECIDED for the solver's split; None without a split of that
        length."""
        return tuple(row.get(f"{way}_s") for row in self.lengths)


class BucketEdgesKind(PartitionExperiment):
    name = "bucket_edges"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        """Returns the largest operator, which decides a prefill's time."""
        largest = max(plan.operator_names, key=lambda name: plan.matmul(name, 1).weight_elements)
        return ((("operator", largest),),)

    def points(self, case: Case, plan: PartitionPlan) -> tuple[OperatorPoint, ...]:
        matmuls = _matmuls(case, plan)
        decisions = (DecisionPoint(matmul=matmul) for matmul in matmuls)
        baselines = (point for matmul in matmuls for point in _baselines(plan, matmul).values())
        return *decisions, *baselines, *(single_points(plan, matmul)[0] for matmul in matmuls)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        if len(plan.partition.standard_sizes) < 2:
            raise MeasurementError(
                f"standard sizes {plan.partition.standard_sizes}; want two or more, or no edge lies between"
            )
        measured = whole_rounds(measured, self.points(case, plan))
        over: dict[str, list[float]] = {name: [] for name in BASELINES.values()}
        arms_s: dict[str, list[tuple[float, ...]]] = {"gpu": [], "padding": [], DECIDED: []}  # rounds, by length
        rows = []
        for matmul in _matmuls(case, plan):
            decided_s = total_s(measured, DecisionPoint(matmul=matmul))
            arms_s[DECIDED].append(decided_s)
            arms_s["gpu"].append(total_s(measured, single_points(plan, matmul)[0]))
            row: dict[str, float] = {"tokens": matmul.tokens, f"{DECIDED}_s": statistics.median(decided_s)}
            for name, point in _baselines(plan, matmul).items():
                baseline_s = total_s(measured, point)
                row[f"{name}_s"] = statistics.median(baseline_s)
                if name in arms_s:
                    arms_s[name].append(baseline_s)
                over[name].append(ratio_metric(name, baseline_s, decided_s).value)
            rows.append(row)
        padding = statistics.median(over["padding"])
        gpu_s, npu_s, whole_decided_s = (list(map(sum, zip(*times, strict=True))) for times in arms_s.values())
        ratios = {name: statistics.median(values) for name, values in over.items() if values}
        return Judgement(
            verdict=judge_gates((Gate(metric="solver's split / padding", value=1 / padding, limit=1.0),)),
            what="solver's split against padding, across the edges",
            metrics=(
                *unit_metrics(gpu_s, npu_s),
                *(_speedup(name, over[name]) for name in ratios),
                time_metric(f"{DECIDED}_s", whole_decided_s),
            ),
            detail=BucketEdgesDetail(lengths=tuple(rows), speedups=ratios),
        )


def _speedup(name: str, values: list[float]) -> Metric:
    return ratio_metric(f"{name.replace(' ', '_')}_speedup", values, [1.0] * len(values))


def _matmuls(case: Case, plan: PartitionPlan) -> list[Matmul]:
    edges = plan.partition.standard_sizes[:-1]
    lengths = sorted({round(edge * (1 + past)) + (past > 0) for edge in edges for past in PAST_EDGE})
    return [plan.matmul(str(case.axis("operator")), tokens) for tokens in lengths]


def _baselines(plan: PartitionPlan, matmul: Matmul) -> dict[str, SplitPoint]:
    """Returns the points by their names in the figure; a strategy without a split of this length is left out."""
    points = {}
    for strategy, name in BASELINES.items():
        if splits := all_splits(matmul, plan.options, (strategy,)):
            points[name] = SplitPoint(matmul=matmul, split=splits[0])
    return points


KIND = BucketEdgesKind()
