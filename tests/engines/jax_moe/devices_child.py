"""Run by test_jax_moe.py in a process with four host devices: what is served on each number of them, as JSON."""

from __future__ import annotations

import json
import sys
from random import Random

from small_decoders import small_mixture

from engines.torch_moe.driving import drive
from pytest_npubench.backends.jax_runtime import JaxRuntime
from pytest_npubench.backends.protocol import Device
from pytest_npubench.engines.jax_moe.executor import JaxExecutor
from pytest_npubench.engines.jax_moe.sizes import ServingSizes

# two key-value heads: four devices have a copy each of one of them
SHAPE = small_mixture("test-split", 8, 3, num_heads=8, num_kv_heads=2, hidden=48, intermediate=24)
SIZES = ServingSizes(kv_capacity_tokens=160, block_size_tokens=4, chunk_tokens=160, max_batch_size=8)
LENGTHS = {3: (1, 4), 8: (19, 5), 12: (10, 6)}


def main() -> None:
    served = []
    for num_devices in map(int, sys.argv[1:]):
        devices = [Device(family="cpu", ordinal=ordinal, name="host") for ordinal in range(num_devices)]
        executor = JaxExecutor(SHAPE, JaxRuntime("cpu", devices, None), dtype="fp32", sizes=SIZES)
        tokens, ran = drive(executor, LENGTHS, Random(1))
        parts = {name: array.addressable_shards[0].data.shape for name, array in executor._weights.items()}
        served.append([tokens, [item.outcome.expert_activations for item in ran], parts])
    sys.stdout.write(json.dumps(served))


if __name__ == "__main__":
    main()
