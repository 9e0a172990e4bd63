"""The scheduling suite on engines/jax_moe under our own schedulers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.engines.jax_moe import why_not_served
from pytest_npubench.engines.jax_moe.sizes import ServingSizes
from pytest_npubench.serving.iteration import Executor
from pytest_npubench.suites.scheduling.pair import POLICY as ON_TWO_DEVICES
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.service import AskedExecutor, ServingService

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime


class JaxServing(ServingService):
    tells_answers = True

    def why_unsupported(self, plan: ServingPlan, points: Iterable[CampaignPoint]) -> str:
        if any(isinstance(point, ServedPoint) and point.policy == ON_TWO_DEVICES for point in points):
            return f"policy {ON_TWO_DEVICES} runs in two processes of torch_moe; jax_moe serves in one"
        return why_not_served(plan.shape, plan.spec.family, plan.spec.tensor_parallel)

    def executor(self, plan: ServingPlan, runtime: Runtime) -> Executor:
        from pytest_npubench.engines.jax_moe.executor import JaxExecutor  # jax is imported where it is needed

        return JaxExecutor(plan.shape, runtime, **_settings(plan, runtime))

    def asked_executor(self, plan: ServingPlan, runtime: Runtime) -> AskedExecutor:
        from pytest_npubench.engines.jax_moe.probed import ProbedJaxExecutor

        return ProbedJaxExecutor(plan.shape, runtime, **_settings(plan, runtime))


def serving_sizes(plan: ServingPlan) -> ServingSizes:
    """What the plan's binaries are compiled for."""
    serving = plan.serving
    return ServingSizes(
        kv_capacity_tokens=serving.kv_capacity_tokens,
        block_size_tokens=serving.block_size_tokens,
        chunk_tokens=plan.most_tokens_per_iteration,
        max_batch_size=serving.max_batch_size,
    )


def _settings(plan: ServingPlan, runtime: Runtime) -> dict[str, Any]:
    """Gives both executors of a campaign the same binaries, which are compiled once."""
    serving, sizes = plan.serving, serving_sizes(plan)
    compiled = _compiled(cast(Hashable, runtime), plan.shape, serving.dtype, sizes)
    return {"dtype": serving.dtype, "sizes": sizes, "compiled": compiled}


@lru_cache(maxsize=1)
def _compiled(*settings: Hashable) -> dict[str, Any]:
    """Returns the binaries of these settings by name, as they are compiled."""
    return {}
