"""Iterations that only decode, taken at once: between two of them nothing changes but the lengths of the contexts.

So it is until a request arrives, one ends, or one needs a block that is not free, where the policy plans the same as
long as the batch is the same (`is_steady`) and the executor can tell what its next iterations will cost. Their times
are those of the loop that takes them one by one (serving/loop.py), to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_npubench.serving.batch import Batch


class EachDecode(NamedTuple):
    """An entry for each iteration of a stretch whose iterations differ in more than their contexts: when it ends, and
    what IterationOutcome says of it."""

    end_s: list[float]
    expert_activations: list[int]
    padded_expert_activations: list[int]
    expert_load_bytes: list[int]


class DecodeStretch(NamedTuple):
    """Iterations of one plan that only decodes, one after the other: `number` of them, the last one until end_s.

    The first takes step_s and each growth_s more than the one before, so that iteration k, from 0, ends (k + 1) (step_s
    + k growth_s / 2) after the start, unless `each` says when. It holds kv_bytes + k kv_growth, rounded down.
    """

    number: int
    end_s: float
    step_s: float
    growth_s: float
    kv_bytes: float
    kv_growth: float
    hidden_bytes: int
    each: EachDecode | None = None

    def last_start_s(self, start_s: float) -> float:
        """When the last one started, where the first one did at start_s."""
        before = self.number - 1
        if self.each is not None:
            return self.each.end_s[-2] if before else start_s
        return start_s + before * (self.step_s + self.growth_s * (before - 1) / 2)


def num_steady(batch: Batch) -> int:
    """How many iterations that only decode may follow one another from this one on, for which there is room, before a
    request ends or lacks a block."""
    blocks = batch.blocks
    first, fills = batch.finishes.first, batch.fills.first
    most, num_free = (first if first < fills else fills) - batch.step, blocks.num_free
    # a row takes a block of each group at most in as many steps as a block has tokens
    at_most = len(batch.running) * (blocks.num_full + blocks.num_windowed) * (most // blocks.block_size_tokens + 1)
    if at_most <= num_free or _blocks_of_steps(batch, most) <= num_free:
        return most
    return next(number for number in range(1, most) if _blocks_of_steps(batch, number + 1) > num_free)


def pass_over(batch: Batch, number: int) -> None:
    """So many iterations that only decode have run, fewer than `num_steady`; nobody ended in them."""
    batch.blocks.take(_blocks_of_steps(batch, number + 1))
    batch.grown_at += number
    batch.step += number
    batch.iteration += number


def _blocks_of_steps(batch: Batch, number: int) -> int:
    """How many blocks the running requests take at so many steps, of this one on, which has room."""
    size, counts = batch.blocks.block_size_tokens, batch.num_growing
    rounds, left = divmod(number - 1, size)
    first = (batch.step + 1) % size
    num_blocks = sum(counts[first : first + left])
    if first + left > size:
        num_blocks += sum(counts[: first + left - size])
    return num_blocks + rounds * sum(counts) if rounds else num_blocks
