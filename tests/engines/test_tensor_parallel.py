"""One, two and four devices give the oracle's tokens, and each device holds its part of the weights and no more.

The devices are the host's processor presented as four, in a process of its own: their number is fixed when jax starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes

from .decoders import SPLIT

FOUR = "--xla_force_host_platform_device_count=4"
FLAGS = {"XLA_FLAGS": f"{FOUR} {os.environ.get('XLA_FLAGS', '')}", "JAX_PLATFORMS": "cpu"}
TWO = pytest.param(2, marks=pytest.mark.soak)
QUICK = (1, 4)


class Answers(dict[int, Any]):
    """What the child tells, by the number of devices; asked for when a test first needs it, of QUICK at once."""

    def __missing__(self, num_devices: int) -> Any:
        assert __package__ is not None
        asked = QUICK if num_devices in QUICK else (num_devices,)
        root = Path(__file__).parents[len(__package__.split("."))]
        child = subprocess.run(
            [sys.executable, "-W", "error", "-m", f"{__package__}.tensor_parallel_child", *map(str, asked)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=root,
            env=os.environ | FLAGS,
        )
        assert child.returncode == 0, child.stderr
        self.update(zip(asked, json.loads(child.stdout), strict=True))
        return self[num_devices]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


@pytest.mark.parametrize("num_devices", [1, TWO, 4])
def test_tokens_do_not_depend_on_the_number_of_devices(answers: dict[int, Any], num_devices: int) -> None:
    assert answers[num_devices]["tokens"] == answers[num_devices]["oracle"] == answers[1]["tokens"]
    assert answers[num_devices]["moves"] == [[8, 16]]


@pytest.mark.parametrize("num_devices", [TWO, 4])
def test_weights_do_not_depend_on_the_number_of_devices(answers: dict[int, Any], num_devices: int) -> None:
    assert answers[num_devices]["weights_sum"] == pytest.approx(answers[1]["weights_sum"], rel=1e-6)


@pytest.mark.parametrize("num_devices", [1, TWO, 4])
def test_running_on_several_devices_compiles_nothing(answers: dict[int, Any], num_devices: int) -> None:
    assert answers[num_devices]["compiles_in_run"] == 0


@pytest.mark.parametrize("num_devices", [1, TWO, 4])
def test_each_device_holds_its_part(answers: dict[int, Any], num_devices: int) -> None:
    """hidden 64, 8 query and 4 key-value heads of 8, feed-forward 96, vocabulary 128, batch 3, bucket 16."""
    n = num_devices
    assert {name: shape for name, (_, shape) in answers[n]["shards"].items()} == {
        "wq": [64, 64 // n],
        "wk": [64, 32 // n],
        "wv": [64, 32 // n],
        "wo": [64 // n, 64],
        "w_gate": [64, 96 // n],
        "w_up": [64, 96 // n],
        "w_down": [96 // n, 64],
        "attention_norm": [64],
        "ffn_norm": [64],
        "q_norm": [8],
        "k_norm": [8],
        "embedding": [128 // n, 64],
        "head": [128 // n, 64],
        "cache": [3, 4 // n, 16, 8],
    }
    assert {num_holders for num_holders, _ in answers[n]["shards"].values()} == {n}


@pytest.mark.parametrize("num_devices", [1, TWO, 4])
def test_bytes_a_device_are_those_counted(answers: dict[int, Any], num_devices: int) -> None:
    assert answers[num_devices]["weight_bytes"] == weight_bytes(SPLIT, "fp32", num_devices)
    assert answers[num_devices]["cache_bytes"] == cache_bytes(SPLIT, 16, 3, "fp32", num_devices)


@pytest.mark.parametrize("num_devices", [1, TWO, 4])
def test_the_kernel_of_a_tpu_attends_with_its_devices_own_heads(answers: dict[int, Any], num_devices: int) -> None:
    assert answers[num_devices]["prompt_error"] < 1e-5
