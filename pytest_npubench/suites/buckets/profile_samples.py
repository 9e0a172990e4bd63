"""From a campaign's rounds to what predictors are fitted on: the profile points, and nothing of the drawn batches.

What an engine with a mind of its own (such as vLLM) declared of its buckets, as the rounds of a campaign keep it.

Each visit of a batch leaves, beside its time, the lengths that the engine said it pads prompts to (points.BucketVisit).
Where it declared none latency is continuous, and the plan's buckets are nominal.

Worked example: plan (128, 256) on vLLM for a CPU, which declares nothing: continuous. The same on a TPU that declared
(16, 32, 64, 128, 256): a stair, whose boundaries those are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.protocol import ProfileSamples
from pytest_npubench.predictors.two_point import fit
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import declared_in


def profile_samples(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> ProfileSamples:
    """Those of these buckets, with the moves into each but the smallest. Raises MeasurementError where one failed."""
    samples_s = {
        point: measured.samples(plan.profile_point(point).name).samples_s for point in plan.profile_points(buckets)
    }
    transitions_s = {
        move.move[1]: measured.samples(move.name).mean_s
        for move in plan.moves(sorted(buckets)[1:])
        if move.move is not None
    }
    return ProfileSamples(
        samples_s=samples_s,
        batch_size=plan.batch_size,
        finished=plan.service.finished,
        keys=plan.service.keys(tuple(sorted(buckets))),
        prefill_shared=plan.service.prefill_shared,
        transitions_s=transitions_s or None,
        compiles=tuple(record for bucket in buckets for record in bucket_binaries(measured.compiles, bucket)),
    )


def lens_profile(plan: BucketPlan, measured: Measured, buckets: Sequence[int]) -> BucketProfile:
    """TTFT_b, TBT_b and the moves into these buckets, by the mean over all rounds.

    The mean, because an E2E is a sum of steps and the mean of a sum is the sum of the means; the median is not.
    """
    found = profile_samples(plan, measured, buckets)
    return fit(
        found.samples_s,
        batch_size=found.batch_size,
        prefill_shared=found.prefill_shared,
        transitions_s=found.transitions_s,
    )


def bucket_binaries(compiles: Iterable[CompileRecord], bucket: int) -> tuple[CompileRecord, ...]:
    """The prefill and decode binaries of one bucket."""
    return tuple(
        record
        for record in compiles
        if record.name.startswith(("prefill-", "decode-")) and record.name.endswith(f"-{bucket}")
    )


def continuous_words(plan: BucketPlan) -> str:
    return f"{plan.runner.title} has no buckets here: latency is continuous"


def nominal_words(plan: BucketPlan) -> str:
    return f"{continuous_words(plan)}, so LENS's staircase is compared with a slope"


def is_continuous(plan: BucketPlan, measured: Measured) -> bool:
    """Whether the plan's buckets are nominal: no compiler and no engine has them."""
    return plan.service.pads_as_it_will and not declared_in(measured.rounds)


def boundaries(plan: BucketPlan, measured: Measured) -> tuple[int, ...]:
    """Lengths of prompts behind which a step is declared."""
    from pytest_npubench.core.buckets import Spans

    if plan.service.pads_as_it_will:
        return declared_in(measured.rounds)
    return Spans.of(plan.keys.prefill_key, plan.keys.max_input_tokens).edges


def mismatch(plan: BucketPlan, found: Sequence[int]) -> str | None:
    """Why LENS cannot be profiled: the engine declares another set than the plan has. None where it can."""
    if not found or tuple(found) == plan.buckets:
        return None
    return (
        f"{plan.runner.title} declares the buckets {_listed(found)}, the plan has {_listed(plan.buckets)}; want one "
        f"set: name {plan.runner.title}'s in [buckets] of a hardware file (--npubench-hardware)"
    )


def _listed(buckets: Sequence[int]) -> str:
    return ", ".join(map(str, buckets))
