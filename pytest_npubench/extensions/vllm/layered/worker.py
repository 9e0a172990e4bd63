"""LayeredWorker: what vLLM is given as worker_cls, for the platform that the installed vLLM serves.

Raises ConfigError on platforms without a V1 runner that was looked at.
"""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform

from pytest_npubench.errors import ConfigError


def _worker_for(platform: Any) -> Any:
    if platform.is_cpu():
        from pytest_npubench.extensions.vllm.layered.cpu import CpuLayeredWorker

        return CpuLayeredWorker
    if platform.is_cuda():
        from pytest_npubench.extensions.vllm.layered.gpu import GpuLayeredWorker

        return GpuLayeredWorker
    raise ConfigError(f"layered prefill in vLLM: platform {platform.device_name}; want vLLM for CPUs or CUDA")


LayeredWorker = _worker_for(current_platform)
