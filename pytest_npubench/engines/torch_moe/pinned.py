"""An engine for a process that has a share of the processors, made where that process runs."""

from __future__ import annotations

from typing import Any

import torch

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.executor import TorchExecutor


def num_threads() -> int:
    """With how many threads the engines of this process compute."""
    return int(torch.get_num_threads())


def executor_of_threads(threads: int, shape: DecoderShape, settings: dict[str, Any]) -> TorchExecutor:
    """Returns a TorchExecutor with these keyword arguments, in a process that computes with so many threads from here
    on."""
    torch.set_num_threads(threads)
    return TorchExecutor(shape, **settings)
