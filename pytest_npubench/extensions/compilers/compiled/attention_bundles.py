"""Cycles of a prompt's attention kernel on a TPU, from the bundles that its compiler makes of it.

The text of a module has no cycles for a hand-written kernel. libtpu writes down what it compiles (--xla_jf_dump_to),
down to the bundles that a core issues one of a cycle. What a core waits for, memory above all, is not among them, so
this is a lower bound, though a tighter one than arithmetic over the peak.

The kernel is one loop over heads, blocks of queries and blocks of keys (splash_attention.py), with branches in its
body: the longest computes a block of scores and is taken on and below the diagonal; the others begin and end a row of
blocks; what is outside of them is passed in every step. Its bundles do not depend on how many heads and blocks there
are, so four heads of two blocks are compiled in place of all, in 2 s.

Worked example: 2,048 tokens in blocks of 512 on a TPU v6e with 128 a head, 10 of 16 blocks computed. 895 bundles a
block, 231 a row and 99 a step are 10 x 895 + 4 x 231 + 16 x 99 = 11,458 cycles a head.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pytest_npubench.engines.shapes import DecoderShape

HEADS = 4  # two for each core of a chip of two: a loop of one step is no loop
BUNDLES = "*splash*final_bundles.txt"
DUMP = "--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final_bundles"
PROLOGUE = 2  # steps more than blocks: the loop is a pipeline that fetches one ahead
TIMEOUT_S = 120.0
_BUNDLE = re.compile(r"^\s*(?:0x)?([0-9a-f]+)\s+(?:L[HBE]|P[BF]|CT)?\s*:(.*)$", re.MULTILINE)
_BRANCH = re.compile(r"\bsbr\.rel [^}]*?target = \$region(\d+)")
_REGION = re.compile(r"(?:Start region|Start/End empty region) (\d+)\b")
_TRIPS = re.compile(r", (\d+) /\* loop exit test \*/")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBundles:
    """Of a computed block, of a row of blocks, and of a step. cores: how many of the chip's share the heads."""

    block: int
    row: int
    step: int
    cores: int

    def cycles(self, num_blocks: int) -> float:
        """Returns a head of attention with so many blocks of queries, and as many of keys."""
        computed = num_blocks * (num_blocks + 1) // 2
        return (computed * self.block + num_blocks * self.row + num_blocks**2 * self.step) / self.cores


def parse_bundles(text: str, num_steps: int) -> KernelBundles:
    """num_steps: of the loop on all cores. Raises ValueError for a program that is not one loop with branches."""
    lines = [(int(address, 16), rest) for address, rest in _BUNDLE.findall(text)]
    starts = {region: address for address, rest in lines for region in _REGION.findall(rest)}
    branches = [(address, starts.get(region, address)) for address, rest in lines for region in _BRANCH.findall(rest)]
    loops = [(target, address) for address, target in branches if target < address]
    trips = _TRIPS.findall(text)
    if len(loops) != 1 or len(trips) != 1:
        raise ValueError(f"{len(loops)} loops, {len(trips)} of known length")
    begin, end = loops[0]
    forward = [(source, target) for source, target in branches if begin <= source < target <= end]
    leaves = sorted(
        target - source
        for source, target in forward
        if not any(source < inner < target for inner, _ in forward if inner != source)
    )
    own_steps = int(trips[0]) - PROLOGUE
    if not leaves or own_steps < 1 or num_steps % own_steps:
        raise ValueError(f"{len(leaves)} branches, {own_steps} of {num_steps} steps")
    *rows, block = leaves
    return KernelBundles(block=block, row=sum(rows), step=end - begin - sum(leaves), cores=num_steps // own_steps)


class AttentionCompiler:
    """In a process of its own, since libtpu writes down what it compiles for as long as it lives."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        from pytest_npubench.extensions.compilers.compiled.platforms import PLATFORMS

        self._folder = Path(str(arguments["folder"]))
        self._devices = PLATFORMS["tpu"].devices(str(arguments["topology"]), "")

    def bundles(self, length: int, head_dim: int, dtype: str) -> str:
        """Returns the text of the kernel's bundles; empty where this libtpu writes none down."""
        import jax
        import numpy as np

        from pytest_npubench.engines.jax_dense.binaries import jax_dtype
        from pytest_npubench.engines.jax_dense.splash_attention import attend_splash
        from pytest_npubench.engines.jax_dense.weights import AXIS

        mesh = jax.sharding.Mesh(np.array(self._devices[:1]), (AXIS,))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

        def array(*dims: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(dims, jax_dtype(dtype), sharding=whole)

        shared = array(1, 1, length, head_dim)
        attend = jax.jit(lambda q, k, v: attend_splash(mesh, q, k, v))
        attend.lower(array(1, length, HEADS, head_dim), shared, shared).compile()
        dumps = sorted(self._folder.glob(BUNDLES), key=lambda path: path.stat().st_size)
        return dumps[-1].read_text(encoding="utf-8", errors="replace") if dumps else ""


def attention_cycles(topology: str, shape: DecoderShape, dtype: str, length: int, num_devices: int) -> float:
    """Of a prompt's attention in all layers, on each device's own heads. Raises ValueError for a kernel that is not
    as above, OSError, UnitLostError and ConfigError where none is compiled."""
    from pytest_npubench.engines.jax_dense.splash_attention import block_length, padded_length

    whole = padded_length(length)
    num_blocks = whole // block_length(whole)
    kernel = _compiled(topology, shape.head_dim, dtype, whole // num_blocks, min(num_blocks, 2))
    return kernel.cycles(num_blocks) * shape.num_layers * shape.num_heads / num_devices


@cache
def _compiled(topology: str, head_dim: int, dtype: str, block: int, num_blocks: int) -> KernelBundles:
    from pytest_npubench.extensions.compilers.compiled.platforms import ENVIRONMENT
    from pytest_npubench.processes.child import hosted

    with tempfile.TemporaryDirectory() as folder:
        settings = f"{os.environ.get('LIBTPU_INIT_ARGS', '')} {DUMP.format(folder=folder)}"
        child = hosted(
            f"{__name__}:AttentionCompiler",
            {"topology": topology, "folder": folder},
            name=f"the compiler of attention for {topology}",
            timeout_s=TIMEOUT_S,
            environment={**ENVIRONMENT, "LIBTPU_INIT_ARGS": settings.strip()},
        )
        try:
            child.started()
            return parse_bundles(child.call("bundles", num_blocks * block, head_dim, dtype), HEADS * num_blocks**2)
        finally:
            child.close()
