"""A decoder layer with each of HeteroInfer's techniques on and off, all 32 ways (HeteroInfer, section 5.6, Fig. 18).

    stage    the static unit's tokens fill its graph's stages: padded to a standard size; off: a graph for just S
    order    the weight is the first operand; off: the activation
    shape    a weight with more columns than rows is cut into blocks that have no more; off: in one piece
    sync     the pair's fastest mechanism; off: its slowest
    split    half of each operator's rows on each unit; off: whole operators on the static unit (the layer level)

The paper adds one technique to the others, which shows each beside what was added before it (its first makes graphs on
the fly, which bucket_edges measures as online prepare); a factorial tells each alone, and by pairs which need each
other. S is one token into the last stage of the largest graph. Times are
logarithms within a round, so effects are ratios: 0.5 is half the time. Before it is timed, each way is held against
float64. Nothing has a limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.pairs.offload.effects import factorial_effects
from pytest_npubench.extensions.pairs.offload.factorial import cell_name
from pytest_npubench.extensions.pairs.paired_rounds import all_visits, time_metric, whole_rounds
from pytest_npubench.extensions.pairs.partition.layer import DecoderLayer
from pytest_npubench.extensions.pairs.partition.matmul import GraphForm, Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.parts import gpu_part, npu_parts
from pytest_npubench.extensions.pairs.suites.partition.experiment import PartitionExperiment, unit_metrics
from pytest_npubench.extensions.pairs.suites.partition.kinds.decoder_layer import HOST, OPERATORS, layer_shape
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import OpenPair, PairPoint
from pytest_npubench.verdict import judge_gates
from pytest_npubench.verdict.result import Judgement

FACTORS = ("stage", "order", "shape", "sync", "split")
NUM_RUNS = 3
Cell = tuple[bool, ...]  # by FACTORS
CELLS: tuple[Cell, ...] = tuple(product((False, True), repeat=len(FACTORS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationVisit(Visit):
    """Seconds of a pass, the median of a few, and what each unit took for its parts of that one."""

    total_s: float
    gpu_s: float
    npu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationPoint(PairPoint):
    """A prefill of so many tokens by one layer, with some of the techniques."""

    tokens: int
    cell: Cell

    @property
    def name(self) -> str:
        return f"ablation/{self.tokens}/{cell_name(self.cell, FACTORS)}"

    def check(self, opened: OpenPair) -> None:
        self._layer(opened).check_run(self._mechanism(opened))

    def visit(self, opened: OpenPair) -> AblationVisit:
        layer, mechanism = self._layer(opened), self._mechanism(opened)
        layer.run(mechanism=mechanism)
        runs = sorted((layer.run(mechanism=mechanism) for _ in range(NUM_RUNS)), key=lambda run: run.total_s)
        median = runs[NUM_RUNS // 2]
        return AblationVisit(total_s=median.total_s, gpu_s=median.gpu_s, npu_s=median.npu_s)

    def split(self, matmul: Matmul, options: SplitOptions) -> Split:
        """Of one operator, as the cell has it."""
        stage, order, shape, _, is_split = self.cell
        gpu_rows = matmul.rows // 2 // options.tile * options.tile if is_split else 0
        graphs = options.padded(matmul.tokens) if stage else (matmul.tokens,)
        gpu = (gpu_part(matmul, num_rows=gpu_rows),) if gpu_rows else ()
        return Split(
            strategy=cell_name(self.cell, FACTORS),
            parts=(*gpu, *npu_parts(matmul, graphs, first_row=gpu_rows)),
            form=GraphForm(activation_first=not order, is_tall=shape),
        )

    def _layer(self, opened: OpenPair) -> DecoderLayer:
        shape = layer_shape(opened.plan)
        splits = {name: self.split(shape.matmul(name, self.tokens), opened.plan.options) for name in OPERATORS}
        return DecoderLayer(opened.units, shape, splits=splits, num_tokens=self.tokens)

    def _mechanism(self, opened: OpenPair) -> str:
        return opened.units.mechanisms[0 if dict(zip(FACTORS, self.cell, strict=True))["sync"] else -1]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    """ratio: time with the techniques over without, all else averaged; of two techniques the ratio of such ratios, 1
    where they do not depend on each other. low, high: its 95 % interval, None below two rounds."""

    technique: str
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WayRow:
    """Seconds of a pass with these techniques, the median over the rounds."""

    techniques: str
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationDetail:
    """effects: of the techniques, then of their pairs. ways: all 32."""

    tokens: int
    effects: tuple[EffectRow, ...]
    ways: tuple[WayRow, ...]


class AblationKind(PartitionExperiment):
    name = "ablation"

    def axes(self, plan: PartitionPlan) -> Iterable[Axes]:
        return ((),) if plan.pair == HOST else ()  # a CUDA graph multiplies in one order and shape

    def points(self, case: Case, plan: PartitionPlan) -> tuple[AblationPoint, ...]:
        tokens = max(2, plan.partition.standard_sizes[-1] - plan.partition.tile + 1)
        return tuple(AblationPoint(tokens=tokens, cell=cell) for cell in CELLS)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        points = self.points(case, plan)
        measured = whole_rounds(measured, points)
        visits = {point.cell: all_visits(measured, point, AblationVisit) for point in points}
        times_s = {cell: [visit.total_s for visit in each] for cell, each in visits.items()}
        together = visits[CELLS[-1]]
        effects = factorial_effects(times_s, factors=FACTORS, largest=2)
        strongest = min(effects[: len(FACTORS)], key=lambda effect: effect.ratio)
        return Judgement(
            verdict=judge_gates(()),
            what=f"prefill of a layer, five techniques on and off: {strongest.name} x{strongest.ratio:.3g} of the time",
            metrics=(
                *unit_metrics([visit.gpu_s for visit in together], [visit.npu_s for visit in together], work="parts"),
                time_metric("none_s", times_s[CELLS[0]]),
                time_metric("all_s", times_s[CELLS[-1]]),
            ),
            measured_s=statistics.median(times_s[CELLS[-1]]),
            detail=AblationDetail(
                tokens=points[0].tokens,
                effects=tuple(
                    EffectRow(technique=effect.name, ratio=effect.ratio, low=effect.low, high=effect.high)
                    for effect in effects
                ),
                ways=tuple(
                    WayRow(techniques=cell_name(cell, FACTORS), total_s=statistics.median(seconds))
                    for cell, seconds in times_s.items()
                ),
            ),
        )


KIND = AblationKind()
