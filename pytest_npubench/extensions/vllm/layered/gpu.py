"""vLLM's worker for CUDA with our model runner, and the calls that tell what it counted."""

from __future__ import annotations

from typing import Any

from vllm import __version__ as vllm_version
from vllm.v1.worker.gpu_worker import Worker

from pytest_npubench.extensions.vllm.layered.refusals import check_supported
from pytest_npubench.extensions.vllm.layered.router_counter import RouterCounter
from pytest_npubench.extensions.vllm.layered.runner import LayeredModelRunner


class GpuLayeredWorker(Worker):  # type: ignore[misc] # vLLM is absent where types are checked
    """Raises ConfigError where layered prefill cannot run (refusals.py).

    count_experts, expert_activations and layered_counts are for vLLM's collective_rpc, which calls them by name.
    """

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        check_supported(vllm_config, vllm_version)
        super().__init__(vllm_config, *args, **kwargs)
        self._experts: RouterCounter | None = None

    def _make_model_runner(self) -> Any:
        return LayeredModelRunner(self.vllm_config, self.device)

    def count_experts(self) -> None:
        """Count from now on."""
        if self._experts is None:
            self._experts = RouterCounter(getattr(self.model_config.hf_text_config, "num_experts_per_tok", 1))
            self._experts.attach(self.model_runner.get_model())

    def expert_activations(self) -> int | None:
        """Since count_experts; None where it was not called."""
        return None if self._experts is None else self._experts.num_activations

    def layered_counts(self) -> dict[str, int]:
        counts: dict[str, int] = self.model_runner.layered_counts()
        return counts
