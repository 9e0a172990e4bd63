"""Does LENS find the batch size of most throughput? Every batch size measured beside its prediction (LENS, 5.4.1).

The same requests run in batches of each size, on an engine compiled for it, in the same rounds as each engine's profile
points. The case fails where the predicted best gives up more throughput than predictions within limits.case_error can
(stats/ranking.py); top-1 and Kendall's tau are figures beside it, for near ties decide them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.measurement import Request
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import SEARCH_VISIT_S, SEARCHES, BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant
from pytest_npubench.suites.protocol import ShownKind
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.verdict.case_record import CaseRecord, Cases


RANKED = (
    "The same requests on an engine of each choice, in the same rounds; predictions are from profiles alone (LENS, "
    "section 5.4)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDetail:
    """What was chosen from, with predicted and measured output tokens a second of each; the rest as in
    stats.ranking.Ranking."""

    workload: str
    choices: tuple[str, ...]
    predicted_tokens_per_s: tuple[float, ...]
    measured_tokens_per_s: tuple[float, ...]
    chosen: str
    best: str
    is_top1: bool
    regret: float
    kendall_tau: float | None


class BatchSearchKind(BucketKind, ShownKind):
    name = "batch_search"
    note = RANKED

    def axes(self, plan: BucketPlan) -> Iterable[Axes]:
        """None where the device holds one batch size: there is nothing to choose."""
        workloads = plan.size.workloads if len(plan.size.batch_sizes) > 1 else ()
        return ((("workload", workload),) for workload in workloads)

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        workload = str(case.axis("workload"))
        return tuple(
            point
            for variant in _variants(plan)
            for point in (*profile_points(plan, variant), *batch_points(plan, workload, variant))
        )

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.predictors.lens import PREDICTOR as LENS
        from pytest_npubench.suites.buckets.profile_samples import profile_samples

        workload = str(case.axis("workload"))
        predicted_s, rounds_s = {}, {}
        for variant in _variants(plan):
            variant_plan = plan.of(variant)
            fitted = LENS.fit(profile_samples(variant_plan, variant.measured(measured), variant_plan.buckets))
            batches = plan.searched_batches(workload, variant)
            name = f"batch {variant.batch_size}"
            predicted_s[name] = sum(fitted.predict(batch.requests) for batch in batches)
            rounds_s[name] = batches_s(measured, batches, variant)
        return ranked(plan, workload, "batch sizes", predicted_s, rounds_s)

    def lines(self, cases: Cases) -> Sequence[str]:
        """The lines are those of all searches."""
        return search_lines([case for kind in SEARCHES for case in cases.of(kind, SearchDetail)])


def whole(plan: BucketPlan) -> Variant:
    """The engine of the plan's batch size that has all buckets."""
    return Variant(batch_size=plan.batch_size, buckets=plan.buckets)


def profile_points(plan: BucketPlan, variant: Variant) -> tuple[BucketPoint, ...]:
    """Two points and a move of every bucket of an engine."""
    variant_plan = plan.of(variant)
    points = (
        *(variant_plan.profile_point(one) for one in variant_plan.profile_points(variant_plan.buckets)),
        *variant_plan.moves(variant_plan.buckets[1:]),
    )
    return tuple(variant.of(replace(point, visit_s=SEARCH_VISIT_S)) for point in points)


def batch_points(plan: BucketPlan, workload: str, variant: Variant) -> tuple[BucketPoint, ...]:
    return tuple(variant.of(batch) for batch in plan.searched_batches(workload, variant))


def batches_s(measured: Measured, batches: Sequence[BucketPoint], variant: Variant) -> tuple[float, ...]:
    """Seconds of all these batches on one engine, one after another, in each round."""
    return tuple(map(sum, zip(*(measured.round_means_s(variant.of(batch).name) for batch in batches), strict=True)))


def ranked(
    plan: BucketPlan,
    workload: str,
    what: str,
    predicted_s: Mapping[str, float],
    rounds_s: Mapping[str, Sequence[float]],
    requests: Sequence[Request] = (),
) -> Judgement:
    """Choices are ranked by predicted and measured seconds of the same requests, the workload's where none are given.

    Each choice has its throughput over the geometric mean of all, so that an upgrade that moves the best shows
    (comparison/upgrade.py): what makes all of them faster does not.
    """
    from pytest_npubench.stats.ranking import RELATIVE_THROUGHPUT, largest_regret, rank, relative_throughputs

    names = tuple(predicted_s)
    measured_s = {name: fmean(rounds_s[name]) for name in names}
    ranking = rank(list(predicted_s.values()), list(measured_s.values()))
    requests = requests or plan.searched_batches(workload, whole(plan))[0].requests
    tokens = sum(one.output_tokens for one in requests)
    chosen, best = names[ranking.chosen], names[ranking.best]
    gate = Gate(metric="regret", value=ranking.regret, limit=largest_regret(plan.case_error), unit="%")
    metrics = [Metric(name="regret", unit="", value=ranking.regret, gate="difference")]
    for name, samples in zip(names, relative_throughputs([rounds_s[name] for name in names]), strict=True):
        metric = f"{RELATIVE_THROUGHPUT}/{name.replace(' ', '')}"
        metrics.append(Metric(name=metric, unit="", value=fmean(samples), samples=samples, better="higher"))
    if ranking.kendall_tau is not None:
        metrics.append(Metric(name="kendall_tau", unit="", value=ranking.kendall_tau, gate="none"))
    return Judgement(
        verdict=judge_gates((gate,)),
        what=f"{len(requests)} requests on the best of {len(names)} {what}",
        metrics=tuple(metrics),
        measured_s=measured_s[chosen],
        predicted_s=predicted_s[chosen],
        error=predicted_s[chosen] / measured_s[chosen] - 1,
        detail=SearchDetail(
            workload=workload,
            choices=names,
            predicted_tokens_per_s=tuple(tokens / seconds for seconds in predicted_s.values()),
            measured_tokens_per_s=tuple(tokens / seconds for seconds in measured_s.values()),
            chosen=chosen,
            best=best,
            is_top1=ranking.is_top1,
            regret=ranking.regret,
            kendall_tau=ranking.kendall_tau,
        ),
    )


def _variants(plan: BucketPlan) -> list[Variant]:
    return [variant for variant in plan.variants if variant.buckets == plan.buckets]


def search_lines(cases: Sequence[CaseRecord[SearchDetail]]) -> list[str]:
    """A line a case: "LENS chooses batch 8 of 4 for lens-sharegpt, the measured best (regret 0.0%, tau 1.00)"."""
    return [_line(case.detail) for case in cases]


def _line(detail: SearchDetail) -> str:
    right = "the measured best" if detail.is_top1 else f"measured best: {detail.best}"
    tau = "" if detail.kendall_tau is None else f", Kendall's tau {detail.kendall_tau:.2f}"
    return (
        f"LENS chooses {detail.chosen} out of {len(detail.choices)} for {detail.workload}, {right} "
        f"(regret {detail.regret:.1%}{tau})"
    )


KIND = BatchSearchKind()
