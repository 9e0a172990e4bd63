"""Seconds of an iteration from what a run of one's own server showed: a few numbers in place of peaks and fractions.

    dense       fixed + max(weights, row x rows) + pair x pairs + context x context tokens
    experts     fixed + weights + activation x activations + row x rows + pair x pairs + context x context tokens
    from idle   waking more

rows are decode rows and prompt tokens together, those of a layer group counted by its share of the layers; pairs are
what a prompt's own attention looks at (serving.log.prefill_pairs); context tokens are what the decode rows read. A
curve says how many rows the rows of a layer are worth, where those beyond a cache take longer each than the first; with
one, weights are in fixed and in the curve. An iteration is from idle where its request found nobody there: threads that
wait, and clocks that fell, take a while to come back. Where requests alone were seen, waking is in what is fixed; a log
without pairs leaves them to `row`. Replicas that share their experts multiply the mean of their rows there, and each
its own elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytest_npubench.extensions.planning.virtual.step_cost import StepWork
from pytest_npubench.serving.log import prefill_pairs

Curve = tuple[tuple[float, float], ...]
"""Rows of a layer and what they are worth, both from 0 on, rising; straight between them and on beyond the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedCost:
    """Seconds, 0 where nothing was seen of a term: `fixed_s` an iteration, `weights_s` for all weights but the experts'
    read once, `row_s` a row through all layers, `pair_s` a token that a prompt's token attends to, `context_s` a token
    of keys and values read, `activation_s` an expert of one layer read, `waking_s` an iteration from idle. expert_share
    is the experts' part of the operations of a row. A decode row reads and writes its states of fixed size in the time
    of state_tokens of its context."""

    is_affine: ClassVar[bool] = True
    num_layers: int
    fixed_s: float = 0.0
    weights_s: float = 0.0
    row_s: float = 0.0
    pair_s: float = 0.0
    context_s: float = 0.0
    activation_s: float = 0.0
    waking_s: float = 0.0
    curve: Curve = ()
    has_experts: bool = False
    expert_share: float = 0.0
    state_tokens: float = 0.0

    def seconds(self, work: StepWork) -> float:
        layer_rows = pairs = context = activations = 0.0
        for first, stop, prefill, activated in work.passes:
            share = stop - first
            rows = work.decode_rows + sum([row.num_tokens for row in prefill])
            layer_rows += share * (worth(self.curve, rows) if self.curve else rows)
            if prefill and self.pair_s:
                pairs += share * prefill_pairs(prefill)
            context += share * (work.context_tokens + work.decode_rows * self.state_tokens)
            activations += activated
        rows_s = layer_rows / self.num_layers * self.row_s * (1 + self.expert_share * (work.expert_rows - 1))
        attention_s = (context * self.context_s + pairs * self.pair_s) / self.num_layers
        fixed_s = self.fixed_s + self.waking_s if work.is_from_idle else self.fixed_s
        if self.has_experts:
            return fixed_s + self.weights_s + activations * self.activation_s + rows_s + attention_s
        return fixed_s + max(self.weights_s, rows_s) + attention_s


def worth(curve: Sequence[tuple[float, float]], rows: float) -> float:
    """What so many rows of a layer are worth under a curve of two points and more."""
    at = min(max(1, bisect_left(curve, (rows,))), len(curve) - 1)
    (low, from_worth), (high, to_worth) = curve[at - 1], curve[at]
    return from_worth + (rows - low) / (high - low) * (to_worth - from_worth)
