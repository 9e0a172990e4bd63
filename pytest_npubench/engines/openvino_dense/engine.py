"""The reference decoder on a device of OpenVINO: one prefill and one decode binary per bucket and batch size.

It serves as engines/jax_dense does, with the same weights: requests are prefilled one by one, shortest first, each in
its own bucket; when the next prompt or the growing KV length c_t needs a larger bucket, the host copies the whole cache
there; decode advances all rows together in the bucket of max c_t until the longest output ends, rows that ended earlier
carried along with their c_t frozen. Every step is an asynchronous request that is waited for, and its tokens are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pytest_npubench.buckets import bucket_of, check_buckets
from pytest_npubench.engines.jax_dense.trace import RunTrace
from pytest_npubench.engines.openvino_dense.binaries import BucketBinaries, Tokens
from pytest_npubench.engines.openvino_dense.canaries import OpenVinoCanaries
from pytest_npubench.engines.openvino_dense.weights import seeded_weights
from pytest_npubench.engines.protocol import Canaries, Compiler, Engine, Finished
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError, LengthError
from pytest_npubench.measurement import CompileRecord, Move, Phase, Request, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A run and the tokens it produced: one tuple a request, in the order the requests were given."""

    run: Run
    tokens: tuple[tuple[int, ...], ...]


class OpenVinoBucketEngine(Engine):
    """See the module. Raises ConfigError for a bucket set, batch size or dtype the decoder cannot have."""

    name = "openvino-dense"
    prefill_shared = False
    finished: Finished = "freeze"

    def __init__(
        self,
        shape: DecoderShape,
        compiler: Compiler,
        *,
        buckets: Sequence[int],
        batch_size: int,
        dtype: str = "fp32",
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; want at least 1")
        self.shape = shape
        self.buckets = check_buckets(buckets)
        self.batch_size = batch_size
        self.compiles: Sequence[CompileRecord] = ()
        self.canaries: Canaries | None = OpenVinoCanaries(compiler)
        self._compiler = compiler
        self._seed = seed
        self._weights = seeded_weights(shape, dtype, seed)
        self._binaries: dict[int, BucketBinaries] = {}

    def load(self, buckets: Sequence[int]) -> None:
        """Compile prefill and decode of each bucket; a move needs no binary, for the host copies."""
        for bucket in buckets:
            if bucket not in self.buckets:
                raise ConfigError(f"bucket {bucket} is not in the engine's set {self.buckets}")
            if bucket not in self._binaries:
                found = BucketBinaries(
                    self.shape, self._compiler, self._weights, bucket=bucket, batch_size=self.batch_size
                )
                self._binaries[bucket] = found
                self.compiles = (*self.compiles, *found.compiles)

    def run(self, requests: Sequence[Request]) -> Run:
        """Run seeded random prompts of these lengths; see generate()."""
        self._check_batch(requests)
        prompts = [self._random_prompt(index, request.input_tokens) for index, request in enumerate(requests)]
        return self.generate(prompts, [request.output_tokens for request in requests]).run

    def generate(self, prompts: Sequence[Tokens], output_tokens: Sequence[int]) -> Generation:
        """Greedy tokens of each prompt (int32 [l_in]), its own number of them, with the timing of the whole batch.

        Raises LengthError for an empty batch, one above the compiled size, or a length no bucket holds, ConfigError for
        a token outside the vocabulary.
        """
        requests = self._as_requests(prompts, output_tokens)
        order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        bucket = bucket_of(self.buckets, len(prompts[order[0]]))
        self.load(self._path(bucket, max(map(_final_kv_length, requests))))
        tokens, lengths = np.zeros(self.batch_size, np.int32), np.zeros(self.batch_size, np.int32)
        trace = RunTrace()
        for row in order:
            bucket = self._grow(bucket, len(prompts[row]), trace)
            with trace.segment(Phase.PREFILL, bucket):
                tokens[row] = self._binaries[bucket].prefill(prompts[row], row)
            lengths[row] = len(prompts[row])
        fetched = [tokens]
        for kv_length in _kv_lengths(requests):
            bucket = self._grow(bucket, kv_length, trace)
            with trace.segment(Phase.DECODE, bucket):
                tokens = self._binaries[bucket].decode(tokens, lengths)
            fetched.append(tokens)
            lengths += 1
        run = trace.finish()
        made = tuple(tuple(int(step[row]) for step in fetched[:count]) for row, count in enumerate(output_tokens))
        return Generation(run=run, tokens=made)

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        """Move the cache between two neighbouring buckets of the set. Raises ConfigError for any other two."""
        if (from_bucket, to_bucket) not in pairwise(self.buckets):
            raise ConfigError(
                f"move {from_bucket} -> {to_bucket}: want a bucket and the next larger one of {self.buckets}"
            )
        self.load((from_bucket, to_bucket))
        trace = RunTrace()
        self._grow(from_bucket, to_bucket, trace)
        return trace.finish().moves[-1]

    def _grow(self, bucket: int, kv_length: int, trace: RunTrace) -> int:
        """Move step by step through the set until the cache holds kv_length."""
        while bucket < kv_length:
            larger = self.buckets[self.buckets.index(bucket) + 1]
            with trace.move(bucket, larger):
                self._binaries[bucket].copy_into(self._binaries[larger])
            bucket = larger
        return bucket

    def _as_requests(self, prompts: Sequence[Tokens], output_tokens: Sequence[int]) -> list[Request]:
        if len(prompts) != len(output_tokens):
            raise LengthError(f"{len(prompts)} prompts with {len(output_tokens)} output lengths; want as many of each")
        requests = [
            Request(input_tokens=len(prompt), output_tokens=count)
            for prompt, count in zip(prompts, output_tokens, strict=True)
        ]
        self._check_batch(requests)
        for row, prompt in enumerate(prompts):
            if prompt.min() < 0 or prompt.max() >= self.shape.vocab_size:
                raise ConfigError(
                    f"request {row}: a prompt token outside the vocabulary, 0..{self.shape.vocab_size - 1}"
                )
        return requests

    def _check_batch(self, requests: Sequence[Request]) -> None:
        if not 1 <= len(requests) <= self.batch_size:
            raise LengthError(f"{len(requests)} requests; the engine is compiled for 1..{self.batch_size}")
        for row, request in enumerate(requests):
            if request.input_tokens < 1 or request.output_tokens < 1:
                raise LengthError(
                    f"request {row}: {request.input_tokens} prompt and {request.output_tokens} output tokens; "
                    "want at least 1 of each"
                )
        bucket_of(self.buckets, max(map(_final_kv_length, requests)))

    def _path(self, first: int, longest: int) -> tuple[int, ...]:
        """Every bucket from the first one to the one of the longest KV length."""
        return tuple(bucket for bucket in self.buckets if first <= bucket <= bucket_of(self.buckets, longest))

    def _random_prompt(self, index: int, length: int) -> Tokens:
        generator = np.random.default_rng((self._seed, index))
        return generator.integers(0, self.shape.vocab_size, length, dtype=np.int32)


def _final_kv_length(request: Request) -> int:
    """KV length once the last token is out; that token itself is never written."""
    return request.input_tokens + request.output_tokens - 1


def _kv_lengths(requests: Sequence[Request]) -> Iterator[int]:
    """max_i c_t of every decode step (LENS, Eq. 8), rows that ended frozen at their final length."""
    for step in range(max(request.output_tokens for request in requests) - 1):
        yield max(min(request.input_tokens + step + 1, _final_kv_length(request)) for request in requests)
