"""What a partition campaign's section of a report shows, and what the end of a run says of the suite.

Worked example of the end of a run: "partition: regret over 10 shapes median 2.1 %, p90 9 %, prediction error median
4.5 %, largest speed-up 1.39 (llama-8b-div4)".
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.extensions.pairs.pair_rounds import other_device, pair_rounds
from pytest_npubench.extensions.pairs.suites.partition.kinds.gpu_linear import GpuLinearDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_order import NpuOrderDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_shape import NpuShapeDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_stage import NpuStageDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.solver_regret import SolverRegretDetail
from pytest_npubench.extensions.pairs.suites.partition.report.choices import choice_charts
from pytest_npubench.extensions.pairs.suites.partition.report.shape_maps import gpu_map, npu_map, side_map
from pytest_npubench.reports import number_text
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.detail_parts import detail_parts
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.verdict.case_record import CaseRecord, Cases

DRIFT = (
    "Time of a run on one unit alone in a round, over its mean in all rounds: the work is the same in each, so this "
    "shows the machine."
)
NOTES = {
    "ablation": (
        "A decoder layer's prefill with five techniques on and off, all 32 ways in each round. The ratio is the time "
        "with a technique over the time without, all else averaged, with its 95 % interval; of two techniques the "
        "ratio of such ratios, 1 where neither depends on the other. Without split, the static unit has all."
    ),
    "bandwidth": (
        "Memory-1: bytes a second that the units read, each alone and both at once, a value a round. The gain is that "
        "of both at once over the better unit alone."
    ),
    "bucket_edges": (
        "One operator at lengths on and just past the sizes that graphs exist for, median over the rounds: as the "
        "solver decided, and otherwise. Padding runs the next larger graph, pipe a few that fit together, chunked "
        "always the smallest, and online prepare compiles one for this very length. A speed-up is the time over the "
        "solver's."
    ),
    "decoder_layer": (
        "A whole decoder layer, attention and feed-forward, median over the rounds: as the solver splits it, with "
        "whole operators each on the unit that its model prices the faster one, and on each unit alone. Speed-ups are "
        "over the best unit alone. In decode the weights come from memory."
    ),
    "gpu_linear": (
        "One operator on the unit of dynamic shapes alone, median over the rounds. GPU-1: the time is flat up to a "
        "threshold and linear past it; one is told only where it explains the times better than a straight line."
    ),
    "graph_generation": (
        "Cold compile of a graph for a length that none exists for, a fresh one in every round. A growth with the size "
        "of the output is told only where it is above 0 at one false alarm in 1,000."
    ),
    "npu_order": (
        "NPU-2, on the unit of static shapes alone: the product with the activation as the first operand, over that "
        "with the weight first, as the median over the rounds' own ratios. An interval needs 6 rounds."
    ),
    "npu_shape": (
        "NPU-3, on the unit of static shapes alone: the weight with more columns than rows, over the same numbers with "
        "more rows than columns, as the median over the rounds' own ratios. An interval needs 6 rounds."
    ),
    "npu_stage": (
        "One operator on the unit of static shapes alone, with a graph for each length, median over the rounds. NPU-1: "
        "the time goes up in stages; a width is told only where it explains the times better than a straight line."
    ),
    "precision": (
        "One operator in fp32, in bf16 and with weights of 4 bits (groups of 128, activations in bf16), each unit "
        "alone and the rows in halves, median over the rounds. The speed-up is the fastest way in fp32 over the "
        "fastest in this format. Every format is held against float64 with the numbers that its bits stand for."
    ),
    "overlap": (
        "Operators that depend on each other, one after the other, each split over both units, with fast and with slow "
        "signals; queued are the same operators without dependencies. In decode the GPU has three quarters of the "
        "rows, in prefill one. Exposed is what an operator of the chain takes beyond its slower unit."
    ),
    "solver": (
        "Every split of every strategy runs in each round. The best is chosen in half of the rounds; all times are "
        "from the other half, so that regret, decided / best - 1, can come out below 0. The speed-up is that over the "
        "best unit alone. One token has weights from memory (cold); its warm figures stand beside."
    ),
    "sync_cost": (
        "GPU-2: a signal to the other unit and back, by each way of waiting; p99 needs 100 trips. The speed-ups are "
        "those of one token of a weight, its rows in halves, over the best unit alone."
    ),
}
"""By kind, what its figures mean."""
PICTURED = {
    "solver": ("shape", "strategy", "split", "decided_s", "best_s", "single_s", "regret", "gpu_share", "measured_s")
}
"""By kind, the fields that pictures of its own show."""


def parts(cases: Cases, rounds: Rounds) -> Parts:
    """Every chart and table that these cases of one model on one device have data for."""
    orders, shapes = cases.of("npu_order", NpuOrderDetail), cases.of("npu_shape", NpuShapeDetail)
    detail_charts, detail_tables = detail_parts(cases, pictured=PICTURED, notes=NOTES)
    charts = (
        *choice_charts(cases),
        gpu_map(cases.of("gpu_linear", GpuLinearDetail)),
        npu_map(cases.of("npu_stage", NpuStageDetail)),
        side_map(orders, shapes),
        *detail_charts,
        drift_chart(pair_rounds(rounds), DRIFT),
    )
    return tuple(chart for chart in charts if chart is not None), tuple(detail_tables), sentences(lines(cases))


def lines(cases: Cases) -> Sequence[str]:
    """One line for each solver_regret case that was measured."""
    return [regret_line(record) for record in cases.of("solver_regret", SolverRegretDetail)]


def regret_line(record: CaseRecord[SolverRegretDetail]) -> str:
    detail = record.detail
    parts = [
        f"partition: regret over {number_text.count(detail.num_shapes)} shapes median {_percent(detail.median_regret)}",
        f"p90 {_percent(detail.p90_regret)}",
        f"prediction error median {_percent(detail.median_prediction_error)}",
        *([] if detail.largest_speedup is None else [f"largest speed-up {detail.largest_speedup:.3g}"]),
    ]
    about = ", ".join(word for word in (record.model, other_device(record)) if word)
    return f"{', '.join(parts)}{f' ({about})' if about else ''}"


def _percent(fraction: float) -> str:
    """One digit behind the point below 10: 0.0213 is "2.1 %", 0.09 is "9 %", 10.2 is "1,020 %"."""
    value = 100 * fraction
    return f"{round(value, 1) + 0.0:g} %" if abs(value) < 10 else f"{value:,.0f} %"  # + 0.0: no "-0"
