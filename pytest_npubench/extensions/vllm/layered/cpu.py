"""The same on vLLM's CPU build, whose runner and worker derive from those for CUDA."""

from __future__ import annotations

from vllm.v1.worker.cpu_worker import CPUWorker  # isort: skip # it asks to be imported first
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from pytest_npubench.extensions.vllm.layered.gpu import GpuLayeredWorker
from pytest_npubench.extensions.vllm.layered.runner import LayeredModelRunner


class CpuLayeredModelRunner(LayeredModelRunner, CPUModelRunner):  # type: ignore[misc] # vLLM is absent, see runner.py
    """Stages on a CPU."""


class CpuLayeredWorker(GpuLayeredWorker, CPUWorker):  # type: ignore[misc] # likewise
    """A CPU's worker names its runner's class in init_device, so that one is built and replaced."""

    def init_device(self) -> None:
        super().init_device()
        self.model_runner = CpuLayeredModelRunner(self.vllm_config, self.device)
