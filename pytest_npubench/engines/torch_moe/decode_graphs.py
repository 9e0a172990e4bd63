"""Decode iterations as CUDA graphs: the host launches all layers of a batch in one call, and not 34 kernels a layer.

A graph repeats what a forward launched while it was captured, on the same memory. So there is one for each batch size,
the numbers of an iteration go into a buffer that stays, attention reads the cache's pages in place, and no shape
depends on a number. Rows that a size has too many repeat the first row and write to scratch: they read its context and
choose its experts, and so load nothing more.

Worked example: 5 rows run in the graph of 8, whose last three are the first one again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.model import MoeModel
from pytest_npubench.engines.torch_moe.ragged import RaggedBatch
from pytest_npubench.serving.iteration import PrefillRow

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKEN, POSITION, SLOT, NUM_COLUMNS = 0, 1, 2, 3  # of a row's numbers; its block table comes behind them

Forward: TypeAlias = "Callable[[], tuple[Tensor, Tensor | None]]"
"""Gives hidden states [S, hidden] behind the last layer and experts [layers, S, k], None in a dense decoder."""


class CudaCapture:
    """Makes a graph of a forward. Its graphs share one pool of memory: the largest one comes first."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, forward: Forward) -> Forward:
        """What replays the forward, into the tensors that it returns each time."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                forward()  # libraries load kernels and make their workspaces, which they may not within a capture
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=stream):
                outputs = forward()

        def replay() -> tuple[Tensor, Tensor | None]:
            graph.replay()
            return outputs

        return replay


class DecodeGraphs:
    """The graphs of one model and cache, all captured here."""

    def __init__(self, model: MoeModel, kv: PagedKvCache, capture: Callable[[Forward], Forward]) -> None:
        self._model, self._kv = model, kv
        dims = (SIZES[-1], NUM_COLUMNS + kv.num_blocks)
        self._host = torch.zeros(dims, dtype=torch.int32, pin_memory=kv.keys.is_cuda)
        self._host[:, SLOT] = kv.scratch_slot
        self._buffer = self._host.to(kv.keys.device, copy=True)
        self.why_not = model.why_not_static(self._batch(1))
        """Why there are none; empty where there are."""
        self._replays: dict[int, Forward] = {}
        if not self.why_not:
            self._capture_all(capture)

    def _capture_all(self, capture: Callable[[Forward], Forward]) -> None:
        """A device that cannot capture has no graphs, and serves all the same."""
        try:
            self._replays = {size: capture(partial(self._forward, size)) for size in reversed(SIZES)}
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.why_not = f"a capture failed: {str(error).splitlines()[0]}"

    def fits(self, num_rows: int) -> bool:
        """Whether there is a graph for so many rows."""
        return 0 < num_rows <= max(self._replays, default=0)

    def replay(
        self, decode: Sequence[PrefillRow], padding: Sequence[PrefillRow], tokens: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [R, hidden] and experts [layers, R, k] of decode and padding rows that go on with these tokens
        and fit; good until the next replay."""
        rows = (*decode, *padding)
        size = next(size for size in SIZES if size >= len(rows))
        tables = self._kv.tables(tuple(row.request for row in rows))
        width = NUM_COLUMNS + tables.shape[1]
        numbers = self._host.numpy()[:size, :width]
        numbers[: len(rows), TOKEN] = tokens
        numbers[: len(rows), POSITION] = [row.first_token for row in rows]
        numbers[: len(rows), NUM_COLUMNS:] = tables
        numbers[len(rows) :] = numbers[0]
        numbers[:, SLOT] = self._kv.scratch_slot
        numbers[: len(decode), SLOT] = [self._kv.slots(*row)[0] for row in decode]
        self._buffer[:size, :width].copy_(self._host[:size, :width], non_blocking=True)
        hidden, experts = self._replays[size]()
        return hidden[: len(rows)], None if experts is None else experts[:, : len(rows)]

    def _forward(self, size: int) -> tuple[Tensor, Tensor | None]:
        """All layers over the first `size` rows of the buffer."""
        batch = self._batch(size)
        hidden = self._model.embed(self._buffer[:size, TOKEN])
        return self._model.run_layers(0, self._model.num_layers, hidden, self._model.prepare_static(batch), self._kv)

    def _batch(self, size: int) -> RaggedBatch:
        numbers = self._buffer[:size]
        return RaggedBatch(
            rows=(),
            num_single=size,
            num_padding=0,
            block_size_tokens=self._kv.block_size_tokens,
            positions=numbers[:, POSITION],
            slots=numbers[:, SLOT].long(),
            tables=numbers[:, NUM_COLUMNS:],
            firsts=numbers[:, POSITION],
        )
