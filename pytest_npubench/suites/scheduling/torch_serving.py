"""The reference engine of the scheduling suite: engines/torch_moe under our own schedulers."""

from __future__ import annotations

from pytest_npubench.serving.iteration import Executor
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.service import ServingService


class TorchServing(ServingService):
    def executor(self, plan: ServingPlan, device: str) -> Executor:
        from pytest_npubench.engines.torch_moe.executor import TorchExecutor  # torch is imported where it is needed

        return TorchExecutor(
            plan.shape,
            device=device,
            dtype=plan.serving.dtype,
            kv_capacity_tokens=plan.serving.kv_capacity_tokens,
            block_size_tokens=plan.serving.block_size_tokens,
        )

    def pads_context(self, plan: ServingPlan) -> bool:
        """torch's own attention does, and it runs wherever FlashAttention does not."""
        return plan.spec.family == "cpu" or plan.serving.dtype == "fp32"
