"""Run by test_tensor_parallel.py in a process with four host devices: a decoder on each number of them, as JSON."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import jax
import numpy as np

from pytest_npubench.backends.jax_runtime import JaxRuntime
from pytest_npubench.backends.protocol import Device
from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.jax_dense.graph_form import PORTABLE, GraphForm
from pytest_npubench.engines.jax_dense.layers import write_rows
from pytest_npubench.engines.jax_dense.splash_attention import attend_splash

from .decoders import SPLIT, Oracle, mixed
from .oracle import exact

BUCKETS = (8, 16)
LENGTHS = ((5, 9), (7, 3), (12, 2))  # the first row's steps cross from 8 to 16, the third's prompt does before them


def main() -> None:
    sys.stdout.write(json.dumps([answer(int(number)) for number in sys.argv[1:]]))


def answer(num_devices: int) -> dict[str, Any]:
    devices = [Device(family="cpu", ordinal=ordinal, name="host") for ordinal in range(num_devices)]
    runtime = JaxRuntime("cpu", devices, None)
    engine = StaticBucketEngine(SPLIT, runtime, buckets=BUCKETS, batch_size=len(LENGTHS))
    engine.weights = weights = mixed(engine.weights)
    engine.load(BUCKETS)
    asked = [Oracle(engine).ask(*lengths) for lengths in LENGTHS]
    num_compiles = runtime.num_process_compiles
    generation = engine.generate([one.prompt for one in asked], [one.count for one in asked])
    split = {**weights["layers"][0], "embedding": weights["embedding"], "head": weights["head"]}
    return {
        "tokens": generation.tokens,
        "oracle": [one.answer.tokens for one in asked],
        "moves": [[move.from_bucket, move.to_bucket] for move in generation.run.moves],
        "compiles_in_run": runtime.num_process_compiles - num_compiles,
        "weights_sum": [float(np.abs(array).sum()) for array in jax.tree.leaves(exact(weights))],
        "prompt_error": prompt_error(engine),
        "weight_bytes": device_bytes(weights),
        "cache_bytes": device_bytes(engine._caches[16]),
        "shards": shards({**split, "cache": engine._caches[16].keys[0]}),
    }


def shards(arrays: dict[str, jax.Array]) -> dict[str, Any]:
    """Of each array: the number of devices that hold a part, and the shape of one part."""
    return {
        name: [len({part.device for part in array.addressable_shards}), array.addressable_shards[0].data.shape]
        for name, array in arrays.items()
    }


def prompt_error(engine: StaticBucketEngine) -> float:
    """How far a prompt's hidden state is off where a TPU's kernel attends to it, heads split over the devices."""
    prompt, scalar = np.arange(16, dtype=np.int32), np.int32(11)
    kernel = GraphForm(
        write_step=write_rows, attend_prompt=partial(attend_splash, engine._binaries.mesh, interpret=True)
    )
    hidden = []
    for form in (PORTABLE, kernel):
        step = jax.jit(partial(forward.prefill_hidden, engine.shape, form=form))
        hidden.append(np.asarray(step(engine.weights, engine._new_caches(16), prompt, scalar, np.int32(0))[0]))
    return float(np.abs(hidden[0] - hidden[1]).max())


def device_bytes(tree: Any) -> int:
    """What lies on the first of the devices."""
    return sum(array.addressable_shards[0].data.nbytes for array in jax.tree.leaves(tree))


if __name__ == "__main__":
    main()
