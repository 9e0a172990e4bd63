"""What a plan must hold to be run, whoever wrote it. Tokens and hidden states are checked where they are kept."""

from __future__ import annotations

from collections.abc import Collection

from pytest_npubench.errors import MeasurementError
from pytest_npubench.iteration import IterationPlan


def check_layers(plan: IterationPlan, num_layers: int) -> None:
    """Raises MeasurementError unless the passes are in order, and with decode rows cover every layer."""
    reached = 0
    for item in plan.passes:
        first, stop = item.group
        if not reached <= first < stop <= num_layers or (plan.decode and first != reached):
            raise MeasurementError(
                f"the plan runs layers {first} to {stop - 1} of {num_layers} after layer {reached - 1}; want passes in "
                "order that do not overlap and, with decode rows, leave no layer out"
            )
        reached = stop
    if plan.decode and reached != num_layers:
        raise MeasurementError(f"the plan decodes through {reached} of {num_layers} layers; want all of them")


def check_finishing(plan: IterationPlan, finished: Collection[int]) -> None:
    """Raises MeasurementError unless the prompts that finish are those whose last token left the last layer."""
    if set(plan.finishing) != set(finished):
        raise MeasurementError(
            f"the plan says that the prompts of requests {sorted(plan.finishing)} finish; those that did are "
            f"{sorted(finished)}"
        )
