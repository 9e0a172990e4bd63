"""A whole decoder layer, attention and feed-forward, as the solver splits it (HeteroInfer, Figs. 13 and 16), and with
each operator whole on the unit that the solver's model prices the faster one (the layer level).

Prefill of the largest graph size and one decode step after as many tokens, whose weights are cold, as those of a model
of many layers are; before it is timed, each operator's output
is held against float64. The speed-up is over the better unit alone; it is shown and compared with accepted sessions,
and has no limit: two equal units bound by one memory have little to gain in decode.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.pairs.paired_rounds import all_visits, time_metric
from pytest_npubench.extensions.pairs.partition.layer import DecoderLayer, LayerShape, LayerTiming
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.model_shapes import operators
from pytest_npubench.extensions.pairs.partition.strategies import strategy
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment, ratio_metric, unit_metrics
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import COLD, OpenPair, PairPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement

HOST = "host"
PAIRS = (HOST, "cuda-streams")  # that run decoder layers: their units share memory
OPERATORS = ("attention_qkv", "attention_output", "ffn_gate_up", "ffn_down")
NUM_KV_HEADS = 8  # of every model that there are weight shapes of
NUM_RUNS = 5
ARMS = ("decided", "whole", "npu")


def layer_shape(plan: PartitionPlan) -> LayerShape:
    """Raises RegistryError on an unknown model."""
    shapes = {shape.name: shape for shape in operators(plan.model)}
    hidden, head_dim = shapes["attention_q"].cols, shapes["attention_k"].rows // NUM_KV_HEADS
    return LayerShape(
        hidden=hidden,
        num_heads=hidden // head_dim,
        num_kv_heads=NUM_KV_HEADS,
        head_dim=head_dim,
        intermediate=shapes["ffn_down"].cols,
        dtype=plan.partition.dtype,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerVisit(Visit):
    """Seconds of a pass, the median of a few, as the solver splits the layer, with whole operators and on the static
    unit alone: all of it, what of it is synchronisation, and the dynamic unit alone in turn with it."""

    decided_s: float
    decided_sync_s: float
    gpu_beside_decided_s: float
    whole_s: float
    whole_sync_s: float
    gpu_beside_whole_s: float
    npu_s: float
    npu_sync_s: float
    gpu_beside_npu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPoint(PairPoint):
    """A whole decoder layer at so many tokens after a context: as the solver splits it, whole operators, and each unit
    alone."""

    tokens: int
    context: int

    @property
    def name(self) -> str:
        return f"layer/{self.tokens}@{self.context}{COLD if self.is_cold else ''}"

    @property
    def is_cold(self) -> bool:
        return self.tokens == 1

    def undecided(self, plan: PartitionPlan) -> tuple[Matmul, ...]:
        return tuple(self._matmuls(plan).values())

    def check(self, opened: OpenPair) -> None:
        for splits in self._arms(opened):
            self._layer(opened, splits).check()

    def visit(self, opened: OpenPair) -> LayerVisit:
        seconds = [each_s for splits in self._arms(opened) for each_s in self._pass_s(opened, splits)]
        names = [name for arm in ARMS for name in (f"{arm}_s", f"{arm}_sync_s", f"gpu_beside_{arm}_s")]
        return LayerVisit(**dict(zip(names, seconds, strict=True)))

    def _matmuls(self, plan: PartitionPlan) -> dict[str, Matmul]:
        shape = layer_shape(plan)
        return {name: shape.matmul(name, self.tokens) for name in OPERATORS}

    def _arms(self, opened: OpenPair) -> tuple[Mapping[str, Split], ...]:
        """Returns the operators' splits by ARMS: as the solver decided, whole on the better unit, whole on the static
        unit."""
        matmuls, options = self._matmuls(opened.plan), opened.plan.options
        decisions = {name: opened.decision(matmul) for name, matmul in matmuls.items()}
        return (
            {name: decision.split for name, decision in decisions.items()},
            {name: decision.whole for name, decision in decisions.items()},
            {name: next(iter(strategy("npu_only").splits(matmul, options))) for name, matmul in matmuls.items()},
        )

    def _layer(self, opened: OpenPair, splits: Mapping[str, Split]) -> DecoderLayer:
        shape = layer_shape(opened.plan)
        return DecoderLayer(opened.units, shape, splits=splits, num_tokens=self.tokens, context=self.context)

    def _pass_s(self, opened: OpenPair, splits: Mapping[str, Split]) -> tuple[float, float, float]:
        """Returns seconds of a pass, of its synchronisation, and of the dynamic unit alone."""
        layer = self._layer(opened, splits)
        gpu: list[LayerTiming] = []
        runs: list[LayerTiming] = []
        for _ in range(NUM_RUNS):
            for timings, run in ((gpu, layer.run_alone), (runs, layer.run)):
                if self.is_cold:
                    opened.units.evict()
                timings.append(run())
        median = statistics.median
        return (
            median(run.total_s for run in runs),
            median(run.sync_s for run in runs),
            median(run.total_s for run in gpu),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayerDetail:
    """Seconds of one pass, medians over the rounds. whole_s: each operator on its better unit. speedup: the better
    unit alone over the solver's splits; whole_speedup: over whole operators. weights: "cold" (from memory) or
    "warm"."""

    tokens: int
    context: int
    decided_s: float
    gpu_s: float
    npu_s: float
    whole_s: float
    sync_s: float
    speedup: float
    whole_speedup: float
    weights: str


class DecoderLayerKind(PartitionExperiment):
    name = "decoder_layer"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return ((("phase", "prefill"),), (("phase", "decode"),)) if plan.pair in PAIRS else ()

    def points(self, case: Case, plan: PartitionPlan) -> tuple[LayerPoint]:
        longest = plan.partition.standard_sizes[-1]
        if case.axis("phase") == "prefill":
            return (LayerPoint(tokens=longest, context=0),)
        return (LayerPoint(tokens=1, context=longest),)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        (point,) = self.points(case, plan)
        visits = all_visits(measured, point, LayerVisit)
        decided_s, npu_s = [visit.decided_s for visit in visits], [visit.npu_s for visit in visits]
        gpu_s, whole_s = [visit.gpu_beside_decided_s for visit in visits], [visit.whole_s for visit in visits]
        single_s = min(gpu_s, npu_s, key=statistics.median)
        weights, prefix = ("cold", "cold_") if point.is_cold else ("warm", "")
        speedup = ratio_metric(f"{prefix}speedup", single_s, decided_s)
        whole_speedup = replace(ratio_metric(f"{prefix}whole_speedup", single_s, whole_s), gate="none")
        return Judgement(
            verdict=judge_gates(()),
            what=f"{case.axis('phase')} of a layer, {weights} weights: best unit alone / solver's splits",
            metrics=(
                *unit_metrics(gpu_s, npu_s, prefix),
                time_metric(f"{prefix}decided_s", decided_s),
                speedup,
                whole_speedup,
            ),
            measured_s=statistics.median(decided_s),
            detail=DecoderLayerDetail(
                tokens=point.tokens,
                context=point.context,
                decided_s=statistics.median(decided_s),
                gpu_s=statistics.median(gpu_s),
                npu_s=statistics.median(npu_s),
                whole_s=statistics.median(whole_s),
                sync_s=statistics.median(visit.decided_sync_s for visit in visits),
                speedup=speedup.value,
                whole_speedup=whole_speedup.value,
                weights=weights,
            ),
        )


KIND = DecoderLayerKind()
