"""What a decode iteration of qwen3-30b-a3b launches: kernel by kernel, and as a CUDA graph. Counted on a CPU.

    python benchmarks/launches.py [rows]

All 48 layers with 8 of 128 experts, but narrow: how much is launched does not depend on widths. Counted are the calls
of torch's operators that are neither views nor allocations. FlashAttention is a FAKE that counts as one call and
computes nothing, since torch has none for a CPU; a capture is a FAKE whose replay counts as one call. What comes from
the host without an operator is not counted.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.engines.torch_moe import TorchExecutor, executor, experts, model, packing
from pytest_npubench.engines.torch_moe.flash_attention import FlashAttention
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow

SHAPE = dataclasses.replace(decoder_shape("qwen3-30b-a3b"), hidden=32, head_dim=8, intermediate=16, vocab_size=64)
CONTEXT_TOKENS, BLOCK_SIZE_TOKENS = 20, 16
ALLOCATIONS = ("empty", "new_empty", "empty_like", "empty_strided")
LIBRARY = torch.library.Library("npubench_launches", "DEF")


class Launches(TorchDispatchMode):
    """Counts operators that are neither views nor allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, operator: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        aliases = [returned.alias_info for returned in operator._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        self.number += not is_view and operator._schema.name.split("::")[1] not in ALLOCATIONS
        return operator(*given, **(named or {}))


def attention(reads_pages: bool) -> Callable[..., FlashAttention]:
    """FlashAttention on a fake operator that gives back the queries, and refuses pages or takes them."""
    name = "pages" if reads_pages else "gathered"
    schema = str(torch.ops.aten._flash_attention_forward.default._schema)
    LIBRARY.define(name + schema[schema.index("(") :])

    def forward(query: Any, key: Any, *given: Any, block_table: Any = None, **named: Any) -> Any:
        if block_table is not None and not reads_pages:
            raise RuntimeError("no pages")
        return query.clone(), query.new_zeros(query.shape[1::-1]), *(query.new_zeros(0) for _ in range(3))

    LIBRARY.impl(name, forward, "CPU")
    operator = getattr(torch.ops.npubench_launches, name).default
    return lambda shape, kv: FlashAttention(shape, kv, operator)


def launches(num_rows: int, *, reads_pages: bool, counter: Launches | None = None) -> int:
    """Of one decode iteration; with a counter, replays of graphs count there."""

    def capture(forward: Callable[[], Any]) -> Callable[[], Any]:
        outputs = forward()

        def replay() -> Any:
            counter.number += 1
            return outputs

        return replay

    served = TorchExecutor(
        SHAPE,
        kv_capacity_tokens=num_rows * 2 * BLOCK_SIZE_TOKENS,
        block_size_tokens=BLOCK_SIZE_TOKENS,
        make_capture=None if counter is None else lambda device: capture,
    )
    layers, requests = LayerGroup(0, SHAPE.num_layers), tuple(range(num_rows))
    for request in requests:
        served.begin(request, CONTEXT_TOKENS, 3)
        row = PrefillRow(request, 0, CONTEXT_TOKENS)
        served.run(IterationPlan(passes=(LayerPass(layers, (row,)),), finishing=(request,)))
    counter = counter or Launches()
    with counter:
        served.run(IterationPlan(decode=requests, passes=(LayerPass(layers),)))
    return counter.number


def main(num_rows: int) -> None:
    kernels = {reads_pages: attention(reads_pages) for reads_pages in (False, True)}
    for what, reads_pages, counter in (
        ("kernel by kernel, keys gathered", False, None),
        ("kernel by kernel, pages read in place", True, None),
        ("a graph, keys gathered", False, Launches()),
        ("a graph, pages read in place", True, Launches()),
    ):
        with (
            patch.object(executor, "attention_kernel", kernels[reads_pages]),
            patch.object(packing, "_packs", lambda matrix: False),
            patch.object(experts, "fuses", lambda matrices: True),
            patch.object(model, "fuses", lambda matrices: True),
        ):
            number = launches(num_rows, reads_pages=reads_pages, counter=counter)
        print(f"{num_rows} rows, {what}: {number:,} launches, {number / SHAPE.num_layers:.1f} a layer")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
