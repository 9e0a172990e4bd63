"""What an engine with a mind of its own (such as vLLM) declared of its buckets, as the rounds of a campaign keep it.

Each visit of a batch leaves, beside its time, the lengths that the engine said it pads prompts to (points.BucketVisit).
Where it declared none latency is continuous, and the plan's buckets are nominal.

Worked example: plan (128, 256) on vLLM for a CPU, which declares nothing: continuous. The same on a TPU that declared
(16, 32, 64, 128, 256): a stair, whose boundaries those are.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import declared_in


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
