"""Moves of the KV cache into the next bucket's shape: a copy that engines pay for and LENS has no term for.

The engine prefills a batch in ascending order of length into a cache of the current prompt's bucket, so the cache moves
once across each boundary from bucket(min l_in) to bucket(max l_in) during prefill, and from there to the largest bucket
reached during decode. A prefill shared by the batch starts at bucket(max l_in). A cache never shrinks.

Worked number: moves into 256 and 512 take 1 and 2 ms, prompts of 100 and 200 tokens, the KV cache ends at 300: 1 ms in
prefill, 2 ms in decode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytest_npubench.core.buckets import IntArray, Spans
from pytest_npubench.predictors.work import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """Seconds to grow a cache from nothing to each span's bucket; differences of two are the moves between them."""

    prefill: Spans
    decode: Spans
    prefill_level_s: FloatArray
    decode_level_s: FloatArray

    @classmethod
    def of(cls, transitions_s: Mapping[int, float], prefill: Spans, decode: Spans) -> Transitions:
        return cls(
            prefill=prefill,
            decode=decode,
            prefill_level_s=_levels(transitions_s, prefill),
            decode_level_s=_levels(transitions_s, decode),
        )

    def prefill_moves_s(self, shortest: IntArray, longest: IntArray) -> FloatArray:
        """Returns the seconds of moves from the shortest prompt's bucket to the longest prompt's."""
        return np.asarray(self._prompt_level_s(longest) - self._prompt_level_s(shortest))

    def decode_moves_s(self, longest: IntArray, last_kv: IntArray) -> FloatArray:
        """Returns the seconds of moves from the longest prompt's bucket to that of the longest KV cache, 0 where
        last_kv is 0: no decode step."""
        reached = self.decode_level_s[np.searchsorted(self.decode.edges, last_kv)]
        return np.maximum(reached - self._prompt_level_s(longest), 0.0)

    def _prompt_level_s(self, input_tokens: IntArray) -> FloatArray:
        return np.asarray(self.prefill_level_s[np.searchsorted(self.prefill.edges, input_tokens)])


def _levels(transitions_s: Mapping[int, float], spans: Spans) -> FloatArray:
    moves = [[seconds for into, seconds in transitions_s.items() if into <= bucket] for bucket in spans.buckets]
    return np.asarray([sum(below) for below in moves], dtype=np.float64)
