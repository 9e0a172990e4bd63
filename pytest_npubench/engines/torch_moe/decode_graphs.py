"""Decode iterations as CUDA graphs: the host launches all layers of a batch in one call, and not 34 kernels a layer.

A graph repeats what a forward launched while it was captured, on the same memory. So there is one for each batch size,
the numbers of an iteration go into a buffer that stays, and no shape depends on a number. Where attention reads the
cache's pages in place, that is all; where keys are gathered, a size has a graph for each doubling of the tokens that
its rows look back on together. Rows that a size has too many repeat the one with the shortest context and write to
scratch: they choose its experts, and so load no more of them.

Worked example: rows with contexts of 900, 2,000, 100, 700 and 1,500 tokens run in a graph of 8 rows, the last three as
the third one; keys are gathered in that for 8,192 tokens, as 5,500 are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, product, takewhile
from typing import TypeAlias

import torch
from torch import Tensor

from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.model import MoeModel
from pytest_npubench.engines.torch_moe.ragged import RaggedBatch
from pytest_npubench.serving.iteration import PrefillRow

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# that a graph gathers, into memory of its own: with more the device should be slower than a host without graphs
FEWEST_KEYS, MOST_KEYS = 4096, 65_536
TOKEN, POSITION, SLOT, NUM_COLUMNS = 0, 1, 2, 3  # of a row's numbers; its block table comes behind them

Forward: TypeAlias = "Callable[[], tuple[Tensor, Tensor | None]]"
"""Gives hidden states [S, hidden] behind the last layer and experts [layers, S, k], None in a dense decoder."""


class CudaCapture:
    """Makes a graph of a forward. Its graphs share one stream and one pool of memory: the largest one comes first."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, forward: Forward) -> Forward:
        """What replays the forward, into the tensors that it returns each time."""
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                forward()  # libraries load kernels and make their workspaces, which they may not within a capture
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
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
        capacity = kv.num_blocks * kv.block_size_tokens
        self._num_keys = (SIZES[-1] * capacity,) if model.reads_pages else _doublings(capacity)
        self._replays: dict[tuple[int, int], Forward] = {}
        if not self.why_not:
            self._capture_all(capture)

    def _capture_all(self, capture: Callable[[Forward], Forward]) -> None:
        """A device that cannot capture has no graphs, and serves all the same."""
        try:
            for size, num_keys in product(reversed(SIZES), reversed(self._num_keys)):
                if size <= num_keys:
                    self._replays[size, num_keys] = capture(partial(self._forward, size, num_keys))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.why_not, self._replays = f"a capture failed: {str(error).splitlines()[0]}", {}

    def fits(self, contexts: Sequence[int]) -> bool:
        """Whether there is a graph for rows that look back on so many tokens each, oneself counted."""
        return bool(contexts) and self._key(contexts) in self._replays

    def _key(self, contexts: Sequence[int]) -> tuple[int, int]:
        """Returns the rows of the smallest graph for them, and its keys; 0 for what no graph has."""
        size = next((size for size in SIZES if size >= len(contexts)), 0)
        num_keys = sum(contexts) + (size - len(contexts)) * min(contexts)
        return size, next((most for most in self._num_keys if most >= num_keys), 0)

    def replay(
        self, decode: Sequence[PrefillRow], padding: Sequence[PrefillRow], tokens: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [R, hidden] and experts [layers, R, k] of decode and padding rows that go on with these tokens
        and fit; good until the next replay."""
        rows = (*decode, *padding)
        contexts = [row.first_token + 1 for row in rows]
        size, num_keys = self._key(contexts)
        tables = self._kv.tables(tuple(row.request for row in rows))
        width = NUM_COLUMNS + tables.shape[1]
        numbers = self._host.numpy()[:size, :width]
        numbers[: len(rows), TOKEN] = tokens
        numbers[: len(rows), POSITION] = [row.first_token for row in rows]
        numbers[: len(rows), NUM_COLUMNS:] = tables
        numbers[len(rows) :] = numbers[contexts.index(min(contexts))]
        numbers[:, SLOT] = self._kv.scratch_slot
        numbers[: len(decode), SLOT] = [self._kv.slots(*row)[0] for row in decode]
        self._buffer[:size, :width].copy_(self._host[:size, :width], non_blocking=True)
        hidden, experts = self._replays[size, num_keys]()
        return hidden[: len(rows)], None if experts is None else experts[:, : len(rows)]

    def _forward(self, size: int, num_keys: int) -> tuple[Tensor, Tensor | None]:
        """All layers over the first `size` rows of the buffer."""
        inputs = self._model.prepare_static(self._batch(size), num_keys)
        hidden = self._model.embed(self._buffer[:size, TOKEN])
        return self._model.run_layers(0, self._model.num_layers, hidden, inputs, self._kv)

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


def _doublings(capacity: int) -> tuple[int, ...]:
    """Doubles from FEWEST_KEYS to MOST_KEYS, or to all that the cache holds."""
    most = min(MOST_KEYS, capacity)
    return (*takewhile(lambda keys: keys < most, (FEWEST_KEYS << power for power in count())), most)
