"""What a partition campaign's section of a report shows, and what the end of a run says of the suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_npubench.extensions.pairs.pair_rounds import pair_rounds
from pytest_npubench.extensions.pairs.suites.partition.kinds.bandwidth import BandwidthDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.bucket_edges import BucketEdgesDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.decoder_layer import DecoderLayerDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.gpu_linear import GpuLinearDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.graph_generation import GraphGenerationDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_order import NpuOrderDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_shape import NpuShapeDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_stage import NpuStageDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.overlap import OverlapDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.solver_regret import SolverRegretDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.sync_cost import SyncCostDetail
from pytest_npubench.extensions.pairs.suites.partition.report.bandwidth import memory_chart
from pytest_npubench.extensions.pairs.suites.partition.report.bucket_edges import edges_chart
from pytest_npubench.extensions.pairs.suites.partition.report.choices import choice_charts
from pytest_npubench.extensions.pairs.suites.partition.report.curves import gpu_charts, graph_chart, stage_chart
from pytest_npubench.extensions.pairs.suites.partition.report.decoder_layer import layer_chart
from pytest_npubench.extensions.pairs.suites.partition.report.npu_ratios import ratio_table
from pytest_npubench.extensions.pairs.suites.partition.report.overlap import overlap_table
from pytest_npubench.extensions.pairs.suites.partition.report.shape_maps import gpu_map, npu_map, side_map
from pytest_npubench.extensions.pairs.suites.partition.report.solver import regret_line, solver_tables
from pytest_npubench.extensions.pairs.suites.partition.report.sync_cost import sync_table
from pytest_npubench.reports.build import of_each, of_kind
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.reports.reported import HETERO_INFER
from pytest_npubench.reports.reported_figures import figures_table
from pytest_npubench.verdict.case_record import Cases

DRIFT = (
    "Time of a run on one unit alone in a round, over its mean in all rounds: the work is the same in each, so this "
    "shows the machine."
)
HEADLINES = (
    ("figure 12", "speedup"),
    ("figure 13", "speed"),
    ("figure 13 speedup", "speedup"),
    ("figure 15", "rate"),
    ("figure 15 speedup", "speedup"),
    ("figure 16", "speed"),
)


def parts(cases: Cases, rounds: Rounds) -> Parts:
    """Every chart and table that these cases of one model on one device have data for; the paper's headlines last."""
    stages, orders = cases.of("npu_stage", NpuStageDetail), cases.of("npu_order", NpuOrderDetail)
    gpu, shapes = cases.of("gpu_linear", GpuLinearDetail), cases.of("npu_shape", NpuShapeDetail)
    sides = side_map(orders, shapes)
    charts = (
        *choice_charts(cases),
        *of_kind("gpu_linear", gpu_charts(gpu)),
        gpu_map(gpu),
        *of_kind("npu_stage", [stage_chart(stages)]),
        npu_map(stages),
        *of_kind("graph_generation", [graph_chart(cases.of("graph_generation", GraphGenerationDetail))]),
        None if sides is None else replace(sides, shows=("npu_order", "npu_shape")),
        *of_each(memory_chart, cases.of("bandwidth", BandwidthDetail)),
        *of_each(layer_chart, cases.of("decoder_layer", DecoderLayerDetail)),
        *of_each(edges_chart, cases.of("bucket_edges", BucketEdgesDetail)),
        drift_chart(pair_rounds(rounds), DRIFT),
    )
    ratios = ratio_table(orders, shapes)
    tables = (
        *of_kind("solver", solver_tables(cases)),
        *of_each(overlap_table, cases.of("overlap", OverlapDetail)),
        *of_each(sync_table, cases.of("sync_cost", SyncCostDetail)),
        None if ratios is None else replace(ratios, shows=("npu_order", "npu_shape")),
        figures_table(HETERO_INFER, HEADLINES) if any(record.detail for record in cases.records) else None,
    )
    remarks = sentences(map(regret_line, cases.of("solver_regret", SolverRegretDetail)))
    return tuple(chart for chart in charts if chart is not None), tables, remarks


def lines(cases: Cases) -> Sequence[str]:
    """One line for each solver_regret case that was measured."""
    return [regret_line(record) for record in cases.of("solver_regret", SolverRegretDetail)]
