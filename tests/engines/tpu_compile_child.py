"""Run by test_tpu_compile.py: compiles for a TPU v5e of four chips, without one, and prints what the binaries are."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import PartitionSpec as P

from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.engines.jax_dense import engine as engine_module
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.jax_dense.graph_form import PORTABLE
from pytest_npubench.engines.jax_dense.weights import random_weights, weight_specs

from .compiled_text import copies
from .decoders import TIED

# heads, head_dim and batch of llama-3.2-1b, where the copies were seen; one layer is enough to see them
SHAPE = dataclasses.replace(
    TIED, name="narrow", num_layers=1, hidden=256, num_heads=32, num_kv_heads=8, head_dim=64, vocab_size=512
)
BUCKET, BATCH_SIZE = 512, 8


class TopologyCompiler:
    """Compiles for chips that are not there, and keeps the binaries of these steps."""

    def __init__(self, steps: Sequence[str]) -> None:
        self._steps = steps
        self.devices = list(topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices)
        self.compiles: list[CompileRecord] = []
        self.binaries: dict[str, Any] = {}

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Any:
        step = name.split("-")[0]
        if step in self._steps:
            lowered = jax.jit(function, donate_argnums=donate, out_shardings=out).lower(*arguments)
            self.binaries[step] = lowered.compile()
        self.compiles.append(CompileRecord(name=name, compile_s=0.0, cache=CacheState.COLD))


class AbstractEngine(StaticBucketEngine):
    """Its weights are shapes."""

    def _make_weights(self) -> Any:
        shapes = jax.eval_shape(partial(random_weights, self.shape, dtype=self._dtype), np.uint32(0))
        specs = weight_specs(self.shape)
        shardings = jax.tree.map(self._sharding, specs, is_leaf=lambda node: isinstance(node, P))
        return jax.tree.map(
            lambda array, sharding: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding), shapes, shardings
        )


def main() -> None:
    own = binaries("prefill", "decode")
    with patch.object(engine_module, "graph_form", lambda *_: PORTABLE):
        portable = binaries("decode")
    sys.stdout.write(json.dumps({"own": own, "portable": portable}))


def binaries(*steps: str) -> dict[str, Any]:
    compiler = TopologyCompiler(steps)
    AbstractEngine(SHAPE, compiler, buckets=(BUCKET,), batch_size=BATCH_SIZE, dtype="bf16").load((BUCKET,))
    return {name: facts(binary) for name, binary in compiler.binaries.items()}


def facts(binary: Any) -> dict[str, Any]:
    text, memory = binary.as_text(), binary.memory_analysis()
    num_elements = BATCH_SIZE * SHAPE.num_kv_heads // 4 * BUCKET * SHAPE.head_dim
    return {
        "cache_copies": copies(text, num_elements=num_elements),
        "kernels": text.count('custom_call_target="tpu_custom_call"'),
        "argument_bytes": memory.argument_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
    }


if __name__ == "__main__":
    main()
