"""The parts of a decoder that are timed alone, for predictors that add up parts. Names cross processes and journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.core.measurement import Phase

DEPTHS = (1, 2)
"""The numbers of layers of the shallow engines that are timed for predictors that add up layers."""
OPERATORS = ("embed", "project", "attend", "output", "feed_forward", "head")
"""In the order of a step: token rows; norm, queries, keys and values; cache write and attention; its output; the
feed-forward part; norm, logits and the next token. All but the first and the last run once a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One operator of a step in a bucket, or with None all kernels of the whole step, as the device's own trace has
    them."""

    phase: Phase
    bucket: int
    operator: str | None = None

    @property
    def name(self) -> str:
        return f"part/{self.operator or 'kernels'}/{self.phase.value}/{self.bucket}"


def operator_part(operator: str, phase: Phase, bucket: int, smallest: int) -> Part:
    """The part whose time an operator has in a bucket: an operator that lengths do not change is timed in the smallest
    bucket alone. A prompt's head has one row, and in a decode step only attention depends on the cache's length."""
    follows_length = operator != "head" if phase is Phase.PREFILL else operator == "attend"
    return Part(phase=phase, bucket=bucket if follows_length else smallest, operator=operator)


def operator_parts(buckets: Sequence[int]) -> tuple[Part, ...]:
    """The parts whose times add up to all steps of these buckets."""
    every = (
        operator_part(operator, phase, bucket, min(buckets))
        for phase in Phase
        for bucket in buckets
        for operator in OPERATORS
    )
    return tuple(dict.fromkeys(every))


def kernel_parts(buckets: Sequence[int]) -> tuple[Part, ...]:
    """The prefill and the decode step of each bucket."""
    return tuple(Part(phase=phase, bucket=bucket) for bucket in buckets for phase in Phase)
