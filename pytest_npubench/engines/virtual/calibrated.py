"""Seconds of an iteration from what a run of one's own server showed: five numbers instead of peaks and fractions.

    dense       fixed + max(weights, row x rows) + context x context tokens
    experts     fixed + weights + activation x activations + row x rows + context x context tokens

rows are decode rows and prompt tokens together, those of a layer group counted by its share of the layers; context
tokens are what the decode rows read. A prompt's own attention is in `row`. Replicas that share their experts multiply
the mean of their rows there, and each its own elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytest_npubench.engines.virtual.step_cost import StepWork


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedCost:
    """Seconds, 0 where nothing was seen of a term: `fixed_s` an iteration, `weights_s` for all weights but the experts'
    read once, `row_s` a row through all layers, `context_s` a token of keys and values read, `activation_s` an expert
    of one layer read. expert_share is the experts' part of the operations of a row."""

    is_affine: ClassVar[bool] = True
    num_layers: int
    fixed_s: float = 0.0
    weights_s: float = 0.0
    row_s: float = 0.0
    context_s: float = 0.0
    activation_s: float = 0.0
    has_experts: bool = False
    expert_share: float = 0.0

    def seconds(self, work: StepWork) -> float:
        layer_rows = context = activations = 0.0
        for first, stop, prefill, activated in work.passes:
            share = stop - first
            layer_rows += share * (work.decode_rows + sum(row.num_tokens for row in prefill))
            context += share * work.context_tokens
            activations += activated
        rows_s = layer_rows / self.num_layers * self.row_s * (1 + self.expert_share * (work.expert_rows - 1))
        context_s = context / self.num_layers * self.context_s
        if self.has_experts:
            return self.fixed_s + self.weights_s + activations * self.activation_s + rows_s + context_s
        return self.fixed_s + max(self.weights_s, rows_s) + context_s
