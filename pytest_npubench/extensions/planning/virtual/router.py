"""A synthetic router: which experts a batch activates, sampled once and then looked up.

Expert e of layer l has a bias b[l, e] ~ N(0, EXPERT_BIAS_STD^2), and a token goes to the top k of bias + Gumbel noise.
That is a race: with rate exp(b) each expert draws an exponential time, and the first k win (the Gumbel-top-k trick:
the minimum of -log is the maximum). Tokens of a decode batch come from unrelated requests, so they are independent. The
tokens of one prompt are about one thing: they share a further bias ~ N(0, PROMPT_BIAS_STD^2), so that a prompt covers
fewer experts than a decode batch of as many tokens.

Only the FIRST token that hits an expert is kept, counted from 1. Then a batch of n tokens activates those experts whose
first hit is <= n, and the union of a prompt and a decode batch is

    count((first_hit_prompt <= n) | (first_hit_decode <= rows))

Worked example: first hits (1, 3, 70) in a prompt and (9, 1, 2) in a decode batch: 4 prompt tokens activate two experts,
2 decode rows two, both together all three.

The first tokens of a stream are raced exactly. An expert that none of them hit is rare, so that the k places of a token
hardly tie it to the others: its first hit beyond is geometric, with the chance that its rate gives within the mean time
of the k-th winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.serving.iteration import PrefillRow

EXPERT_BIAS_STD = 1.42
"""Fits Layered Prefill, Table 1, whose column of coverages is not smooth: 2.0 points RMSE, 3 at the most."""
PROMPT_BIAS_STD = 1.7
"""Fits Layered Prefill, Figure 2: loads at chunks of 512 to 8192 imply 82.4, 87.6, 92.0, 94.9 and 98.5 % coverage."""

NUM_DECODE_STREAMS = 32
NUM_DECODE_TOKENS = 512  # raced; every decode stream is these in another order
NUM_DECODE_ROWS = 2048  # batches above it count as it: coverage is then above 99 %
NUM_PROMPT_STREAMS = 32
NUM_PROMPT_TOKENS = 64  # raced, of each prompt
NEVER = 65_535  # the largest uint16: also what later first hits are cut to

FirstHits = npt.NDArray[np.uint16]


class ExpertRouter(Protocol):
    def activations(self, iteration: int, first: int, stop: int, num_rows: int, prefill: Sequence[PrefillRow]) -> int:
        """Distinct experts of layers [first, stop), summed, that decode rows and prefill rows activate together."""
        ...


class Router:
    """Sampled streams of one model. Arrays are (streams, num_layers, num_experts), first hits from 1."""

    def __init__(self, shape: DecoderShape, *, seed: int) -> None:
        generator = np.random.Generator(np.random.PCG64(seed))
        _, num_layers = shape.expert_layers(0, shape.num_layers)
        size, chosen = (num_layers, shape.num_experts), shape.experts_per_token
        bias = generator.normal(0.0, EXPERT_BIAS_STD, size)
        self.prompt = np.stack([_prompt_stream(bias, chosen, generator) for _ in range(NUM_PROMPT_STREAMS)])
        self.decode = _decode_streams(bias, chosen, generator)
        self._decode_counts = _cumulated_counts(self.decode)

    def activations(self, iteration: int, first: int, stop: int, num_rows: int, prefill: Sequence[PrefillRow]) -> int:
        """Experts of layers [first, stop) that a decode batch, another draw for each iteration, and the prefill rows
        activate together.

        A request has one stream whatever the policy. Every chunk of its prompt is taken to activate what as many of its
        first tokens do.
        """
        stream, rows = iteration % NUM_DECODE_STREAMS, num_rows if num_rows < NUM_DECODE_ROWS else NUM_DECODE_ROWS
        if not prefill:
            count = self._decode_counts.item
            below: int = count(stream, rows, stop)
            return below - count(stream, rows, first) if first else below
        hit = self.decode[stream, first:stop] <= rows
        for request, _, num_tokens in prefill:
            hit |= self.prompt[request % NUM_PROMPT_STREAMS, first:stop] <= min(num_tokens, NEVER - 1)
        return int(np.count_nonzero(hit))


@lru_cache(maxsize=4)
def sampled_router(shape: DecoderShape, seed: int) -> Router:
    """The router of a model and a seed, sampled once a process: nothing in it changes."""
    return Router(shape, seed=seed)


def race(
    rates: npt.NDArray[np.float64], num_tokens: int, num_chosen: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """The winners of every token, shape (num_tokens, layers, num_chosen) in no order, and the mean time of the last
    winner, shape (layers, 1), for rates of shape (layers, experts)."""
    times = generator.standard_exponential((num_tokens, *rates.shape), dtype=np.float32)
    times /= rates.astype(np.float32)
    winners = np.argpartition(times, num_chosen - 1, axis=-1)[..., :num_chosen]
    last = np.take_along_axis(times, winners[..., num_chosen - 1 :], axis=-1)
    return winners, last.mean(axis=0, dtype=np.float64)


def first_hits(winners: npt.NDArray[np.intp], num_experts: int) -> FirstHits:
    """The first token, from 1, that chose each expert, else NEVER. (tokens, layers, k) -> (layers, experts)."""
    num_tokens, num_layers, num_chosen = winners.shape
    first = np.full(num_layers * num_experts, NEVER, dtype=np.uint16)
    places = winners + np.arange(num_layers)[:, None] * num_experts
    tokens = np.repeat(np.arange(1, num_tokens + 1, dtype=np.uint16), num_layers * num_chosen)
    first[places.ravel()[::-1]] = tokens[::-1]  # of several values for one place the last one stays: the first token
    return first.reshape(num_layers, num_experts)


def _prompt_stream(bias: npt.NDArray[np.float64], num_chosen: int, generator: np.random.Generator) -> FirstHits:
    rates = np.exp(bias + generator.normal(0.0, PROMPT_BIAS_STD, bias.shape))
    winners, last_s = race(rates, NUM_PROMPT_TOKENS, num_chosen, generator)
    return _extended(first_hits(winners, bias.shape[1]), rates * last_s, NUM_PROMPT_TOKENS, generator)


def _decode_streams(bias: npt.NDArray[np.float64], num_chosen: int, generator: np.random.Generator) -> FirstHits:
    rates = np.exp(bias)
    winners, last_s = race(rates, NUM_DECODE_TOKENS, num_chosen, generator)
    shuffled = (winners[generator.permutation(NUM_DECODE_TOKENS)] for _ in range(NUM_DECODE_STREAMS))
    hits = (first_hits(order, bias.shape[1]) for order in shuffled)
    return np.stack([_extended(first, rates * last_s, NUM_DECODE_TOKENS, generator) for first in hits])


def _extended(
    first: FirstHits, hazard: npt.NDArray[np.float64], num_tokens: int, generator: np.random.Generator
) -> FirstHits:
    """A geometric first hit beyond num_tokens for experts that none of them hit; a token hits with 1 - exp(-hazard)."""
    beyond = num_tokens + np.ceil(generator.standard_exponential(first.shape) / hazard)
    return np.where(first == NEVER, np.minimum(beyond, NEVER), first).astype(np.uint16)


def _cumulated_counts(first: FirstHits) -> npt.NDArray[np.int32]:
    """Activated experts by (stream, batch size 0 to NUM_DECODE_ROWS, layers below), from (streams, layers, experts)."""
    num_streams, num_layers, _ = first.shape
    counts = np.zeros((num_streams, NUM_DECODE_ROWS + 1, num_layers + 1), dtype=np.int32)
    late = NUM_DECODE_ROWS + 1  # a bin for what no batch here hits
    for stream, layer in np.ndindex(num_streams, num_layers):
        hits = np.bincount(np.minimum(first[stream, layer], late), minlength=late + 1)
        counts[stream, :, layer + 1] = hits[:late].cumsum()
    return counts.cumsum(axis=2, dtype=np.int32)
