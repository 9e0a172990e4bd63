"""What an iteration asks of a device, and who says how long that takes.

A StepCost is all that VirtualExecutor knows of a device: roofline (cost.py) takes published peaks, calibrated
(calibrated.py) what a run of one's own server showed, buckets (buckets.py) LENS profiles, table (table.py) a grid of
measured iterations. Each is a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pytest_npubench.serving.iteration import PrefillRow


class PassWork(NamedTuple):
    """Layers [first, stop) with the prefill rows that run through them beside the decode rows, and the experts that
    all of these rows activate, summed over the layers."""

    first: int
    stop: int
    prefill: Sequence[PrefillRow]
    activations: int


class StepWork(NamedTuple):
    """One iteration. decode_rows read context_tokens of keys and values in all, window_tokens in a layer with a window;
    sampled_rows get a token. Rows that pad a static batch count. Where replicas share their experts, activations are
    those of all of them together, and expert_rows is the mean of their rows over the rows of this one. longest_context
    is that of the decode row that reads most. is_from_idle: the first one after a request
    was noticed that found nobody there."""

    passes: Sequence[PassWork]
    decode_rows: int
    context_tokens: float
    window_tokens: float
    sampled_rows: int
    expert_rows: float = 1.0
    longest_context: int = 0
    is_from_idle: bool = False


class StepCost(Protocol):
    def seconds(self, work: StepWork) -> float:
        """Of one iteration, from the end of the one before to its own."""
        ...

    # is_affine: bool, of the class: whether the seconds of iterations that only decode, all else equal, are affine in
    # context_tokens and window_tokens, and no iteration's depend on the one before it. A cost may do without.
