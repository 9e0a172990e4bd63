"""One stage on a decoder of vLLM's: all rows through its layer group, those not on their way through the other layers.

    layers [0, first)       rest rows only
    join                    rest rows + the hidden states that the stage before left behind
    layers [first, stop)    all rows
    split                   hidden states of the rows on their way are kept
    layers [stop, L)        rest rows only

Shapes: n rows of the batch, r of them rest rows, H hidden. A layer takes and gives (hidden, residual), two of (n, H):
2 H values are kept of a token, 8 KiB for H = 2,048 in bf16 (Qwen3-30B-A3B).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from pytest_npubench.extensions.vllm.layered.flight import FlightStage
from pytest_npubench.extensions.vllm.layered.rows import Rows

Pair = tuple[torch.Tensor, torch.Tensor]


class StageStates:
    """(hidden, residual) of each request on its way, between two stages."""

    def __init__(self) -> None:
        self._kept: dict[str, Pair] = {}
        self.peak_bytes = 0

    @property
    def num_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for pair in self._kept.values() for part in pair)

    def keep(self, rows: Rows, hidden: torch.Tensor, residual: torch.Tensor) -> None:
        """Copies, since a view would hold the rows of the whole batch."""
        self._kept = {request: (hidden[span].clone(), residual[span].clone()) for request, span in rows.staged}
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)

    def join(self, rows: Rows, rest: torch.Tensor, hidden: torch.Tensor, residual: torch.Tensor) -> Pair:
        """Joins the rest rows (r, H) and the kept rows to all rows (n, H)."""
        first_hidden, first_residual = self._kept[rows.staged[0][0]]
        everybody = first_hidden.new_empty((rows.num_tokens, first_hidden.shape[1]))
        residuals = first_residual.new_empty((rows.num_tokens, first_residual.shape[1]))
        everybody[rest], residuals[rest] = hidden, residual
        for request, span in rows.staged:
            everybody[span], residuals[span] = self._kept[request]
        return everybody, residuals

    def drop_all_but(self, requests: Collection[str]) -> None:
        self._kept = {request: pair for request, pair in self._kept.items() if request in requests}


def run_stage(
    decoder: Any, stage: FlightStage, rows: Rows, input_ids: torch.Tensor, positions: torch.Tensor, states: StageStates
) -> torch.Tensor:
    """Returns the decoder's output, (n, H); rows that have layers before them yet are zeros, and nobody may read them.

    input_ids and positions are (n,). Must run where vLLM's forward context has been set for this stage.
    """
    first, stop = stage.group
    rest = torch.from_numpy(rows.rest_tokens).to(positions.device)
    if first == 0:
        hidden, residual = decoder.embed_input_ids(input_ids), None
    else:
        hidden = decoder.embed_input_ids(input_ids[rest])
        hidden, residual = _through(decoder, 0, first, positions[rest], hidden, None)
        hidden, residual = states.join(rows, rest, hidden, residual)
    hidden, residual = _through(decoder, first, stop, positions, hidden, residual)
    if stage.is_last:
        return _normed(decoder, hidden, residual)
    states.keep(rows, hidden, residual)
    hidden, residual = _through(decoder, stop, stage.num_layers, positions[rest], hidden[rest], residual[rest])
    output = hidden.new_zeros((rows.num_tokens, hidden.shape[1]))
    if len(rest):
        output[rest] = _normed(decoder, hidden, residual)
    return output


def _through(
    decoder: Any, first: int, stop: int, positions: torch.Tensor, hidden: torch.Tensor, residual: torch.Tensor | None
) -> Pair:
    """Layers [first, stop) on these rows; without rows nothing runs, and experts are not loaded."""
    if not hidden.shape[0]:
        return hidden, hidden if residual is None else residual
    for layer in decoder.layers[first:stop]:
        hidden, residual = layer(positions, hidden, residual)
    assert residual is not None, "a layer gives its residual"
    return hidden, residual


def _normed(decoder: Any, hidden: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = decoder.norm(hidden, residual)[0]
    return output
