"""Which rows of an iteration are on their way through the layers, and which run through all of them.

vLLM packs the tokens of a batch one request after another. Worked example: requests (b, a, c) with (1, 600, 1) tokens,
a on its way: a has the tokens [1, 601), the others are requests 0 and 2 with the tokens 0 and 601.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.core.buckets import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """staged: (request, its tokens) on their way; rest_requests: indices of the others in the batch, rest_tokens: of
    their tokens, rest_counts: how many each of them has."""

    num_tokens: int
    staged: tuple[tuple[str, slice], ...]
    rest_requests: IntArray
    rest_tokens: IntArray
    rest_counts: IntArray

    @property
    def num_staged_tokens(self) -> int:
        return self.num_tokens - len(self.rest_tokens)


def split_rows(requests: Sequence[str], num_tokens: Sequence[int] | IntArray, staged: Collection[str]) -> Rows:
    """`requests` in the order of the batch with their numbers of tokens; `staged` are those on their way."""
    counts = np.asarray(num_tokens, dtype=np.int64)
    stops = np.cumsum(counts)
    on_their_way = np.array([request in staged for request in requests], dtype=np.bool_)
    spans = tuple(
        (requests[index], slice(int(stops[index] - counts[index]), int(stops[index])))
        for index in np.flatnonzero(on_their_way).tolist()
    )
    return Rows(
        num_tokens=int(stops[-1]),
        staged=spans,
        rest_requests=np.flatnonzero(~on_their_way),
        rest_tokens=np.flatnonzero(np.repeat(~on_their_way, counts)),
        rest_counts=counts[~on_their_way],
    )
