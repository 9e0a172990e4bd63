"""The scheduling suite on our own decoders: torch_moe, and jax_moe where a family has jax and no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.serving.iteration import Executor
from pytest_npubench.suites.scheduling.jax_serving import JaxServing
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.service import AskedExecutor, ServingService
from pytest_npubench.suites.scheduling.torch_serving import TorchServing

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime


class ReferenceServing(ServingService):
    tells_answers = True

    def has_graphs(self, family: str) -> bool:
        return family == "cuda"

    def why_unsupported(self, plan: ServingPlan, points: Iterable[CampaignPoint]) -> str:
        return _of(plan).why_unsupported(plan, points)

    def executor(self, plan: ServingPlan, runtime: Runtime) -> Executor:
        return _of(plan).executor(plan, runtime)

    def asked_executor(self, plan: ServingPlan, runtime: Runtime) -> AskedExecutor:
        return _of(plan).asked_executor(plan, runtime)

    def pads_context(self, plan: ServingPlan) -> bool:
        return _of(plan).pads_context(plan)


def _of(plan: ServingPlan) -> ServingService:
    return JaxServing() if plan.framework == "jax" else TorchServing()
