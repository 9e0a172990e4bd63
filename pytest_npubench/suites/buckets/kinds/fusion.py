"""What a compiler makes of a matrix product and the operator after it: LENS's mark of an NPU (section 3.2, Fig. 3, 4).

hidden = (t_matmul + t_operator - t_together) / t_operator, from the medians of each round, with a 95 % interval over
the rounds.

    hidden       more than kept memory traffic explains: both run at the same time, as on the paper's NPUs
    partly       some of it is saved, which keeping the product's result on the chip explains, as on its GPUs
    not fused    nothing is saved
    undecided    the interval holds more than one of these

A case for each operator, of the first model and batch size of a hardware file; no model is in it. There is no limit:
the seconds of both together, and what is hidden, are compared with accepted sessions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.engines.fusion_kernels import OPERATORS, kernels_of, traffic_share
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric

VISIT_S = 0.1
ALL, HALF = 0.9, 0.5
HIDDEN_MARGIN = 0.10
WORDS = {
    "hidden": "the operator is hidden behind the product, as on the NPUs of LENS, Fig. 3",
    "partly": "what is saved kept memory traffic explains, as on the GPUs of LENS, Fig. 3",
    "not fused": "nothing is saved: product and operator run one after the other",
    "undecided": "the rounds differ too much to tell what is saved",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionDetail:
    """Seconds of the product, the operator and both, means over the rounds; the share of the operator that is hidden
    with its 95 % interval (None: one round), and what kept traffic explains of it. what: a key of WORDS."""

    operator: str
    matmul_s: float
    operator_s: float
    together_s: float
    hidden: float
    interval: tuple[float, float] | None
    traffic_share: float
    what: str


class FusionKind(BucketKind):
    name = "fusion"

    def axes(self, plan: BucketPlan) -> Iterable[Axes]:
        return ((("operator", operator),) for operator in OPERATORS)

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        return tuple(
            BucketPoint(name=f"fusion/{kernel}", kernel=kernel, visit_s=VISIT_S, beside=True)
            for kernel in kernels_of(str(case.axis("operator")))
        )

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        operator = str(case.axis("operator"))
        matmul_s, alone_s, together_s = (_medians_s(measured, point.name) for point in self.points(case, plan))
        shares = [
            (product + after - both) / after for product, after, both in zip(matmul_s, alone_s, together_s, strict=True)
        ]
        hidden, bounds = sum(shares) / len(shares), interval_of(shares)
        explained = traffic_share(operator)
        what = bound_words(bounds, explained)
        mean_s = sum(together_s) / len(together_s)
        shown = f"{hidden:.0%} hidden" + (f" ({bounds[0]:.0%} to {bounds[1]:.0%})" if bounds else "")
        return Judgement(
            verdict=Verdict(
                kind=VerdictKind.PASSED, reason=f"{shown}, kept traffic explains {explained:.0%}: {WORDS[what]}"
            ),
            what=f"matrix product and {operator}",
            metrics=(
                Metric(name="together_s", unit="s", value=mean_s, samples=tuple(together_s)),
                Metric(
                    name="hidden_fraction",
                    unit="",
                    value=hidden,
                    better="higher",
                    samples=tuple(shares),
                    gate="difference",
                    margin=HIDDEN_MARGIN,
                ),
            ),
            measured_s=mean_s,
            detail=FusionDetail(
                operator=operator,
                matmul_s=sum(matmul_s) / len(matmul_s),
                operator_s=sum(alone_s) / len(alone_s),
                together_s=mean_s,
                hidden=hidden,
                interval=bounds,
                traffic_share=explained,
                what=what,
            ),
        )


def _medians_s(measured: Measured, name: str) -> tuple[float, ...]:
    """Returns the median of each round that has any. Raises MeasurementError where none has."""
    measured.samples(name)
    return tuple(median(row[name]) for row in measured.rounds if row.get(name))


def interval_of(shares: Sequence[float]) -> tuple[float, float] | None:
    """Student's t of the rounds; None for fewer than two."""
    import numpy as np

    from pytest_npubench.stats.margin_test import interval

    if len(shares) < 2:
        return None
    low, high = interval(
        float(np.mean(shares)), float(np.std(shares, ddof=1)) / math.sqrt(len(shares)), len(shares) - 1
    )
    return float(low), float(high)


def bound_words(bounds: tuple[float, float] | None, explained: float) -> str:
    """Returns a key of WORDS. Where kept traffic explains all of it (silu), hidden is what leaves less than 1 - ALL."""
    if bounds is None:
        return "undecided"
    low, high = bounds
    if low > min(explained, ALL):
        return "hidden"
    if low > 0:
        return "partly" if high <= min(explained, ALL) else "undecided"
    return "not fused" if high < HALF else "undecided"


KIND = FusionKind()
