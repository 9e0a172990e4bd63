"""Engines of small models in child processes, one a policy and model, shared by the tests of this folder.

They run where vLLM is: in this environment, or in the one that NPUBENCH_VLLM_PYTHON names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from engines.written_shapes import DENSE, MOE
from plugin.conftest import settings

from pytest_npubench.engines.model_directory import write_model_directory
from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE, VllmProcess, VllmProcesses
from pytest_npubench.extensions.vllm.settings import EngineSettings

__all__ = ["settings"]

CAPACITY_TOKENS = 2048
POLICIES: dict[str, tuple[tuple[str, Any], ...]] = {
    "chunked": (("chunk_size_tokens", 32),),
    "continuous": (),
    "layered": (("tokens_per_iteration", 32),),
    "hybrid": (("chunk_size_tokens", 64), ("tokens_per_iteration", 32)),
}
Open = Callable[..., VllmProcess]


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {shape.name: write_model_directory(folder / shape.name, shape) for shape in (MOE, DENSE)}


@pytest.fixture(scope="session")
def processes() -> Iterator[VllmProcesses]:
    if not os.environ.get(PYTHON_VARIABLE) and find_spec("vllm") is None:
        pytest.skip(f"vLLM is not installed here, and {PYTHON_VARIABLE} names no environment with it")
    opened = VllmProcesses(most=5)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.setenv(name, "http://127.0.0.1:9")  # nothing listens there: a look at the network would fail
        patch.setenv("OMP_NUM_THREADS", "1")
        yield opened
        opened.close()


@pytest.fixture
def engine(processes: VllmProcesses, directories: dict[str, Path]) -> Open:
    """The engine of a shape's name and a policy."""

    def start(shape: str = MOE.name, policy: str = "chunked", **settings: Any) -> VllmProcess:
        settings = {"policy_settings": POLICIES.get(policy, ()), "kv_capacity_tokens": CAPACITY_TOKENS, **settings}
        return processes.get(EngineSettings(model=directories[shape], policy=policy, **settings))

    return start
