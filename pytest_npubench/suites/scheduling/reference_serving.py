"""The scheduling suite on our own decoders: torch_moe, and jax_moe where a family has jax and no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.serving.iteration import Executor
from pytest_npubench.suites.scheduling.jax_serving import JaxServing
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.service import AskedExecutor, ServingService

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import CampaignPoint


class TorchServing(ServingService):
    tells_answers = True
    _why_no_graphs = ""  # of the executor that this process made last

    def executor(self, plan: ServingPlan, runtime: Runtime) -> Executor:
        from pytest_npubench.engines.torch_moe.executor import TorchExecutor  # torch is imported where it is needed

        executor = TorchExecutor(plan.shape, **_settings(plan, runtime))
        self._why_no_graphs = executor.why_no_graphs
        return executor

    def remarks(self, plan: ServingPlan, points: Iterable[CampaignPoint]) -> Sequence[str]:
        if not self._why_no_graphs:
            return ()
        return (f"{plan.key}: decode batches were launched kernel by kernel, without graphs: {self._why_no_graphs}",)

    def asked_executor(self, plan: ServingPlan, runtime: Runtime) -> AskedExecutor:
        from pytest_npubench.engines.torch_moe.probed import ProbedExecutor

        return ProbedExecutor(plan.shape, **_settings(plan, runtime))

    def pads_context(self, plan: ServingPlan) -> bool:
        """torch's own attention does, and it runs wherever FlashAttention does not."""
        return plan.spec.family == "cpu" or plan.serving.dtype == "fp32"


def _settings(plan: ServingPlan, runtime: Runtime) -> dict[str, Any]:
    from pytest_npubench.engines.torch_moe.decode_graphs import CudaCapture

    serving, device = plan.serving, str(runtime.devices[0])
    return {
        "device": device,
        "dtype": serving.dtype,
        "kv_capacity_tokens": serving.kv_capacity_tokens,
        "block_size_tokens": serving.block_size_tokens,
        "make_capture": CudaCapture if plan.graphs and device.startswith("cuda") else None,
    }


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
