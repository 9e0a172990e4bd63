"""A small model with a plan of its own, and a bench on units whose times are made up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.case import Case
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.extensions.pairs.partition import model_shapes
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape
from pytest_npubench.extensions.pairs.suites.partition import SUITE
from pytest_npubench.extensions.pairs.suites.partition import bench as bench_module
from pytest_npubench.extensions.pairs.suites.partition.bench import PartitionBench
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import DecisionVisit, PairPoint, SplitVisit
from pytest_npubench.extensions.pairs.suites.partition.spec import PartitionSize, PartitionSpec
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.hardware_files import load_all

from .fake_units import FakeUnits

MODEL = "tiny-split"
SHAPES = {
    "attention_q": (64, 64),
    "attention_k": (32, 64),
    "attention_v": (32, 64),
    "attention_qkv": (128, 64),
    "attention_output": (64, 64),
    "ffn_gate_up": (256, 64),
    "ffn_down": (64, 128),
}
SPEC = load_all([default_directory()])["cpu"]


@pytest.fixture(scope="package", autouse=True)
def tiny_model() -> Iterator[None]:
    """Known to these tests alone."""
    shapes = tuple(OperatorShape(name=name, rows=rows, cols=cols) for name, (rows, cols) in SHAPES.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(model_shapes.OPERATOR_SHAPES, MODEL, shapes)
        yield


def partition_plan(*, model: str = MODEL, standard_sizes: tuple[int, ...] = (16, 64), **size: Any) -> PartitionPlan:
    partition = PartitionSpec(
        pair="host",
        models=(model,),
        standard_sizes=standard_sizes,
        tile=8,
        decode_shares=(0.25, 0.5, 0.75),
        prefill_shares=(0.5,),
        profiles=(),
    )
    known = PartitionSize(
        name="quick",
        models=(model,),
        experiments=SUITE.kinds,
        lengths=(1, 20),
        min_rounds=2,
        max_rounds=2,
        budget_s=1.0,
    )
    return PartitionPlan(spec=SPEC, partition=partition, size=replace(known, **size), model=model, pair="host")


def cases(plan: PartitionPlan, name: str) -> list[Case]:
    kind = case_kind(name)
    return [plan.case(kind.suite, kind.name, axes) for axes in kind.axes(plan)]


def scripted(*rounds: Mapping[PairPoint, Visit | Sequence[Visit]]) -> Measured:
    """Rounds by point, of one visit or of several, as a journal keeps them."""
    measured = Measured()
    for row in rounds:
        columns: dict[str, tuple[float, ...]] = {}
        for point, left in row.items():
            for visit in (left,) if isinstance(left, Visit) else left:
                for name, values in visit.columns().items():
                    key = f"{point.name}/{name}"
                    columns[key] = (*columns.get(key, ()), *values)
        measured.rounds.append(columns)
    return measured


def split_visit(total_s: float = 1.0, **known: Any) -> SplitVisit:
    return SplitVisit(**{"total_s": total_s, "gpu_s": None, "npu_s": None, "sync_s": 0.0, **known})


def decision_visit(total_s: float, *, place: int, predicted_s: float) -> DecisionVisit:
    return DecisionVisit(**asdict(split_visit(total_s)), split_index=place, predicted_s=predicted_s)


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A bench on a FakeUnits with these arguments, loaded for some points; bench, units, and what failed."""

    def made(plan: PartitionPlan, points: Any, **known: Any) -> tuple[PartitionBench, FakeUnits, dict[str, str]]:
        units = FakeUnits(**known)
        monkeypatch.setattr(bench_module, "open_pair", lambda name, **keywords: units)
        bench = PartitionBench(SimpleNamespace(), plan)
        return bench, units, dict(bench.load(points, (), lambda text: None))

    return made
