"""Devices, dtypes, sizes and plans that cannot be run fail by name."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytest_npubench.engines.torch_moe import TorchExecutor  # noqa: E402
from pytest_npubench.engines.torch_moe.device import memory_for  # noqa: E402
from pytest_npubench.errors import ConfigError, DeviceUnavailableError, MeasurementError  # noqa: E402
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow  # noqa: E402

from .small_shapes import QWEN_DENSE, QWEN_MOE  # noqa: E402

NUM_LAYERS = QWEN_MOE.num_layers


@pytest.fixture
def served() -> Any:
    executor = _engine()
    executor.begin(1, 6, 4)
    yield executor
    executor.end(1)


@cache
def _engine() -> Any:
    return TorchExecutor(QWEN_MOE, kv_capacity_tokens=32, block_size_tokens=4)


def prefill(first: int, stop: int, first_token: int, num_tokens: int, request: int = 1) -> LayerPass:
    return LayerPass(LayerGroup(first, stop), (PrefillRow(request, first_token, num_tokens),))


@pytest.mark.parametrize("device", ["tpu", "cpu:0", "cuda:x", ""])
def test_other_devices(device: str) -> None:
    with pytest.raises(ConfigError, match="want cpu, cuda or cuda:N"):
        TorchExecutor(QWEN_DENSE, kv_capacity_tokens=16, device=device)


def test_a_device_that_is_not_there() -> None:
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(DeviceUnavailableError, match=absent):
        TorchExecutor(QWEN_DENSE, kv_capacity_tokens=16, device=absent)


def test_other_dtypes() -> None:
    with pytest.raises(ConfigError, match="dtype is 'int8'; want one of fp32, bf16, fp16"):
        TorchExecutor(QWEN_DENSE, kv_capacity_tokens=16, dtype="int8")


def test_a_cache_larger_than_memory() -> None:
    with pytest.raises(MeasurementError, match=r"a KV cache of 10,000,000,000,000 tokens takes \d+\.\d GB; cpu has"):
        TorchExecutor(QWEN_DENSE, kv_capacity_tokens=10**13)


def test_weights_larger_than_memory() -> None:
    huge = dataclasses.replace(QWEN_DENSE, vocab_size=10**13)
    with pytest.raises(MeasurementError, match=r"weights of test-qwen-dense takes? .* GB; cpu has"):
        TorchExecutor(huge, kv_capacity_tokens=16)


def test_an_allocation_that_fails_names_what_it_was_for() -> None:
    host = torch.device("cpu")
    with pytest.raises(MeasurementError, match="out of memory on cpu for some states"), memory_for("some states", host):
        torch.empty(2**45)
    with pytest.raises(RuntimeError, match="something else"), memory_for("some states", host):
        raise RuntimeError("something else")


def test_a_full_cache(served: Any) -> None:
    served.begin(2, 33, 1)
    with pytest.raises(MeasurementError, match="request 2 needs 9 more blocks"):
        served.run(IterationPlan(passes=(prefill(0, NUM_LAYERS, 0, 33, request=2),), finishing=(2,)))
    served.end(2)


def test_requests_begin_once_and_have_a_prompt(served: Any) -> None:
    with pytest.raises(MeasurementError, match="request 1 has begun already"):
        served.begin(1, 6, 4)
    with pytest.raises(MeasurementError, match="request 2 has a prompt of 0 tokens"):
        served.begin(2, 0, 4)
    with pytest.raises(MeasurementError, match="request 3 has not begun"):
        served.end(3)


@pytest.mark.parametrize(
    ("plans", "complaint"),
    [
        ([IterationPlan(passes=(prefill(0, 2, 1, 3),))], "runs 3 tokens from token 1 on; want token 0 next, of 6"),
        ([IterationPlan(passes=(prefill(0, 2, 0, 7),))], "7 tokens from token 0 on; want token 0 next, of 6"),
        ([IterationPlan(passes=(prefill(0, 2, 0, 0),))], "0 tokens from token 0"),
        ([IterationPlan(passes=(prefill(0, 2, 0, 3),))] * 2, "want token 3 next"),
        ([IterationPlan(passes=(prefill(2, 4, 0, 3),))], "tokens up to 2 through later layers; layer 0 has seen 0"),
        (
            [IterationPlan(passes=(prefill(0, 2, 0, 6),)), IterationPlan(passes=(prefill(3, 5, 0, 6),))],
            "before layer 2",
        ),
        ([IterationPlan(passes=(prefill(0, 2, 0, 6),)), IterationPlan(passes=(prefill(2, 5, 0, 5),))], "of 6 tokens"),
        ([IterationPlan(passes=(prefill(0, NUM_LAYERS, 0, 6),))], r"requests \[\] finish; those that did are \[1\]"),
        ([IterationPlan(passes=(prefill(0, 2, 0, 6),), finishing=(1,))], r"requests \[1\] finish; .* are \[\]"),
        ([IterationPlan(decode=(1,), passes=(LayerPass(LayerGroup(0, NUM_LAYERS)),))], "1 tokens from token 5 on"),
        ([IterationPlan(decode=(1,), passes=(LayerPass(LayerGroup(0, 2)),))], "decodes through 2 of 5 layers"),
        ([IterationPlan(decode=(1,), passes=(LayerPass(LayerGroup(1, 5)),))], "leave no layer out"),
        ([IterationPlan(passes=(prefill(2, 4, 0, 3), prefill(0, 2, 0, 3)))], "in order"),
        ([IterationPlan(passes=(prefill(0, 6, 0, 3),))], "layers 0 to 5 of 5"),
    ],
)
def test_plans_that_skip_or_repeat(served: Any, plans: list[IterationPlan], complaint: str) -> None:
    for plan in plans[:-1]:
        served.run(plan)
    with pytest.raises(MeasurementError, match=complaint):
        served.run(plans[-1])


def test_the_rest_of_the_package_does_without_torch() -> None:
    """Nothing outside the engine's folder imports torch; the engine without torch says what it needs."""
    script = """
import sys
sys.modules["torch"] = None
import pkgutil, importlib, pytest_npubench.engines as engines
import pytest_npubench.serving.iteration, pytest_npubench.engines.shapes
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
from pytest_npubench.errors import DeviceUnavailableError
try:
    import pytest_npubench.engines.torch_moe
except DeviceUnavailableError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "needs torch, which is not installed" in done.stdout
