"""The TPU's own compiler on the decoder: it runs without a TPU, so its binaries can be looked at anywhere.

Skipped unless libtpu is installed (`pip install libtpu`); no test dependency, as its licence is Google Cloud's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes

from .tpu_compile_child import BATCH_SIZE, BUCKET, SHAPE

pytestmark = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")

# no lock, no metadata server, and no device of its own for jax to look for
ENVIRONMENT = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    assert __package__ is not None
    child = subprocess.run(
        [sys.executable, "-m", f"{__package__}.tpu_compile_child"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[len(__package__.split("."))],
        env=os.environ | ENVIRONMENT,
    )
    assert child.returncode == 0, child.stderr
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


def test_a_decode_step_copies_no_cache(compiled: dict[str, Any]) -> None:
    assert compiled["own"]["decode"]["cache_copies"] == []


def test_a_scatter_would_copy_it(compiled: dict[str, Any]) -> None:
    """Keys and values, there and back: the form for other devices shows that the test above can see copies."""
    assert len(compiled["portable"]["decode"]["cache_copies"]) >= 4


@pytest.mark.parametrize("step", ["prefill", "decode"])
def test_caches_are_written_in_place(compiled: dict[str, Any], step: str) -> None:
    assert compiled["own"][step]["alias_bytes"] >= cache_bytes(SHAPE, BUCKET, BATCH_SIZE, "bf16", 4)


def test_bytes_a_device_are_those_counted(compiled: dict[str, Any]) -> None:
    """The compiler's layouts pad a cache of head_dim 64 by nothing; a norm takes up a whole tile."""
    counted = weight_bytes(SHAPE, "bf16", 4) + cache_bytes(SHAPE, BUCKET, BATCH_SIZE, "bf16", 4)
    assert compiled["own"]["decode"]["argument_bytes"] == pytest.approx(counted, rel=0.01)


def test_the_prompts_attention_is_a_kernel(compiled: dict[str, Any]) -> None:
    assert compiled["own"]["prefill"]["kernels"] == 1
