"""The parts of a decoder that are timed alone, for predictors that add up parts. Names cross processes and journals."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.measurement import Phase

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
