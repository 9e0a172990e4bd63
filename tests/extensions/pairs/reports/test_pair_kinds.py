"""The records that the kinds of the partition and offload suites leave: the report finds all it looks for."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from made_records import judged_record
from reports.page import grids, page_of, table_of

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkSettings, ChunkVisit
from pytest_npubench.extensions.pairs.offload.factorial import FactorialSettings, FactorialVisit
from pytest_npubench.extensions.pairs.offload.replay import ReplaySettings, ReplayVisit
from pytest_npubench.extensions.pairs.offload.shadow import ShadowSettings, ShadowVisit
from pytest_npubench.extensions.pairs.offload.units import OffloadPoint
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadPlan
from pytest_npubench.extensions.pairs.suites.offload.spec import OffloadSpec
from pytest_npubench.extensions.pairs.suites.partition.kinds.ablation import AblationPoint, AblationVisit
from pytest_npubench.extensions.pairs.suites.partition.kinds.decoder_layer import LayerPoint, LayerVisit
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import (
    DecisionPoint,
    DecisionVisit,
    OverlapPoint,
    OverlapVisit,
    PairPoint,
    RoundTripPoint,
    RoundTripVisit,
    SplitPoint,
    SplitVisit,
    StreamPoint,
    StreamVisit,
)
from pytest_npubench.extensions.pairs.suites.partition.spec import PartitionSize, PartitionSpec
from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.suites import case_kind, shown, suite
from pytest_npubench.suites.hardware_files import load_hardware

NUM_ROUNDS = 6
SPEC = load_hardware(default_directory() / "cpu.toml")
SMALL_SHADOW = ShadowSettings(num_tokens=8, num_channels=64, num_rows=32, num_outliers=(0, 8, 64))
EXPERIMENTS = (ChunkSettings(), SMALL_SHADOW, ReplaySettings(), FactorialSettings())
VISITS = {
    ChunkSettings: ChunkVisit,
    ShadowSettings: ShadowVisit,
    ReplaySettings: ReplayVisit,
    FactorialSettings: FactorialVisit,
}
OFFLOADED = {
    "total_s": 0.01,
    "run_s": 0.009,
    "static_s": 0.008,
    "dynamic_s": 0.002,
    "sync_fraction": 0.2,
    "bubble_fraction": 0.3,
    "predicted_s": 0.011,
    "stalled_s": 0.0,
    "relative_error": 0.01,
    "num_outlier_channels": 8.0,
    "num_graphs": 4.0,
    "weight_bytes": 1e6,
    "executable_bytes": 2e6,
    "compile_s": 1.5,
    "computed_tokens": 256.0,
}


def offloaded_visit(plan: OffloadPlan, point: OffloadPoint) -> Visit:
    """The same at every point of its experiment."""
    own = VISITS[type(plan.experiment)]
    return own(**{field.name: OFFLOADED[field.name] for field in fields(own)})


def size(experiments: tuple[str, ...]) -> PartitionSize:
    return PartitionSize(
        name="quick",
        models=("llama-8b-div8",),
        experiments=experiments,
        lengths=(1, 40),
        min_rounds=NUM_ROUNDS,
        max_rounds=NUM_ROUNDS,
        budget_s=1.0,
    )


def partition_plan() -> PartitionPlan:
    partition = PartitionSpec(
        pair="host",
        models=("llama-8b-div8",),
        standard_sizes=(32, 64),
        tile=32,
        decode_shares=(0.5,),
        prefill_shares=(0.4,),
        profiles=(),
    )
    return PartitionPlan(
        spec=SPEC, partition=partition, size=size(suite("partition").kinds), model="llama-8b-div8", pair="host"
    )


def split_visit(plan: PartitionPlan, point: PairPoint) -> Visit:
    """What a visit of a point leaves."""
    if isinstance(point, SplitPoint):
        seconds = 1e-4 * (1 + point.matmul.tokens)
        return SplitVisit(**dict.fromkeys(SPLIT_SECONDS, seconds))
    if isinstance(point, DecisionPoint):
        return DecisionVisit(**dict.fromkeys(SPLIT_SECONDS, 1e-4), split_index=0, predicted_s=1.1e-4)
    if isinstance(point, RoundTripPoint):
        return RoundTripVisit(trips_s={"flag": (1e-6,) * 100, "pipe": (9e-5,) * 100})
    if isinstance(point, StreamPoint):
        return StreamVisit(**dict.fromkeys(point.units, 2e10))
    if isinstance(point, OverlapPoint):
        exposed_s = {"fast_exposed_s": 1e-5, "slow_exposed_s": 1e-5}
        return OverlapVisit(queued_s=0.009, fast_s=0.01, slow_s=0.02, gpu_s=0.01, npu_s=0.01, **exposed_s)
    if isinstance(point, AblationPoint):
        return AblationVisit(total_s=0.01, gpu_s=0.004, npu_s=0.01)
    assert isinstance(point, LayerPoint)
    return LayerVisit(**dict.fromkeys(LAYER_SECONDS, 0.05))


SPLIT_SECONDS = [field.name for field in fields(SplitVisit)]
LAYER_SECONDS = [field.name for field in fields(LayerVisit)]


def records_of(plan: Any, visit_of: Any) -> list[dict[str, Any]]:
    """Every case of the plan, judged by its kind on rounds made up."""
    records = []
    names = [name for name in plan.size.experiments if plan.includes(name)]
    for kind in map(case_kind, names):
        for case in (plan.case(kind.suite, kind.name, axes) for axes in kind.axes(plan)):
            samples = {
                f"{point.name}/{name}": values
                for point in kind.points(case, plan)
                for name, values in visit_of(plan, point).columns().items()
            }
            judgement = kind.judge(case, plan, Measured(rounds=[samples] * NUM_ROUNDS))
            records.append(judged_record(case, judgement, campaign=plan.key))
    return records


@pytest.fixture(scope="module")
def partitioned() -> list[dict[str, Any]]:
    return records_of(partition_plan(), split_visit)


@pytest.fixture(scope="module")
def offloaded() -> list[dict[str, Any]]:
    known = size(suite("offload").kinds)
    spec = OffloadSpec(pair="host", profiles=())
    plans = [OffloadPlan(spec=SPEC, offload=spec, size=known, experiment=item) for item in EXPERIMENTS]
    return [record for plan in plans for record in records_of(plan, offloaded_visit)]


def test_partition_finds_every_chart_and_figure(partitioned: list[dict[str, Any]]) -> None:
    page = page_of(partitioned)
    assert "of another version" not in page.text
    assert list(grids(page)) == [
        "What the solver chose",
        "Speed of the unit of dynamic shapes by shape",
        "Speed of the static unit by shape",
        "Order and shape on the static unit",
    ]
    assert "partition: regret over 10 shapes median 0 %" in summary_lines(partitioned, shown)[0]


def test_offload_finds_every_chart_and_figure(offloaded: list[dict[str, Any]]) -> None:
    page = page_of(offloaded)
    assert "of another version" not in page.text
    assert len(table_of(page, "Factorial: cells")) == 9
    assert [row[0] for row in table_of(page, "Out of order: simulated")[1:]][:2] == ["in_order", "fifo"]
    lines = summary_lines(offloaded, shown)
    assert lines[0] == "offload: C / FIFO 1 calm, 1 stalls, 1 hog"
    assert lines[1] == "offload, each alone: time sharing +0 %, shadow +0 %, out_of_order +0 %"


def form(value: Any) -> Any:
    """The names in a detail, of a list those of its first item."""
    if isinstance(value, dict):
        return {name: form(inner) for name, inner in value.items()}
    return [form(value[0])] if isinstance(value, list) and value else None


def test_details_keep_the_names_that_journals_have(
    partitioned: list[dict[str, Any]], offloaded: list[dict[str, Any]]
) -> None:
    """Those of version 0.1.0: a case that a journal of before holds is shown."""
    kept = json.loads(Path(__file__).with_name("pair_details.json").read_text())
    found = {record["case"].split("/")[1]: form(record["detail"]) for record in (*offloaded, *partitioned)}
    assert found == kept
    assert [list(detail) for detail in found.values()] == [list(kept[kind]) for kind in found]
