"""The reference engine with a mixture of experts, in torch: one executor, whatever the scheduling policy.

    TorchExecutor      iteration.Executor on a CPU or one CUDA device, on the wall clock
    MoeModel           run_layers(first, stop, ...) over a ragged batch with a paged KV cache
    random_weights     seeded, with a router as skewed as a trained one; load_weights reads Hugging Face directories

torch is imported in this folder and nowhere else. Raises DeviceUnavailableError where it is not installed.
"""

from __future__ import annotations

from importlib.util import find_spec

from pytest_npubench.errors import DeviceUnavailableError

if find_spec("torch") is None:
    raise DeviceUnavailableError("the engine torch_moe needs torch, which is not installed; `pip install torch`")

from pytest_npubench.engines.torch_moe.executor import TorchExecutor

__all__ = ["TorchExecutor"]
