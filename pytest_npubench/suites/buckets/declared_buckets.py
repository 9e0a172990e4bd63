"""What an engine with a mind of its own (such as vLLM) declared of its buckets, as the rounds of a campaign keep it.

Each visit of a batch leaves, beside its time, a series "NAME/declared" with the lengths that the engine said it pads
prompts to. Where it declared none the series is absent: latency is then continuous, and the plan's buckets are nominal.

Worked example: plan (128, 256) on vLLM for a CPU, which declares nothing: continuous. The same on a TPU that declared
(16, 32, 64, 128, 256): a stair, whose boundaries those are.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.campaign.points import Measured
from pytest_npubench.suites.buckets.plan import BucketPlan

SERIES = "/declared"


def continuous_words(plan: BucketPlan) -> str:
    return f"{plan.runner.title} has no buckets here: latency is continuous"


def nominal_words(plan: BucketPlan) -> str:
    return f"{continuous_words(plan)}, so a stair is held against a slope"


def series_name(point: str) -> str:
    return f"{point}{SERIES}"


def declared(measured: Measured) -> tuple[int, ...]:
    """The lengths that the engine declared in any round, ascending; empty where it declared none."""
    return tuple(
        sorted({int(value) for row in measured.rounds for name in row if name.endswith(SERIES) for value in row[name]})
    )


def is_continuous(plan: BucketPlan, measured: Measured) -> bool:
    """Whether the plan's buckets are nominal: no compiler and no engine has them."""
    return plan.service.pads_as_it_will and not declared(measured)


def boundaries(plan: BucketPlan, measured: Measured) -> tuple[int, ...]:
    """Lengths of prompts behind which a step is declared."""
    from pytest_npubench.core.buckets import Spans

    if plan.service.pads_as_it_will:
        return declared(measured)
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
